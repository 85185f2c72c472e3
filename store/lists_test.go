package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

func TestListJobsSelects(t *testing.T) {
	c := NewFixture(t)
	if _, err := c.Replicas.EnsureQueues(t.Context(), []string{"slow"}); err != nil {
		t.Fatal(err)
	}
	c.Create("a_1", Labelled("team", "x"))
	c.Create("ab1", Labelled("team", "y"), Described("Invoices 100% done"))
	c.Create("b", func(d *jobspec.Definition) { d.Queue = "slow" })
	c.Pause("b")
	c.Complete(c.Create("c", Delay(time.Hour)).ID)
	c.Create("gone")
	c.DeleteJob("gone")
	for _, test := range []struct {
		name   string
		filter jobs.Filter
		want   []string
	}{
		{"all that are not deleted", jobs.Filter{}, []string{"a_1", "ab1", "b", "c"}},
		{"by state", jobs.Filter{State: domain.JobPaused}, []string{"b"}},
		{"but never deleted ones", jobs.Filter{State: domain.JobDeleted}, nil},
		{"by queue", jobs.Filter{Queue: "slow"}, []string{"b"}},
		{"by a queue that is not there", jobs.Filter{Queue: "x"}, nil},
		{"by label", jobs.Filter{Labels: map[string]string{"team": "x"}}, []string{"a_1"}},
		{"by all labels", jobs.Filter{Labels: map[string]string{"team": "x", "more": ""}}, nil},
		{"by the start of the name, to the letter", jobs.Filter{NamePrefix: "a_"}, []string{"a_1"}},
		{"by part of the description in any case", jobs.Filter{Query: "iNVOICES 100%"}, []string{"ab1"}},
		{"by part of the name", jobs.Filter{Query: "B"}, []string{"ab1", "b"}},
	} {
		if got := c.JobNames(test.filter); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestPagesAreStableUnderInserts(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	job := c.Create("j0")
	for i := range 4 {
		c.Create(fmt.Sprintf("j%d", i+1))
	}
	for range 5 {
		c.Trigger(job.ID.String())
	}
	var names []string
	var listed []uuid.UUID
	page := pg.Page{Limit: 2}
	for n := 0; ; n++ {
		jobs, next, err := c.Jobs.ListJobs(ctx, c.Tenant, jobs.Filter{Page: page})
		Must(t, err)
		for _, j := range jobs {
			names = append(names, j.Definition.Name)
		}
		if next == "" {
			break
		}
		c.Create(fmt.Sprintf("new%d", n))
		page.Cursor = next
	}
	if !slices.Equal(names, []string{"j4", "j3", "j2", "j1", "j0"}) {
		t.Errorf("jobs %q", names)
	}
	jobCursor := page.Cursor
	page.Cursor = ""
	for {
		got, next, err := c.Runs.ListRuns(ctx, c.Tenant, runs.Filter{Job: "j0", Page: page})
		Must(t, err)
		for _, r := range got {
			listed = append(listed, r.ID)
		}
		if next == "" {
			break
		}
		c.Trigger("j0")
		page.Cursor = next
	}
	if len(listed) != 5 || !slices.IsSortedFunc(listed, func(a, b uuid.UUID) int { return pg.CompareIDs(b, a) }) {
		t.Errorf("runs %v", listed)
	}
	for _, cursor := range []string{"x", "!", "AAAA", jobCursor} {
		var bad *pg.CursorError
		if _, _, err := c.Runs.ListRuns(ctx, c.Tenant, runs.Filter{Page: pg.Page{Cursor: cursor}}); !errors.As(err, &bad) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

func TestListRunsSelects(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	a, b := c.Create("a", Labelled("team", "x")), c.Create("b", Delay(time.Hour))
	c.Pause("a")
	first := c.SlotAgo(a.ID, 3*time.Hour)
	last := c.Resumed("a").LastRun.Skipped.Last
	c.Pause("b")
	late := c.SlotAgo(b.ID, time.Hour)
	c.Resumed("b")
	c.Trigger("b")
	gone := c.Create("gone")
	c.Trigger("gone")
	c.DeleteJob("gone")
	yes := true
	before, mid, inside, end := first.Add(-time.Minute), late.Add(time.Second),
		first.Add(time.Minute), first.Add(2*time.Minute)
	after := last.Add(time.Second)
	for _, test := range []struct {
		name   string
		filter runs.Filter
		want   []string
	}{
		{"all", runs.Filter{}, []string{"a skipped", "b pending", "b pending", "gone cancelled"}},
		{"of a job by name", runs.Filter{Job: "a"}, []string{"a skipped"}},
		{"of a job by id", runs.Filter{Job: b.ID.String()}, []string{"b pending", "b pending"}},
		{"of a deleted job only by job_id", runs.Filter{Job: gone.ID.String()}, nil},
		{"of a deleted job by job_id", runs.Filter{JobID: &gone.ID}, []string{"gone cancelled"}},
		{"by status", runs.Filter{Status: domain.StatusSkipped}, []string{"a skipped"}},
		{"by reason", runs.Filter{Reason: domain.ReasonJobDeleted}, []string{"gone cancelled"}},
		{"by trigger", runs.Filter{Trigger: domain.TriggerManual}, []string{"b pending", "gone cancelled"}},
		{"late ones", runs.Filter{Late: &yes}, []string{"b pending"}},
		{"by label", runs.Filter{Labels: map[string]string{"team": "x"}}, []string{"a skipped"}},
		{"before the first", runs.Filter{To: &before}, nil},
		{"a range that a skip covers", runs.Filter{From: &inside, To: &end}, []string{"a skipped"}},
		{"from a slot on, inclusive", runs.Filter{From: &late, To: &mid, Job: "b"}, []string{"b pending"}},
		{"up to a slot, exclusive", runs.Filter{To: &late, Job: "b"}, nil},
		{"after a skip", runs.Filter{From: &after, Job: "a"}, nil},
	} {
		runs, _, err := c.Runs.ListRuns(ctx, c.Tenant, test.filter)
		Must(t, err)
		var got []string
		for _, r := range runs {
			got = append(got, r.Job+" "+string(r.Status))
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if runs, _, err := c.Runs.ListRuns(ctx, c.Tenant+1, runs.Filter{}); err != nil || len(runs) > 0 {
		t.Errorf("another tenant sees %d runs (%v)", len(runs), err)
	}
	if _, _, err := c.Runs.ListRuns(ctx, c.Tenant, runs.Filter{Job: "nothing"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a name that is not there: %v", err)
	}
}

func TestGetRunListsItsAttemptsTheSuccessfulOneToo(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	c.Create("a")
	run := c.Trigger("a")
	c.Claimed(run)
	c.Exec(`INSERT INTO punctual.attempts (run_id, fence, number, http_status, started_at, finished_at, outcome,
			reason, error, response)
		VALUES ($1, 1, 1, 503, now(), now(), 'failed', 'http_5xx', 'busy', 'later')`, run.ID)
	c.Exec(`UPDATE punctual.runs SET status = 'succeeded', attempt = 2, http_status = 204, finished_at = now()
		WHERE id = $1`, run.ID)
	got := c.Run(run.ID)
	if len(got.Attempts) != 2 {
		t.Fatalf("%+v", got)
	}
	if a := got.Attempts[0]; a.Number != 1 || a.Outcome != domain.AttemptFailed || *a.HTTPStatus != 503 ||
		OrEmpty(a.Response) != "later" {
		t.Errorf("the first is %+v", a)
	}
	if a := got.Attempts[1]; a.Number != 2 || a.Outcome != domain.AttemptSucceeded || *a.HTTPStatus != 204 ||
		a.StartedAt.IsZero() {
		t.Errorf("the second is %+v", a)
	}
	_, err := c.Runs.GetRun(ctx, c.Tenant+1, run.ID)
	WantError(t, err, store.ErrNotFound)
}

func TestForgetCompletedJobs(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	for _, name := range []string{"old", "recent", "busy"} {
		job := c.Create(name, Delay(time.Hour))
		run := c.Trigger(name)
		if name != "busy" {
			c.Exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE id = $1`, run.ID)
		}
		c.Complete(job.ID)
	}
	c.Exec(`UPDATE punctual.completions SET look_at = now() - interval '1 day'
		FROM punctual.jobs j WHERE j.id = ANY (job_ids) AND j.name <> 'recent'`)
	for _, want := range []int{1, 0} {
		if n, _, err := c.Jobs.ForgetCompletedJobs(ctx); err != nil || n != want {
			t.Errorf("%d forgotten, %v", n, err)
		}
	}
	if got := c.JobNames(jobs.Filter{}); !slices.Equal(got, []string{"busy", "recent"}) {
		t.Errorf("left are %q", got)
	}
	runs, _, err := c.Runs.ListRuns(ctx, c.Tenant, runs.Filter{Status: domain.StatusSucceeded})
	if err != nil || len(runs) != 2 || runs[1].Job != "old" {
		t.Errorf("its history: %+v, %v", runs, err)
	}
}

func TestEverythingWorksInEveryExecMode(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(t *testing.T, c Fixture) {
		ctx := t.Context()
		now := time.Now()
		if _, err := c.Replicas.EnsureQueues(ctx, []string{"q"}); err != nil {
			t.Fatal(err)
		}
		job := c.Create("a", Forbid, Labelled("x", "y"))
		c.SlotAgo(job.ID, time.Second)
		c.Edit("a", Every(2*time.Hour))
		c.Put(Definition("a", Delay(time.Hour)))
		if _, err := c.Jobs.PauseJob(ctx, c.Tenant, "a", "note", &now); err != nil {
			t.Error(err)
		}
		c.SlotAgo(job.ID, 50*time.Hour)
		if n := c.ResumeDue(); n != 1 {
			t.Errorf("%d resumed", n)
		}
		if _, err := c.CreateMany(jobs.ConflictReplace,
			Definition("b"), Definition("a", Every(time.Hour)), Definition("n", Never)); err != nil {
			t.Error(err)
		}
		_, _, err := c.Idempotent(ctx, c.Tenant, store.Idempotency{Key: "k"}, func(w store.Writer) (store.Answer, error) {
			_, err := w.TriggerJob(ctx, "b", jobs.TriggerRequest{Body: []byte(`{}`), Headers: map[string]string{"a": "b"}})
			return store.Answer{Status: 202, Body: []byte(`{}`)}, err
		})
		if err != nil {
			t.Error(err)
		}
		if _, replayed, err := c.Idempotent(ctx, c.Tenant, store.Idempotency{Key: "k"}, nil); err != nil || !replayed {
			t.Error(err)
		}
		yes := false
		runs, _, err := c.Runs.ListRuns(ctx, c.Tenant, runs.Filter{
			Status: domain.StatusPending, Trigger: domain.TriggerManual, Late: &yes, JobID: nil, Job: "b",
			From: &time.Time{}, To: new(now.Add(time.Hour)),
		})
		if err != nil || len(runs) != 1 {
			t.Errorf("%d runs, %v", len(runs), err)
		}
		if _, err := c.Runs.GetRun(ctx, c.Tenant, runs[0].ID); err != nil {
			t.Error(err)
		}
		c.JobNames(jobs.Filter{
			State: domain.JobActive, Queue: "default", Labels: map[string]string{"x": "y"}, NamePrefix: "a", Query: "a",
			Page: pg.Page{Limit: 1},
		})
		if err := c.Jobs.DeleteJob(ctx, c.Tenant, "a", nil, false); err != nil {
			t.Error(err)
		}
		if _, _, err := c.Jobs.ForgetCompletedJobs(ctx); err != nil {
			t.Error(err)
		}
		if _, _, err := c.ForgetOld(ctx, "idempotency_keys"); err != nil {
			t.Error(err)
		}
	})
}
