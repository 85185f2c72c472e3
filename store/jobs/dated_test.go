package jobs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/forecast"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

func TestADatedRunHasNoRowBeforeItsClaim(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("reminder", Never)
	later := c.Date("reminder", jobs.DateRequest{Delay: time.Hour, Key: "later"})
	body, headers := []byte(`{"order": 42}`), map[string]string{"X-A": "b"}
	now := c.Date("reminder", jobs.DateRequest{
		Key: "now", TriggerRequest: jobs.TriggerRequest{Body: body, Headers: headers}, ExpiresAfter: time.Minute,
	})
	c.WantCount(0, "runs", `SELECT count(*) FROM punctual.runs`)
	a := c.One(c.ClaimReady(10))
	if a.RunID != now.Run || a.Job.ID != job.ID || string(a.Body) != string(body) || a.Headers["X-A"] != "b" ||
		a.Trigger != domain.TriggerManual || !a.DueAt.Equal(now.DueAt) || a.ExpiresAfter != time.Minute || a.Late {
		t.Errorf("%+v", a)
	}
	if expiry, expires := a.Expiry(); !expires || !expiry.Equal(now.DueAt.Add(time.Minute)) {
		t.Errorf("it expires: %t, at %s", expires, expiry)
	}
	c.Finish(Succeeded(a))
	uuids := uuid.NewString() // a key of the caller's is kept with the run, whatever it looks like
	c.Date("reminder", jobs.DateRequest{Key: uuids})
	none := c.Date("reminder", jobs.DateRequest{})
	if none.Key != none.Run.String() {
		t.Errorf("without a key: %+v", none)
	}
	c.ClaimReady(10)
	c.WantCount(2, "runs with keys", `SELECT count(*) FROM punctual.run_data WHERE key IN ('now', $1)`, uuids)
	c.WantCount(2, "runs with data", `SELECT count(*) FROM punctual.run_data`)
	if _, err := c.Jobs.GetDated(t.Context(), c.Tenant, "reminder", "now"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a claimed run is still pending: %v", err)
	}
	if d, err := c.Jobs.GetDated(t.Context(), c.Tenant, "reminder", "later"); err != nil || d.Run != later.Run {
		t.Errorf("%+v, %v", d, err)
	}
	c.WantCount(1, "dated runs", `SELECT count(*) FROM punctual.dated`)
}

func TestAKeyIsFreeOnceItsRunIsClaimed(t *testing.T) {
	c := NewReplica(t)
	c.Create("sync", Never)
	first := c.Date("sync", jobs.DateRequest{Key: "cart"})
	if again := c.Date("sync", jobs.DateRequest{Key: "cart", Delay: time.Hour}); again.Created || again.Replaced ||
		again.Run != first.Run || !again.DueAt.Equal(first.DueAt) {
		t.Errorf("kept: %+v", again)
	}
	moved := c.Date("sync", jobs.DateRequest{Key: "cart", Delay: time.Hour, OnConflict: jobs.KeyReplace})
	if moved.Created || !moved.Replaced || moved.Run == first.Run {
		t.Errorf("replaced: %+v", moved)
	}
	if got := c.ClaimReady(10); len(got.Runs) != 0 {
		t.Errorf("a run that was put off is claimed")
	}
	var refusal *domain.Refusal
	if _, err := c.For(c.Tenant).TriggerAt(t.Context(), "sync", jobs.DateRequest{
		Key: "cart", OnConflict: jobs.KeyError,
	}); !errors.As(err, &refusal) || refusal.Code != "key_pending" {
		t.Errorf("on_conflict error: %v", err)
	}
	c.Exec(`UPDATE punctual.dated SET created_at = created_at + interval '1 hour'`) // the clock is set back
	back := c.Date("sync", jobs.DateRequest{Key: "cart", OnConflict: jobs.KeyReplace})
	if back.Created || !back.Replaced {
		t.Errorf("replaced after the clock was set back: %+v", back)
	}
	a := c.One(c.ClaimReady(10))
	next := c.Date("sync", jobs.DateRequest{Key: "cart"}) // while that is in flight
	if !next.Created || next.Run == a.RunID {
		t.Errorf("while a run is in flight: %+v", next)
	}
}

// A replacement that was delayed and arrives after its key's run has left is as old as before.
func TestASequenceGuardsItsKeyForADayAfterItsRunHasLeft(t *testing.T) {
	c := NewReplica(t)
	c.Create("sync", Never)
	_, app := c.App()
	replace := func(sequence int64) jobs.Dated {
		t.Helper()
		return c.Date("sync", jobs.DateRequest{Key: "k", Sequence: &sequence, OnConflict: jobs.KeyReplace})
	}
	pending := func(want int, why string) {
		t.Helper()
		c.WantCount(want, "dated runs are pending: "+why, `SELECT count(*) FROM punctual.dated`)
	}
	var run uuid.UUID
	outdated := func(sequence int64) {
		t.Helper()
		if out := replace(sequence); !out.Outdated || out.Created || out.Replaced || out.Run != run {
			t.Errorf("sequence %d: %+v, want the run %s that has left", sequence, out, run)
		}
		if got := Ask[uuid.UUID](t, app, `
			SELECT shop_jobs.run_in('sync', '0 s', key => 'k', on_conflict => 'replace', sequence => $1)`, sequence); got != run {
			t.Errorf("sequence %d in SQL: run %s, want %s", sequence, got, run)
		}
		if got := Ask[uuid.UUID](t, app, `SELECT run FROM shop_jobs.run_many(json_build_array(json_build_object('job', 'sync',
			'key', 'k', 'on_conflict', 'replace', 'sequence', $1::bigint)))`, sequence); got != run {
			t.Errorf("sequence %d in SQL, one of many: run %s, want %s", sequence, got, run)
		}
		pending(0, "after an outdated replacement")
	}
	first := replace(5)
	if run = first.Run; !first.Created || first.Outdated {
		t.Fatalf("%+v", first)
	}
	c.FinishAll(c.ClaimReady(10).Runs)
	outdated(4)
	outdated(5)
	run = replace(6).Run
	outdatedWhilePending := replace(5)
	if outdatedWhilePending.Replaced || outdatedWhilePending.Run != run {
		t.Errorf("while a later one is pending: %+v", outdatedWhilePending)
	}
	_, err := c.Jobs.CancelDated(t.Context(), c.Tenant, "sync", "k", false)
	Must(t, err)
	outdated(6)
	if out := c.Date("sync", jobs.DateRequest{Key: "k", Sequence: new(int64(1))}); !out.Created {
		t.Errorf("keep: %+v", out)
	}
	c.FinishAll(c.ClaimReady(10).Runs)
	outdated(6)
	c.Exec(`UPDATE punctual.dated_sequences SET left_at = left_at - interval '1 day'`)
	if out := replace(1); !out.Created {
		t.Errorf("a day later: %+v", out)
	}
	_, _, err = c.ForgetOld(t.Context(), "dated_sequences")
	Must(t, err)
	c.WantCount(0, "sequences are kept", `SELECT count(*) FROM punctual.dated_sequences`)
}

// The claim may commit while a replacement waits for it.
func TestAReplacementThatWaitsForTheClaimIsOutdatedThen(t *testing.T) {
	c := NewReplica(t)
	c.Create("sync", Never)
	replace := func(sequence int64) (jobs.Dated, error) {
		return c.For(c.Tenant).TriggerAt(t.Context(), "sync",
			jobs.DateRequest{Key: "k", Sequence: &sequence, OnConflict: jobs.KeyReplace})
	}
	first, err := replace(5)
	Must(t, err)
	claim, err := c.DB.Chores.Begin(t.Context())
	Must(t, err)
	Must(t, pg.Exec(t.Context(), claim, `DELETE FROM punctual.dated`))
	var out jobs.Dated
	done := make(chan error)
	go func() {
		var err error
		out, err = replace(4)
		done <- err
	}()
	c.Until("the replacement to wait", `SELECT EXISTS (
		SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	Must(t, claim.Commit(t.Context()))
	if err := <-done; err != nil || !out.Outdated || out.Run != first.Run {
		t.Errorf("%+v, error %v", out, err)
	}
	c.WantCount(0, "dated runs are pending", `SELECT count(*) FROM punctual.dated`)
}

func TestDatedRunsOfAPausedJobWaitForItsResume(t *testing.T) {
	c := NewReplica(t)
	c.Create("reminder", Never)
	c.Pause("reminder")
	for range 3 {
		c.Date("reminder", jobs.DateRequest{})
	}
	if b := c.ClaimReady(10); len(b.Runs) != 0 || b.Settled != 3 {
		t.Errorf("%d runs of a paused job start, %d were settled", len(b.Runs), b.Settled)
	}
	if b := c.ClaimReady(10); b.Settled != 0 {
		t.Errorf("a claim meets what was set aside: %d", b.Settled)
	}
	_, err := c.Jobs.ResumeJob(t.Context(), c.Tenant, "reminder", "")
	Must(t, err)
	c.FitDated()
	if b := c.ClaimReady(10); len(b.Runs) != 3 {
		t.Errorf("%d runs start after the resume", len(b.Runs))
	}
}

func TestDatedRunsOfADeletedJobBecomeOneSkip(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("reminder", Never)
	for n := range 3 {
		c.Date("reminder", jobs.DateRequest{Delay: time.Duration(n) * time.Hour})
	}
	Must(t, c.Jobs.DeleteJob(t.Context(), c.Tenant, "reminder", nil, false))
	c.FitDated()
	c.WantCount(0, "dated runs", `SELECT count(*) FROM punctual.dated`)
	c.WantCount(1, "skips", `SELECT count(*) FROM punctual.runs
		WHERE job_id = $1 AND status = 'skipped' AND reason = 'job_deleted' AND skipped_count = 3`, job.ID)
}

// A caller's transaction locks no job, so a delete does not wait for it.
func TestADatedRunThatIsCommittedAfterTheDeleteOfItsJobIsASkip(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]struct {
		delay string
		by    func(c Replica)
	}{
		"by the claim, when it is due": {"0", func(c Replica) { c.ClaimReady(10) }},
		"by the sweep, before":         {"30 days", func(c Replica) { tidy(c) }},
		"by the purge, much later": {"30 days", func(c Replica) {
			c.Exec(`UPDATE punctual.jobs SET deleted_at = now() - interval '40 days' WHERE state = 'deleted'`)
			_, _, err := c.Jobs.PurgeJobs(c.T.Context())
			Must(c.T, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			job := c.Create("job", Never)
			_, app := c.App()
			tx, err := app.Begin(t.Context())
			Must(t, err)
			Ask[uuid.UUID](t, tx, `SELECT shop_jobs.run_in('job', $1::text::interval, body => '1')`, found.delay)
			c.DeleteJob("job")
			c.FitDated()
			Must(t, tx.Commit(t.Context()))
			found.by(c)
			c.FitDated()
			c.WantCount(1, "skips", `SELECT count(*) FROM punctual.runs
				WHERE job_id = $1 AND status = 'skipped' AND reason = 'job_deleted'`, job.ID)
			c.WantCount(0, "dated runs are left", `SELECT count(*) FROM punctual.dated`)
			c.WantCount(0, "jobs have work left", `SELECT count(*) FROM punctual.dated_work`)
		})
	}
}

// Nobody may serve the queue that the job has left.
func TestADatedRunThatIsCommittedAfterItsJobHasLeftTheQueueIsMoved(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Never)
	_, app := c.App()
	tx, err := app.Begin(t.Context())
	Must(t, err)
	Ask[uuid.UUID](t, tx, `SELECT shop_jobs.trigger('job')`)
	c.Edit("job", func(d *domain.Definition) { d.Priority = domain.PriorityLow })
	c.FitDated()
	Must(t, tx.Commit(t.Context()))
	c.Exec(`UPDATE punctual.dated SET due_at = due_at - interval '2 minutes'`)
	tidy(c)
	c.FitDated()
	c.WantCount(1, "dated runs in the queue of their job", `
		SELECT count(*) FROM punctual.dated d JOIN punctual.schedules s USING (job_id, lane) WHERE d.job_id = $1`, job.ID)
}

func tidy(c Replica) {
	c.T.Helper()
	_, _, err := c.Jobs.SweepDated(c.T.Context())
	Must(c.T, err)
}

// It may have them though its last slot has passed.
func TestACompletedJobIsNotForgottenWhileItHasDatedRuns(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", At(c.Clock().Add(time.Hour)))
	c.Complete(job.ID)
	c.Exec(`UPDATE punctual.schedules SET completed_at = now() - interval '8 days'`)
	c.Exec(`UPDATE punctual.completions SET completed_at = now() - interval '8 days', look_at = now()`)
	c.Date("job", jobs.DateRequest{Key: "k", Delay: time.Hour})
	for range 2 {
		_, _, err := c.Jobs.ForgetCompletedJobs(t.Context())
		Must(t, err)
	}
	if got := c.Get(job.ID.String()); got.State == domain.JobDeleted {
		t.Error("it was forgotten")
	}
	c.WantCount(1, "dated runs", `SELECT count(*) FROM punctual.dated`)
}

func TestADatedRunWaitsInTheQueueThatItsJobHasNow(t *testing.T) {
	c := NewReplica(t)
	c.Create("reminder", Never)
	c.Date("reminder", jobs.DateRequest{})
	c.Edit("reminder", func(d *domain.Definition) { d.Priority = domain.PriorityHigh })
	c.FitDated()
	c.WantCount(1, "dated runs of high priority", `SELECT count(*) FROM punctual.dated WHERE lane = $1`, c.Queue*4)
}

func TestADatedRunThatIsTooLateIsMissed(t *testing.T) {
	t.Parallel()
	for policy, want := range map[domain.MissedPolicy]string{
		domain.MissedSkip: "skipped missed", domain.MissedFireOnce: "running", domain.MissedFireAll: "running",
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := NewReplica(t)
			c.Create("reminder", Never, Tolerating(10*time.Second), Missed(policy))
			run := c.Date("reminder", jobs.DateRequest{At: new(c.Clock().Add(-30 * time.Second))}).Run
			b := c.ClaimReady(10)
			if got := c.Is(run); got != want || (len(b.Runs) == 1) != (want == "running") {
				t.Errorf("it is %s", got)
			}
			for _, a := range b.Runs {
				if !a.Late {
					t.Error("the replica is not told that the run is late")
				}
			}
			c.WantCount(map[bool]int{true: 0, false: 1}[want == "skipped missed"], "late runs",
				`SELECT count(*) FROM punctual.runs WHERE late AND id = $1`, run)
		})
	}
}

func TestATenantHasNoMorePendingRunsThanItMay(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never)
	c.Exec(`UPDATE punctual.tenants SET max_pending_runs = 2 WHERE id = $1`, c.Tenant)
	for _, key := range []string{"a", "b"} {
		c.Date("job", jobs.DateRequest{Key: key})
	}
	var refusal *domain.Refusal
	if _, err := c.For(c.Tenant).TriggerAt(t.Context(), "job", jobs.DateRequest{Key: "c"}); !errors.As(err, &refusal) ||
		refusal.Code != "limit" || !strings.Contains(refusal.Reason, "max_pending_runs") {
		t.Errorf("one more: %v", err)
	}
	c.Date("job", jobs.DateRequest{Key: "a", OnConflict: jobs.KeyReplace})
	if b := c.ClaimReady(1); len(b.Runs) != 1 {
		t.Fatalf("%d runs", len(b.Runs))
	}
	c.Date("job", jobs.DateRequest{Key: "c"})
	c.Pause("job")
	c.ClaimReady(10) // sets them aside
	if _, err := c.For(c.Tenant).TriggerAt(t.Context(), "job", jobs.DateRequest{Key: "d"}); !errors.As(err, &refusal) {
		t.Errorf("one more while two are set aside: %v", err)
	}
}

// So that the tick loop wakes for them, shares its worker slots fairly, and stands by them in the depths of queues.
func TestTheTickLoopSeesDatedRuns(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never)
	next := func() time.Time {
		u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{domain.WorkReady: {c.Queue}}, false)
		Must(t, err)
		return u.Ready
	}
	if at := next(); !at.IsZero() {
		t.Errorf("without any, the next is due at %s", at)
	}
	due := c.Clock().Add(time.Minute).Truncate(time.Millisecond)
	c.Date("job", jobs.DateRequest{At: &due, Key: "k"})
	if at := next(); !at.Equal(due) {
		t.Errorf("the next is due at %s, not %s", at, due)
	}
	c.Date("job", jobs.DateRequest{Key: "k", OnConflict: jobs.KeyReplace})
	found, err := c.Claims.Contenders(t.Context(), domain.WorkReady, []int16{c.Queue})
	Must(t, err)
	if len(found) != 1 || found[0].Tenant != c.Tenant {
		t.Errorf("contenders: %+v", found)
	}
	queues, _, err := c.Fleet.QueueDepths(t.Context(), c.Tenant)
	Must(t, err)
	waiting := 0
	for _, q := range queues {
		waiting += q.DueRuns
	}
	if waiting != 1 {
		t.Errorf("%d due runs", waiting)
	}
}

// The chore has not moved the run yet.
func TestAClaimLeavesADatedRunOfAnotherQueue(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never)
	run := c.Date("job", jobs.DateRequest{}).Run
	c.Exec(`UPDATE punctual.schedules SET lane = lane + 4`)
	if b := c.ClaimReady(10); len(b.Runs) != 0 || c.Is(run) != "pending" {
		t.Errorf("%d runs start; it is %s", len(b.Runs), c.Is(run))
	}
	c.WantCount(1, "runs in its queue", `SELECT count(*) FROM punctual.ready WHERE lane = $1`, (c.Queue+1)*4+1)
}

func TestADatedRunIsListedUntilItIsCancelled(t *testing.T) {
	c := NewReplica(t)
	c.Create("reminder", Never)
	for _, key := range []string{"c", "a", "b"} {
		c.Date("reminder", jobs.DateRequest{Key: key, Delay: map[string]time.Duration{
			"a": time.Hour, "b": 2 * time.Hour, "c": 3 * time.Hour,
		}[key]})
	}
	list := func(r jobs.DatedRange) (keys string) {
		for {
			page, cursor, err := c.Jobs.ListDated(t.Context(), c.Tenant, "reminder", r)
			Must(t, err)
			for _, d := range page {
				keys += d.Key
			}
			if r.Cursor = cursor; cursor == "" {
				return keys
			}
		}
	}
	r := jobs.DatedRange{}
	if r.Limit = 1; list(r) != "abc" {
		t.Errorf("pages of one: %s", list(r))
	}
	from, to := c.Clock().Add(90*time.Minute), c.Clock().Add(150*time.Minute)
	if got := list(jobs.DatedRange{From: &from, To: &to}); got != "b" {
		t.Errorf("in between: %s", got)
	}
	_, err := c.Jobs.CancelDated(t.Context(), c.Tenant, "reminder", "b", false)
	Must(t, err)
	if _, err := c.Jobs.CancelDated(t.Context(), c.Tenant, "reminder", "b", false); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("cancelled twice: %v", err)
	}
	if got := list(jobs.DatedRange{}); got != "ac" {
		t.Errorf("after the cancel: %s", got)
	}
}

// A dated run has no row in runs, and is found by the id that it will have all the same.
func TestADatedRunIsReadAndCancelledByItsID(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("reminder", Never)
	read := func(id uuid.UUID) (runs.Run, error) { return c.Runs.GetRun(t.Context(), c.Tenant, id) }
	d := c.Date("reminder", jobs.DateRequest{
		Key: "k", Delay: time.Hour, TriggerRequest: jobs.TriggerRequest{Body: []byte(`"own"`), Headers: map[string]string{"X-A": "b"}},
	})
	r, err := read(d.Run)
	Must(t, err)
	if r.JobID != job.ID || r.Job != "reminder" || r.Status != domain.StatusPending || r.Trigger != domain.TriggerManual ||
		*r.Key != "k" || !r.DueAt.Equal(d.DueAt) || r.MaxAttempts != domain.DefaultMaxAttempts || r.TriggeredBy == nil ||
		string(r.Sent.Body) != `"own"` || r.Sent.Headers["X-A"] != "b" || r.WaitingFor != nil {
		t.Errorf("%+v", r)
	}
	for id, tenant := range map[uuid.UUID]int32{d.Run: c.Tenant + 1, uuid.New(): c.Tenant} {
		if _, err := c.Runs.GetRun(t.Context(), tenant, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another tenant's, or another id: %v", err)
		}
		if _, err := c.Runs.CancelRun(t.Context(), tenant, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another tenant's, or another id: %v", err)
		}
	}
	if _, err := c.For(c.Tenant).RerunRun(t.Context(), d.Run, jobs.RerunRequest{}); !errors.Is(err, store.ErrState) {
		t.Errorf("run again: %v", err)
	}
	got, err := c.Runs.CancelRun(t.Context(), c.Tenant, d.Run)
	if err != nil || got.Status != domain.StatusCancelled || got.FinishedAt == nil {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	if _, err := read(d.Run); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after the cancel: %v", err)
	}
	c.WantCount(1, "cancels in the audit log", `SELECT count(*) FROM punctual.audit_log
		WHERE action = 'run.cancel' AND resource_id = $1 AND job_id = $2 AND before ->> 'key' = 'k'`, d.Run, job.ID)

	now := c.Date("reminder", jobs.DateRequest{Key: "now"})
	c.Pause("reminder")
	for range 2 { // before a claim has set it aside, and then
		if r, err := read(now.Run); err != nil || r.WaitingFor == nil || r.WaitingFor.What != "paused" {
			t.Errorf("of a paused job: %+v, %v", r.WaitingFor, err)
		}
		c.ClaimReady(10)
	}
	_, err = c.Jobs.ResumeJob(t.Context(), c.Tenant, "reminder", "")
	Must(t, err)
	c.FitDated()
	c.One(c.ClaimReady(10))
	if r, err := read(now.Run); err != nil || r.Status != domain.StatusRunning || *r.Key != "now" {
		t.Errorf("claimed: %+v, %v", r, err)
	}
	c.Date("reminder", jobs.DateRequest{Key: "late", Delay: time.Hour})
	Must(t, c.Jobs.DeleteJob(t.Context(), c.Tenant, "reminder", nil, false))
	if _, err := read(uuid.MustParse(c.Text(`SELECT run_id FROM punctual.dated`))); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of a deleted job: %v", err)
	}
}

// A move changes the instant, the id and the sequence, and nothing else.
func TestAMoveLeavesAllButTheInstant(t *testing.T) {
	c := NewReplica(t)
	c.Create("reminder", Never)
	rest := func() string {
		return c.Text(`SELECT (to_jsonb(d) - '{run_id,due_at,sequence}'::text[])::text FROM punctual.dated d`)
	}
	first := c.Date("reminder", jobs.DateRequest{
		Key: "k", Delay: time.Hour, Sequence: new(int64(1)), ExpiresAfter: time.Minute, NotAfter: 2 * time.Hour,
		TriggerRequest: jobs.TriggerRequest{Body: []byte(`1`), Headers: map[string]string{"X-A": "b"}},
	})
	before := rest()
	move := func(r jobs.DateRequest) (jobs.Dated, error) {
		r.Key = "k"
		return c.Jobs.MoveDated(t.Context(), c.Tenant, "reminder", r)
	}
	for _, step := range []struct {
		delay    time.Duration
		sequence *int64
		moves    bool
		due      time.Duration // after the first instant
	}{
		{90 * time.Minute, new(int64(1)), false, 0},
		{90 * time.Minute, new(int64(2)), true, 30 * time.Minute},
		{48 * time.Hour, nil, true, time.Hour},
		{0, nil, true, -time.Hour},
	} {
		w, err := move(jobs.DateRequest{Delay: step.delay, Sequence: step.sequence})
		Must(t, err)
		if off := w.DueAt.Sub(first.DueAt.Add(step.due)).Abs(); w.Replaced != step.moves || off > time.Minute ||
			w.Run.String() != c.Text(`SELECT run_id FROM punctual.dated`) || domain.IDTime(w.Run) != w.DueAt.Truncate(time.Millisecond) {
			t.Errorf("%+v: %+v", step, w)
		}
		if after := rest(); after != before {
			t.Errorf("%+v: %s has become %s", step, before, after)
		}
	}
	c.WantCount(3, "moves in the audit log", `SELECT count(*) FROM punctual.audit_log WHERE action = 'run.move'
		AND before ->> 'key' = 'k' AND before ->> 'due_at' <> after ->> 'due_at'`)
	if a := c.One(c.ClaimReady(10)); string(a.Body) != "1" || a.Headers["X-A"] != "b" || a.ExpiresAfter != time.Minute {
		t.Errorf("%+v", a)
	}
	if _, err := move(jobs.DateRequest{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("once it is claimed: %v", err)
	}
}

func TestExplainAndForecastKnowDatedRuns(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("reminder", Never)
	due := c.Clock().Add(time.Hour).Truncate(time.Second)
	pending := c.Date("reminder", jobs.DateRequest{Key: "cart-42", At: &due})
	explain := func() string {
		e, err := c.History.ExplainJob(t.Context(), c.Tenant, "reminder", func(*time.Location) (time.Time, error) {
			return due, nil
		})
		Must(t, err)
		return e.Text
	}
	if text := explain(); !strings.Contains(text, `A dated run with the key "cart-42" is due at `+pg.Stamp(due)) {
		t.Errorf("pending: %s", text)
	}
	f, err := c.Jobs.Forecast(t.Context(), c.Tenant, forecast.Window{
		From: due.Add(-90 * time.Minute), To: due.Add(time.Hour), Step: time.Hour,
	})
	Must(t, err)
	if f.Total != 1 || f.Slots[1] != 1 || len(f.Busiest) != 1 {
		t.Errorf("forecast: %+v", f.Forecast)
	}
	c.WantCount(1, "upcoming", `SELECT count(*) FROM punctual.upcoming WHERE job_id = $1 AND key = 'cart-42'`, job.ID)
	due = c.Clock().Add(-time.Minute)
	c.Exec(`UPDATE punctual.dated SET due_at = $1, run_id = punctual.run_id_at($1)`, due)
	if text := explain(); !strings.Contains(text, "has been due since") {
		t.Errorf("due: %s", text)
	}
	c.WantCount(1, "overdue", `SELECT count(*) FROM punctual.overdue WHERE job_id = $1 AND what = 'dated'`, job.ID)
	if o := c.Figures().Overdue; o.Runs != 1 || o.Oldest == nil || o.Oldest.Run != nil {
		t.Errorf("overdue: %+v", o)
	}
	c.Pause("reminder")
	c.ClaimReady(10)
	if text := explain(); !strings.Contains(text, "is set aside until the job is resumed") {
		t.Errorf("paused: %s", text)
	}
	_, err = c.Jobs.ResumeJob(t.Context(), c.Tenant, "reminder", "")
	Must(t, err)
	c.FitDated()
	a := c.One(c.ClaimReady(10))
	c.Finish(Succeeded(a))
	if text := explain(); a.RunID == pending.Run ||
		!strings.Contains(text, "the status of its run "+a.RunID.String()+" is succeeded") {
		t.Errorf("ended: %s", text)
	}
}

// Writers replace keys with growing sequences, and move them, while two replicas claim. Of each key the last write is
// claimed, and no run is claimed twice.
func TestNoMoveOfADatedRunIsLostToAClaim(t *testing.T) {
	c := NewReplica(t)
	c.Create("sync", Never)
	writers, moves := 4, 20
	if !testing.Short() {
		writers, moves = 8, 1250
	}
	type seen struct {
		Key      string
		Sequence int64
		run      uuid.UUID
	}
	var mu sync.Mutex
	var all []seen
	var writing, claiming sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		writing.Go(func() {
			for n := range moves {
				key, sequence := fmt.Sprintf("%d-%d", w, n%3), int64(n)
				if _, err := c.For(c.Tenant).TriggerAt(t.Context(), "sync", jobs.DateRequest{
					Key: key, OnConflict: jobs.KeyReplace, Sequence: &sequence,
					Delay:          time.Duration(n%4) * time.Millisecond,
					TriggerRequest: jobs.TriggerRequest{Body: fmt.Appendf(nil, `{"key": %q, "sequence": %d}`, key, n)},
				}); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Jobs.MoveDated(t.Context(), c.Tenant, "sync", jobs.DateRequest{
					Key: key, Delay: time.Duration(n%3) * time.Millisecond,
				}); err != nil && !errors.Is(err, store.ErrNotFound) { // it was claimed
					t.Error(err)
					return
				}
			}
		})
	}
	claim := func(c Replica) (n int) {
		b := c.ClaimReady(20)
		for _, a := range b.Runs {
			s := seen{run: a.RunID}
			Must(t, json.Unmarshal(a.Body, &s))
			mu.Lock()
			all = append(all, s)
			mu.Unlock()
			c.Finish(Succeeded(a))
		}
		return len(b.Runs)
	}
	for range 2 {
		replica := AsReplica(c.Fixture)
		claiming.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					claim(replica)
				}
			}
		})
	}
	writing.Wait()
	close(done)
	claiming.Wait()
	c.Exec(`UPDATE punctual.dated SET due_at = now()`)
	for claim(c) > 0 {
	}
	latest, runs := map[string]int64{}, map[uuid.UUID]bool{}
	for _, s := range all {
		if runs[s.run] {
			t.Errorf("run %s was claimed twice", s.run)
		}
		runs[s.run] = true
		latest[s.Key] = max(latest[s.Key], s.Sequence)
	}
	for w := range writers {
		for k := range 3 {
			key, last := fmt.Sprintf("%d-%d", w, k), int64(moves-1-(moves-1-k)%3)
			if latest[key] != last {
				t.Errorf("key %s: the last write %d was not claimed, but %d", key, last, latest[key])
			}
		}
	}
}
