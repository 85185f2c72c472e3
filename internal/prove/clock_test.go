//prove:clocks

package prove

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// Postgres's clock is set 5 minutes ahead, back, and ahead. Nothing is early or sent twice.
//
// No run is created or claimed before it is due by that clock, missed slots are recorded, and living replicas are not
// taken for dead.
func TestStepsOfTheDatabasesClockFireNothingEarlyOrTwice(t *testing.T) {
	t.Parallel()
	const step = 5 * time.Minute
	clock, w := pgtest.NewClock(t), newWitness(t)
	server := pgtest.NewServer(t, privatepg.Config{Env: clock.Env})
	t.Cleanup(func() { neverCrashed(t, server) })
	dsn := pgtest.Database(t, server)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	crons := inTurn(many(15, "cron", w.URL+"/cron", process.JobSpec{
		"schedule": map[string]any{"cron": "* * * * * *"},
	}), "allow", "forbid", "wait")
	create(t, fleet[0].API, crons...)
	h := herd{start: nextSecond(2 * time.Second), oneShots: 200, within: 10 * time.Second}
	create(t, fleet[0].API, h.jobs(w.URL)...)
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
	create(t, fleet[1].API, job("delayed", w.URL+"/delayed", process.JobSpec{"schedule": delayed("1s")}),
		job("by-hand", w.URL+"/by-hand", nil))
	trigger(t, fleet[0].API, "by-hand")
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
	for _, j := range crons {
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
	if !slices.ContainsFunc(f.Runs, func(r Run) bool { return r.Reason == "missed" }) {
		t.Error("no slot was missed: the clock was not stepped")
	}
	stopCalm(t, 50, fleet...)
	neverSaid(t, "replicas are lost", fleet...) // a step of the clock must not make the living look dead
}

// neverCrashed fails the test if a process of a server has crashed: what else the test found then says nothing.
func neverCrashed(t *testing.T, server *privatepg.Server) {
	t.Helper()
	log, err := os.ReadFile(server.Log())
	if crash := regexp.MustCompile(`.* was terminated by signal.*`).Find(log); err != nil || crash != nil {
		t.Errorf("Postgres itself crashed: %s (%v)", crash, err)
	}
}
