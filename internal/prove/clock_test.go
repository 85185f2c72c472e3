package prove

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// The test sets the database's clock five minutes ahead, back again, and ahead once more.
func TestStepsOfTheDatabasesClockFireNothingEarlyOrTwice(t *testing.T) {
	exhaustive(t, "takes a quarter of a minute")
	t.Parallel()
	const step = 5 * time.Minute
	clock, w := pgtest.NewClock(t), newWitness(t)
	dsn := pgtest.Database(t, pgtest.NewServer(t, privatepg.Config{Env: clock.Env}))
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	var jobs []process.JobSpec
	for i := range 15 {
		policy := []string{"allow", "forbid", "wait"}[i%3]
		jobs = append(jobs,
			job(fmt.Sprintf("cron-%d", i), w.URL+"/cron", process.JobSpec{
				"concurrency_policy": policy,
				"schedule":           map[string]any{"cron": "* * * * * *"},
			}))
	}
	for i := range 200 {
		due := time.Now().Add(2*time.Second + 50*time.Millisecond*time.Duration(i))
		jobs = append(jobs,
			job(fmt.Sprintf("once-%d", i), w.URL+"/once", process.JobSpec{
				"schedule": map[string]any{"at": due.UTC().Format(time.RFC3339Nano)},
			}))
	}
	create(t, fleet[0].API, jobs...)
	newest := func() (at time.Time) { // the newest slot of a cron job that was sent
		for _, q := range w.At("/cron") {
			if q.ScheduledFor.After(at) {
				at = q.ScheduledFor
			}
		}
		return at
	}
	await(t, "the load", func() bool { return len(w.At("/cron")) > 30 && len(w.At("/once")) > 10 })

	clock.Step(step)
	await(t, "slots after the step ahead", func() bool { return newest().After(time.Now().Add(step - 10*time.Second)) })
	passed := newest()
	await(t, "three seconds of them", func() bool { return newest().After(passed.Add(3 * time.Second)) })

	clock.Step(0)
	create(t, fleet[1].API, job("delayed", w.URL+"/delayed", process.JobSpec{"schedule": map[string]any{"delay": "1s"}}),
		job("by-hand", w.URL+"/by-hand", nil))
	do[any](t, fleet[0].API, "POST", "/v1/jobs/by-hand/trigger", nil)
	await(t, "what is due by the clock that was set back", func() bool {
		return len(w.At("/delayed")) == 1 && len(w.At("/by-hand")) == 1
	})
	conn := connect(t, dsn)
	beats := query[int64](t, conn, `SELECT sum(beat)::bigint FROM punctual.replicas`)
	await(t, "heartbeats", func() bool {
		return query[int64](t, conn, `SELECT sum(beat)::bigint FROM punctual.replicas`) > beats+4
	})
	passed = newest()

	clock.Step(step)
	await(t, "the slots to go on", func() bool { return newest().After(passed.Add(3 * time.Second)) })
	for _, j := range jobs[:15] {
		do[any](t, fleet[0].API, "POST", fmt.Sprintf("/v1/jobs/%s/pause", j["name"]), map[string]any{
			"note": "the end of the test",
		})
	}
	await(t, "the one-shots", func() bool { return len(w.At("/once")) == 200 })
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true, ClockSteps: true})
	if len(f.Attempts) > 0 {
		t.Errorf("%d attempts did not succeed, such as %+v", len(f.Attempts), f.Attempts[0])
	}
	if !slices.ContainsFunc(f.Runs, func(r Run) bool { return r.Reason != nil && *r.Reason == "missed" }) {
		t.Error("no slot was missed: the clock was not stepped")
	}
	calm(t, 50, fleet...)
	neverSaid(t, "replicas are lost", fleet...) // a step of the clock must not make the living look dead
	stop(t, fleet...)
}
