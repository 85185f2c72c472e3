//prove:chains

package prove

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// aged backdates a job that was created paused to the given instant. So its slots since then have passed while it was
// paused.
const aged = `
WITH job AS (UPDATE punctual.jobs SET created_at = $2, paused_at = $2 WHERE name = $1 RETURNING id),
     version AS (UPDATE punctual.job_versions v SET valid_from = $2 FROM job WHERE v.job_id = job.id)
UPDATE punctual.schedules s SET scheduled_for = $3, next_run_at = $3 FROM job WHERE s.job_id = job.id`

// A backfill on two replicas runs slots one at a time, oldest first.
//
// The job allows overlap.
func TestABackfillRunsEachPastSlotOnceOldestFirst(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	w.Script("/hook", Answer{Delay: 50 * time.Millisecond})
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn)}
	create(t, fleet[0].API, job("a", w.URL+"/hook", process.JobSpec{
		"schedule": map[string]any{"cron": "*/4 * * * *"}, "jitter": "0s", "expires_after": "1m", "paused": true,
	}))
	// The backfill covers the last hour. In its first half the job did not exist, in the second it was paused.
	now := time.Now().UTC().Truncate(time.Second)
	half := now.Add(-30 * time.Minute)
	execute(t, connect(t, dsn), aged, "a", half, half.Truncate(4*time.Minute).Add(4*time.Minute))
	do[any](t, fleet[0].API, "POST", "/v1/jobs/a/resume", map[string]any{})

	asked := map[string]any{"from": now.Add(-time.Hour).Format(time.RFC3339), "to": now.Format(time.RFC3339)}
	o := do[operation](t, fleet[1].API, "POST", "/v1/jobs/a/backfill", asked)
	if o.Matched != 15 {
		t.Errorf("%d slots, want 15", o.Matched)
	}
	o = finished(t, fleet[0].API, o.ID)
	if o.State != "done" || o.Done != o.Matched || o.Failed != 0 {
		t.Errorf("%+v", o)
	}
	again := do[operation](t, fleet[0].API, "POST", "/v1/jobs/a/backfill", asked)
	finished(t, fleet[0].API, again.ID) // with nothing to do

	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true})
	requests := slices.DeleteFunc(w.At("/hook"), func(r Request) bool { return r.Trigger != "backfill" })
	if len(requests) != o.Matched {
		t.Errorf("%d requests for %d slots", len(requests), o.Matched)
	}
	oneAtATime(t, requests)
	skips := 0
	for _, r := range f.Runs {
		if r.isRange() && r.Reason == "paused" {
			skips += *r.SkippedCount
		}
	}
	if skips < 7 || skips > 8 {
		t.Errorf("%d slots passed while it was paused, want half of them", skips)
	}
	proven(t, dsn)
	stop(t, fleet...)
}

// oneAtATime checks that the requests of a backfill came one at a time, oldest first.
func oneAtATime(t *testing.T, requests []Request) {
	t.Helper()
	for i, r := range requests[1:] {
		before := requests[i]
		if cmp.Or(before.ScheduledFor.Compare(r.ScheduledFor), cmp.Compare(before.Attempt, r.Attempt)) >= 0 {
			t.Errorf("attempt %d of %s came after attempt %d of %s",
				r.Attempt, r.ScheduledFor, before.Attempt, before.ScheduledFor)
		}
		if r.At.Before(before.Ended) {
			t.Errorf("the request of %s came before that of %s was answered", r.ScheduledFor, before.ScheduledFor)
		}
	}
}

// kill -9 of the replica that works through a backfill. Another repeats its run and does the rest.
//
// With a higher fencing token, one at a time and none twice.
func TestABackfillOutlivesTheReplicaThatWorksThroughIt(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	const slots, killedAt = 12, 5
	answers := slices.Repeat([]Answer{{Delay: 20 * time.Millisecond}}, killedAt)
	w.Script("/hook", append(answers, Answer{Hang: true}, Answer{Delay: 20 * time.Millisecond})...)
	first := serve(t, dsn)
	now := time.Now().UTC().Truncate(time.Second)
	create(t, first.API, job("a", w.URL+"/hook", process.JobSpec{ // no slot is near
		"schedule": map[string]any{"cron": fmt.Sprintf("%d * * * *", (now.Minute()+30)%60)}, "timeout": "5m", "jitter": "0s",
	}))
	o := do[operation](t, first.API, "POST", "/v1/jobs/a/backfill", map[string]any{
		"from": now.Add(-slots * time.Hour).Format(time.RFC3339), "to": now.Format(time.RFC3339),
	})
	requests := func() []Request { return w.At("/hook") }
	await(t, "the run that hangs", func() bool { return len(requests()) == killedAt+1 })
	second := serve(t, dsn)
	first.Kill()
	o = finished(t, second.API, o.ID)
	if o.State != "done" || o.Matched != slots || o.Done != slots || o.Failed != 0 {
		t.Errorf("%+v", o)
	}
	w.Release("/hook")
	verify(t, atRest(t, dsn, w), Conditions{})
	all := requests()
	if len(all) != slots+1 {
		t.Fatalf("%d requests, want %d and the repeat of the one in flight", len(all), slots)
	}
	oneAtATime(t, all)
	lost, again := all[killedAt], all[killedAt+1]
	if lost.Run != again.Run || lost.Attempt != 1 || again.Attempt != 2 || again.Fence <= lost.Fence {
		t.Errorf("after %+v came %+v", lost, again)
	}
	proven(t, dsn)
	stop(t, second)
}
