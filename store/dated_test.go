package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/forecast"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// date writes a dated run of a job.
func (c crud) date(job string, r jobs.DateRequest) jobs.Written {
	c.t.Helper()
	out, err := c.For(c.tenant).TriggerAt(c.t.Context(), job, r)
	must(c.t, err)
	return out
}

func TestADatedRunHasNoRowBeforeItsClaim(t *testing.T) {
	c := newClaimer(t)
	job := c.create("reminder", never)
	later := c.date("reminder", jobs.DateRequest{Delay: time.Hour, Key: "later"})
	body, headers := []byte(`{"order": 42}`), map[string]string{"X-A": "b"}
	now := c.date("reminder", jobs.DateRequest{
		Key: "now", TriggerRequest: jobs.TriggerRequest{Body: body, Headers: headers}, ExpiresAfter: time.Minute,
	})
	c.wantCount(0, "runs", `SELECT count(*) FROM punctual.runs`)
	a := c.one(c.claimReady(10))
	if a.RunID != now.Run || a.Job.ID != job.ID || string(a.Body) != string(body) || a.Headers["X-A"] != "b" ||
		a.Trigger != domain.TriggerManual || !a.DueAt.Equal(now.DueAt) || a.ExpiresAfter != time.Minute || a.Late {
		t.Errorf("%+v", a)
	}
	if expiry, expires := a.Expiry(); !expires || !expiry.Equal(now.DueAt.Add(time.Minute)) {
		t.Errorf("it expires: %t, at %s", expires, expiry)
	}
	c.finish(succeeded(a))
	uuids := uuid.NewString() // a key of the caller's is kept with the run, whatever it looks like
	c.date("reminder", jobs.DateRequest{Key: uuids})
	none := c.date("reminder", jobs.DateRequest{})
	if none.Key != none.Run.String() {
		t.Errorf("without a key: %+v", none)
	}
	c.claimReady(10)
	c.wantCount(2, "runs with keys", `SELECT count(*) FROM punctual.run_data WHERE key IN ('now', $1)`, uuids)
	c.wantCount(2, "runs with data", `SELECT count(*) FROM punctual.run_data`)
	if _, err := c.Jobs.GetDated(t.Context(), c.tenant, "reminder", "now"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a claimed run is still pending: %v", err)
	}
	if d, err := c.Jobs.GetDated(t.Context(), c.tenant, "reminder", "later"); err != nil || d.Run != later.Run {
		t.Errorf("%+v, %v", d, err)
	}
	c.wantCount(1, "dated runs", `SELECT count(*) FROM punctual.dated`)
}

func TestAKeyIsFreeOnceItsRunIsClaimed(t *testing.T) {
	c := newClaimer(t)
	c.create("sync", never)
	first := c.date("sync", jobs.DateRequest{Key: "cart"})
	if again := c.date("sync", jobs.DateRequest{Key: "cart", Delay: time.Hour}); again.Created || again.Replaced ||
		again.Run != first.Run || !again.DueAt.Equal(first.DueAt) {
		t.Errorf("kept: %+v", again)
	}
	moved := c.date("sync", jobs.DateRequest{Key: "cart", Delay: time.Hour, OnConflict: jobs.KeyReplace})
	if moved.Created || !moved.Replaced || moved.Run == first.Run {
		t.Errorf("replaced: %+v", moved)
	}
	if got := c.claimReady(10); len(got.Runs) != 0 {
		t.Errorf("a run that was put off is claimed")
	}
	var refusal *domain.Refusal
	if _, err := c.For(c.tenant).TriggerAt(t.Context(), "sync", jobs.DateRequest{
		Key: "cart", OnConflict: jobs.KeyError,
	}); !errors.As(err, &refusal) || refusal.Code != "key_pending" {
		t.Errorf("on_conflict error: %v", err)
	}
	c.exec(`UPDATE punctual.dated SET created_at = created_at + interval '1 hour'`) // the clock is set back
	back := c.date("sync", jobs.DateRequest{Key: "cart", OnConflict: jobs.KeyReplace})
	if back.Created || !back.Replaced {
		t.Errorf("replaced after the clock was set back: %+v", back)
	}
	a := c.one(c.claimReady(10))
	next := c.date("sync", jobs.DateRequest{Key: "cart"}) // while that is in flight
	if !next.Created || next.Run == a.RunID {
		t.Errorf("while a run is in flight: %+v", next)
	}
}

func TestAReplacementNeedsAHigherSequenceAndObeysTheBound(t *testing.T) {
	c := newClaimer(t)
	c.create("sync", never)
	begin := c.date("sync", jobs.DateRequest{
		Key: "k", Delay: time.Minute, Sequence: new(int64(5)), NotAfter: time.Hour, OnConflict: jobs.KeyReplace,
	})
	for _, step := range []struct {
		sequence *int64
		replaces bool
	}{{new(int64(4)), false}, {new(int64(5)), false}, {new(int64(6)), true}, {nil, true}, {new(int64(6)), false}} {
		out := c.date("sync", jobs.DateRequest{
			Key: "k", Delay: 30 * time.Minute, Sequence: step.sequence, OnConflict: jobs.KeyReplace,
		})
		if out.Replaced != step.replaces {
			t.Errorf("sequence %v: %+v", step.sequence, out)
		}
	}
	last := c.date("sync", jobs.DateRequest{Key: "k", Delay: 48 * time.Hour, OnConflict: jobs.KeyReplace})
	if bound := last.DueAt.Sub(begin.DueAt); bound < 58*time.Minute || bound > 60*time.Minute {
		t.Errorf("a run that is put off for ever is due %s after its first instant", bound)
	}
}

func TestDatedRunsOfAPausedJobWaitForItsResume(t *testing.T) {
	c := newClaimer(t)
	c.create("reminder", never)
	c.pause("reminder")
	for range 3 {
		c.date("reminder", jobs.DateRequest{})
	}
	if b := c.claimReady(10); len(b.Runs) != 0 || b.Settled != 3 {
		t.Errorf("%d runs of a paused job start, %d were settled", len(b.Runs), b.Settled)
	}
	if b := c.claimReady(10); b.Settled != 0 {
		t.Errorf("a claim meets what was set aside: %d", b.Settled)
	}
	_, err := c.Jobs.ResumeJob(t.Context(), c.tenant, "reminder", "")
	must(t, err)
	c.fitDated()
	if b := c.claimReady(10); len(b.Runs) != 3 {
		t.Errorf("%d runs start after the resume", len(b.Runs))
	}
}

// fitDated lets the chore do all of its work.
func (c crud) fitDated() {
	c.t.Helper()
	for left := true; left; {
		var err error
		_, left, err = c.Jobs.FitDated(c.t.Context())
		must(c.t, err)
	}
	c.wantCount(0, "work on dated runs", `SELECT count(*) FROM punctual.dated_work`)
}

func TestDatedRunsOfADeletedJobBecomeOneSkip(t *testing.T) {
	c := newClaimer(t)
	job := c.create("reminder", never)
	for n := range 3 {
		c.date("reminder", jobs.DateRequest{Delay: time.Duration(n) * time.Hour})
	}
	must(t, c.Jobs.DeleteJob(t.Context(), c.tenant, "reminder", nil, false))
	c.fitDated()
	c.wantCount(0, "dated runs", `SELECT count(*) FROM punctual.dated`)
	c.wantCount(1, "skips", `SELECT count(*) FROM punctual.runs
		WHERE job_id = $1 AND status = 'skipped' AND reason = 'job_deleted' AND skipped_count = 3`, job.ID)
}

func TestADatedRunWaitsInTheQueueThatItsJobHasNow(t *testing.T) {
	c := newClaimer(t)
	c.create("reminder", never)
	c.date("reminder", jobs.DateRequest{})
	c.edit("reminder", func(d *domain.Definition) { d.Priority = domain.PriorityHigh })
	c.fitDated()
	c.wantCount(1, "dated runs of high priority", `SELECT count(*) FROM punctual.dated WHERE lane = $1`, c.queue*4)
}

func TestADatedRunThatIsTooLateIsMissed(t *testing.T) {
	for policy, want := range map[domain.MissedPolicy]string{
		domain.MissedSkip: "skipped missed", domain.MissedFireOnce: "running", domain.MissedFireAll: "running",
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := newClaimer(t)
			c.create("reminder", never, tolerating(10*time.Second), missed(policy))
			run := c.date("reminder", jobs.DateRequest{At: new(c.now().Add(-30 * time.Second))}).Run
			b := c.claimReady(10)
			if got := c.is(run); got != want || (len(b.Runs) == 1) != (want == "running") {
				t.Errorf("it is %s", got)
			}
			for _, a := range b.Runs {
				if !a.Late {
					t.Error("the replica is not told that the run is late")
				}
			}
			c.wantCount(map[bool]int{true: 0, false: 1}[want == "skipped missed"], "late runs",
				`SELECT count(*) FROM punctual.runs WHERE late AND id = $1`, run)
		})
	}
}

func TestATenantHasNoMorePendingRunsThanItMay(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never)
	c.exec(`UPDATE punctual.tenants SET max_pending_runs = 2 WHERE id = $1`, c.tenant)
	for _, key := range []string{"a", "b"} {
		c.date("job", jobs.DateRequest{Key: key})
	}
	var refusal *domain.Refusal
	if _, err := c.For(c.tenant).TriggerAt(t.Context(), "job", jobs.DateRequest{Key: "c"}); !errors.As(err, &refusal) ||
		refusal.Code != "limit" || !strings.Contains(refusal.Reason, "max_pending_runs") {
		t.Errorf("one more: %v", err)
	}
	c.date("job", jobs.DateRequest{Key: "a", OnConflict: jobs.KeyReplace})
	if b := c.claimReady(1); len(b.Runs) != 1 {
		t.Fatalf("%d runs", len(b.Runs))
	}
	c.date("job", jobs.DateRequest{Key: "c"})
	c.pause("job")
	c.claimReady(10) // sets them aside
	if _, err := c.For(c.tenant).TriggerAt(t.Context(), "job", jobs.DateRequest{Key: "d"}); !errors.As(err, &refusal) {
		t.Errorf("one more while two are set aside: %v", err)
	}
}

// So that the tick loop wakes for them, shares its worker slots fairly, and stands by them in the depths of queues.
func TestTheTickLoopSeesDatedRuns(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never)
	next := func() time.Time {
		u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{domain.WorkReady: {c.queue}}, false)
		must(t, err)
		return u.Ready
	}
	if at := next(); !at.IsZero() {
		t.Errorf("without any, the next is due at %s", at)
	}
	due := c.now().Add(time.Minute).Truncate(time.Millisecond)
	c.date("job", jobs.DateRequest{At: &due, Key: "k"})
	if at := next(); !at.Equal(due) {
		t.Errorf("the next is due at %s, not %s", at, due)
	}
	c.date("job", jobs.DateRequest{Key: "k", OnConflict: jobs.KeyReplace})
	found, err := c.Claims.Contenders(t.Context(), domain.WorkReady, []int16{c.queue})
	must(t, err)
	if len(found) != 1 || found[0].Tenant != c.tenant {
		t.Errorf("contenders: %+v", found)
	}
	queues, _, err := c.Fleet.QueueDepths(t.Context(), c.tenant)
	must(t, err)
	waiting := 0
	for _, q := range queues {
		waiting += q.DueRuns
	}
	if waiting != 1 {
		t.Errorf("%d due runs", waiting)
	}
}

func TestDatedRunsOverlapAsTheirJobAllows(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, forbid)
	var ids []uuid.UUID
	for range 3 {
		ids = append(ids, c.date("job", jobs.DateRequest{}).Run)
	}
	a := c.one(c.claimReady(10))
	for _, id := range ids {
		if got := c.is(id); id != a.RunID && got != "skipped overlap" {
			t.Errorf("a run beside it is %s", got)
		}
	}
}

func TestADatedRunThatDoesNotStartWaitsAsOthersDo(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, overlapping(domain.PolicyWait))
	for range 2 {
		c.date("job", jobs.DateRequest{})
	}
	first := c.one(c.claimReady(10))
	c.wantCount(1, "runs in ready", `SELECT count(*) FROM punctual.ready`)
	c.finish(succeeded(first))
	if second := c.one(c.claimReady(10)); second.RunID == first.RunID {
		t.Error("the same run starts twice")
	}
	c.wantCount(0, "runs in ready", `SELECT count(*) FROM punctual.ready`)
}

// The chore has not moved the run yet.
func TestAClaimLeavesADatedRunOfAnotherQueue(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never)
	run := c.date("job", jobs.DateRequest{}).Run
	c.exec(`UPDATE punctual.schedules SET lane = lane + 4`)
	if b := c.claimReady(10); len(b.Runs) != 0 || c.is(run) != "pending" {
		t.Errorf("%d runs start; it is %s", len(b.Runs), c.is(run))
	}
	c.wantCount(1, "runs in its queue", `SELECT count(*) FROM punctual.ready WHERE lane = $1`, (c.queue+1)*4+1)
}

func TestADatedRunIsListedUntilItIsCancelled(t *testing.T) {
	c := newClaimer(t)
	c.create("reminder", never)
	for _, key := range []string{"c", "a", "b"} {
		c.date("reminder", jobs.DateRequest{Key: key, Delay: map[string]time.Duration{
			"a": time.Hour, "b": 2 * time.Hour, "c": 3 * time.Hour,
		}[key]})
	}
	list := func(r jobs.DatedRange) (keys string) {
		for {
			page, cursor, err := c.Jobs.ListDated(t.Context(), c.tenant, "reminder", r)
			must(t, err)
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
	from, to := c.now().Add(90*time.Minute), c.now().Add(150*time.Minute)
	if got := list(jobs.DatedRange{From: &from, To: &to}); got != "b" {
		t.Errorf("in between: %s", got)
	}
	_, err := c.Jobs.CancelDated(t.Context(), c.tenant, "reminder", "b", false)
	must(t, err)
	if _, err := c.Jobs.CancelDated(t.Context(), c.tenant, "reminder", "b", false); !errors.Is(err, ErrNotFound) {
		t.Errorf("cancelled twice: %v", err)
	}
	if got := list(jobs.DatedRange{}); got != "ac" {
		t.Errorf("after the cancel: %s", got)
	}
}

// A dated run has no row in runs, and is found by the id that it will have all the same.
func TestADatedRunIsReadAndCancelledByItsID(t *testing.T) {
	c := newClaimer(t)
	job := c.create("reminder", never)
	read := func(id uuid.UUID) (runs.Run, error) { return c.Runs.GetRun(t.Context(), c.tenant, id) }
	d := c.date("reminder", jobs.DateRequest{
		Key: "k", Delay: time.Hour, TriggerRequest: jobs.TriggerRequest{Body: []byte(`"own"`), Headers: map[string]string{"X-A": "b"}},
	})
	r, err := read(d.Run)
	must(t, err)
	if r.JobID != job.ID || r.Job != "reminder" || r.Status != domain.StatusPending || r.Trigger != domain.TriggerManual ||
		*r.Key != "k" || !r.DueAt.Equal(d.DueAt) || r.MaxAttempts != domain.DefaultMaxAttempts || r.TriggeredBy == nil ||
		string(r.Sent.Body) != `"own"` || r.Sent.Headers["X-A"] != "b" || r.WaitingFor != nil {
		t.Errorf("%+v", r)
	}
	for id, tenant := range map[uuid.UUID]int32{d.Run: c.tenant + 1, uuid.New(): c.tenant} {
		if _, err := c.Runs.GetRun(t.Context(), tenant, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("another tenant's, or another id: %v", err)
		}
		if _, err := c.Runs.CancelRun(t.Context(), tenant, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("another tenant's, or another id: %v", err)
		}
	}
	if _, err := c.For(c.tenant).RerunRun(t.Context(), d.Run, jobs.RerunRequest{}); !errors.Is(err, ErrState) {
		t.Errorf("run again: %v", err)
	}
	got, err := c.Runs.CancelRun(t.Context(), c.tenant, d.Run)
	if err != nil || got.Status != domain.StatusCancelled || got.FinishedAt == nil {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	if _, err := read(d.Run); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the cancel: %v", err)
	}
	c.wantCount(1, "cancels in the audit log", `SELECT count(*) FROM punctual.audit_log
		WHERE action = 'run.cancel' AND resource_id = $1 AND job_id = $2 AND before ->> 'key' = 'k'`, d.Run, job.ID)

	now := c.date("reminder", jobs.DateRequest{Key: "now"})
	c.pause("reminder")
	for range 2 { // before a claim has set it aside, and then
		if r, err := read(now.Run); err != nil || r.WaitingFor == nil || r.WaitingFor.What != "paused" {
			t.Errorf("of a paused job: %+v, %v", r.WaitingFor, err)
		}
		c.claimReady(10)
	}
	_, err = c.Jobs.ResumeJob(t.Context(), c.tenant, "reminder", "")
	must(t, err)
	c.fitDated()
	c.one(c.claimReady(10))
	if r, err := read(now.Run); err != nil || r.Status != domain.StatusRunning || *r.Key != "now" {
		t.Errorf("claimed: %+v, %v", r, err)
	}
	c.date("reminder", jobs.DateRequest{Key: "late", Delay: time.Hour})
	must(t, c.Jobs.DeleteJob(t.Context(), c.tenant, "reminder", nil, false))
	if _, err := read(uuid.MustParse(c.text(`SELECT run_id FROM punctual.dated`))); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a deleted job: %v", err)
	}
}

// A move changes the instant, the id and the sequence, and nothing else.
func TestAMoveLeavesAllButTheInstant(t *testing.T) {
	c := newClaimer(t)
	c.create("reminder", never)
	rest := func() string {
		return c.text(`SELECT (to_jsonb(d) - '{run_id,due_at,sequence}'::text[])::text FROM punctual.dated d`)
	}
	first := c.date("reminder", jobs.DateRequest{
		Key: "k", Delay: time.Hour, Sequence: new(int64(1)), ExpiresAfter: time.Minute, NotAfter: 2 * time.Hour,
		TriggerRequest: jobs.TriggerRequest{Body: []byte(`1`), Headers: map[string]string{"X-A": "b"}},
	})
	before := rest()
	move := func(r jobs.DateRequest) (jobs.Written, error) {
		r.Key = "k"
		return c.Jobs.MoveDated(t.Context(), c.tenant, "reminder", r)
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
		must(t, err)
		if off := w.DueAt.Sub(first.DueAt.Add(step.due)).Abs(); w.Replaced != step.moves || off > time.Minute ||
			w.Run.String() != c.text(`SELECT run_id FROM punctual.dated`) || domain.IDTime(w.Run) != w.DueAt.Truncate(time.Millisecond) {
			t.Errorf("%+v: %+v", step, w)
		}
		if after := rest(); after != before {
			t.Errorf("%+v: %s has become %s", step, before, after)
		}
	}
	c.wantCount(3, "moves in the audit log", `SELECT count(*) FROM punctual.audit_log WHERE action = 'run.move'
		AND before ->> 'key' = 'k' AND before ->> 'due_at' <> after ->> 'due_at'`)
	if a := c.one(c.claimReady(10)); string(a.Body) != "1" || a.Headers["X-A"] != "b" || a.ExpiresAfter != time.Minute {
		t.Errorf("%+v", a)
	}
	if _, err := move(jobs.DateRequest{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("once it is claimed: %v", err)
	}
}

func TestExplainAndForecastKnowDatedRuns(t *testing.T) {
	c := newClaimer(t)
	job := c.create("reminder", never)
	due := c.now().Add(time.Hour).Truncate(time.Second)
	pending := c.date("reminder", jobs.DateRequest{Key: "cart-42", At: &due})
	explain := func() string {
		e, err := c.History.ExplainJob(t.Context(), c.tenant, "reminder", func(*time.Location) (time.Time, error) {
			return due, nil
		})
		must(t, err)
		return e.Text
	}
	if text := explain(); !strings.Contains(text, `A dated run with the key "cart-42" is due at `+pg.Stamp(due)) {
		t.Errorf("pending: %s", text)
	}
	f, err := c.Jobs.Forecast(t.Context(), c.tenant, forecast.Window{
		From: due.Add(-90 * time.Minute), To: due.Add(time.Hour), Step: time.Hour,
	})
	must(t, err)
	if f.Total != 1 || f.Slots[1] != 1 || len(f.Busiest) != 1 {
		t.Errorf("forecast: %+v", f.Forecast)
	}
	c.wantCount(1, "upcoming", `SELECT count(*) FROM punctual.upcoming WHERE job_id = $1 AND key = 'cart-42'`, job.ID)
	due = c.now().Add(-time.Minute)
	c.exec(`UPDATE punctual.dated SET due_at = $1, run_id = punctual.run_id_at($1)`, due)
	if text := explain(); !strings.Contains(text, "has been due since") {
		t.Errorf("due: %s", text)
	}
	c.wantCount(1, "overdue", `SELECT count(*) FROM punctual.overdue WHERE job_id = $1 AND what = 'dated'`, job.ID)
	if o := c.overview().Overdue; o.Runs != 1 || o.Oldest == nil || o.Oldest.Run != nil {
		t.Errorf("overdue: %+v", o)
	}
	c.pause("reminder")
	c.claimReady(10)
	if text := explain(); !strings.Contains(text, "is set aside until the job is resumed") {
		t.Errorf("paused: %s", text)
	}
	_, err = c.Jobs.ResumeJob(t.Context(), c.tenant, "reminder", "")
	must(t, err)
	c.fitDated()
	a := c.one(c.claimReady(10))
	c.finish(succeeded(a))
	if text := explain(); a.RunID == pending.Run ||
		!strings.Contains(text, "the status of its run "+a.RunID.String()+" is succeeded") {
		t.Errorf("ended: %s", text)
	}
}

// Writers replace keys with growing sequences, and move them, while two replicas claim. Of each key the last write is
// claimed, and no run is claimed twice.
func TestNoMoveOfADatedRunIsLostToAClaim(t *testing.T) {
	c := newClaimer(t)
	c.create("sync", never)
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
				if _, err := c.For(c.tenant).TriggerAt(t.Context(), "sync", jobs.DateRequest{
					Key: key, OnConflict: jobs.KeyReplace, Sequence: &sequence,
					Delay:          time.Duration(n%4) * time.Millisecond,
					TriggerRequest: jobs.TriggerRequest{Body: fmt.Appendf(nil, `{"key": %q, "sequence": %d}`, key, n)},
				}); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Jobs.MoveDated(t.Context(), c.tenant, "sync", jobs.DateRequest{
					Key: key, Delay: time.Duration(n%3) * time.Millisecond,
				}); err != nil && !errors.Is(err, ErrNotFound) { // it was claimed
					t.Error(err)
					return
				}
			}
		})
	}
	claim := func(c claimer) (n int) {
		b := c.claimReady(20)
		for _, a := range b.Runs {
			s := seen{run: a.RunID}
			must(t, json.Unmarshal(a.Body, &s))
			mu.Lock()
			all = append(all, s)
			mu.Unlock()
			c.finish(succeeded(a))
		}
		return len(b.Runs)
	}
	for range 2 {
		replica := asClaimer(c.crud)
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
	c.exec(`UPDATE punctual.dated SET due_at = now()`)
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
