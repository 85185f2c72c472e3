package prove

import (
	"cmp"
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

// The job allows overlap, and its backfill goes one at a time all the same, across two replicas.
func TestABackfillRunsEachPastSlotOnceOldestFirst(t *testing.T) {
	exhaustive(t, "takes half a minute")
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
	if !slices.IsSortedFunc(requests, func(a, b Request) int {
		return cmp.Or(a.ScheduledFor.Compare(b.ScheduledFor), cmp.Compare(a.Attempt, b.Attempt))
	}) {
		t.Error("they did not come oldest first")
	}
	for i, r := range requests {
		if i > 0 && r.At.Before(requests[i-1].Ended) {
			t.Errorf("the request of %s came before that of %s was answered", r.ScheduledFor, requests[i-1].ScheduledFor)
		}
	}
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
