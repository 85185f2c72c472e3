// Package storetest gives the tests of the store's rooms a store on a database of their own, with short names for what
// they do to it: jobs and their definitions, claims and outcomes as of a replica, notices, plans of statements.
//
// Tests import it with a dot, so that a definition reads as a sentence:
//
//	c := NewReplica(t)
//	c.Create("j", Every(time.Minute), Forbid)
//	c.Finish(Succeeded(c.Begun("j")))
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/runs"
	"punctual/store/tenants"
)

// Fixture is a store with a database of its own, and with helpers for tests of jobs and runs.
type Fixture struct {
	*store.Store
	T      *testing.T
	Tenant int32
}

// NewFixture opens the store on a new database, and lets the test run beside others.
func NewFixture(t *testing.T) Fixture {
	t.Helper()
	t.Parallel()
	return NewFixtureOn(t, pgtest.DSN(t))
}

// EachExecMode runs a test in each of pgx's query exec modes. Some poolers need modes in which the server does not tell
// the types of parameters.
func EachExecMode(t *testing.T, test func(t *testing.T, c Fixture)) {
	for _, mode := range []string{"exec", "cache_describe", "describe_exec", "cache_statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, NewFixtureOn(t, pgtest.DSN(t)+"&default_query_exec_mode="+mode))
		})
	}
}

// NewFixtureOn opens the store on a database.
func NewFixtureOn(t *testing.T, dsn string) Fixture {
	t.Helper()
	return OpenFixture(t, store.Options{DatabaseURL: dsn, MaxConns: 8, Master: pgtest.Master(t)})
}

// OpenFixture opens the store for the tenant that comes with the schema.
func OpenFixture(t *testing.T, o store.Options) Fixture {
	t.Helper()
	return Fixture{Store: OpenStore(t, o), T: t, Tenant: 1}
}

// OpenStore opens the store until the end of the test.
func OpenStore(tb testing.TB, o store.Options) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), o)
	Must(tb, err)
	tb.Cleanup(s.Close)
	if o.Sealed {
		Must(tb, s.Secrets.OpenPayloads(tb.Context(), true))
	}
	return s
}

// Create creates a job.
func (c Fixture) Create(name string, options ...Option) jobs.Record {
	c.T.Helper()
	job, err := c.TryCreate(name, options...)
	if err != nil {
		c.T.Fatalf("creating %s: %v", name, err)
	}
	return job
}

// TryCreate is Create with its error.
func (c Fixture) TryCreate(name string, options ...Option) (jobs.Record, error) {
	return c.For(c.Tenant).CreateJob(c.T.Context(), jobs.NewJob{Definition: Definition(name, options...)})
}

// CreateMany creates jobs in one batch.
func (c Fixture) CreateMany(on jobs.OnConflict, definitions ...jobspec.Definition) ([]jobs.BatchItem, error) {
	return c.For(c.Tenant).CreateJobs(c.T.Context(), Batch(definitions...), on)
}

// Get reads a job.
func (c Fixture) Get(ref string) jobs.Record {
	c.T.Helper()
	job, err := c.Jobs.GetJob(c.T.Context(), c.Tenant, ref)
	Must(c.T, err)
	return job
}

// Put creates a job or replaces its definition, and says whether it was created.
func (c Fixture) Put(d jobspec.Definition) (jobs.Record, bool) {
	c.T.Helper()
	job, created, err := c.Jobs.PutJob(c.T.Context(), c.Tenant, d.Name, jobs.NewJob{Definition: d}, nil, false)
	Must(c.T, err)
	return job, created
}

// TryPut is Put with its error.
func (c Fixture) TryPut(d jobspec.Definition) (jobs.Record, error) {
	job, _, err := c.Jobs.PutJob(c.T.Context(), c.Tenant, d.Name, jobs.NewJob{Definition: d}, nil, false)
	return job, err
}

// Edit changes the definition of a job.
func (c Fixture) Edit(ref string, change Option) jobs.Record {
	c.T.Helper()
	job, err := c.TryEdit(ref, change)
	Must(c.T, err)
	return job
}

// TryEdit is Edit with its error.
func (c Fixture) TryEdit(ref string, change Option) (jobs.Record, error) {
	return c.Jobs.EditJob(c.T.Context(), c.Tenant, ref, nil, func(j jobs.Record) (jobs.NewJob, error) {
		change(&j.Definition)
		return jobs.NewJob{Definition: j.Definition}, nil
	})
}

// Run reads a run.
func (c Fixture) Run(id uuid.UUID) runs.Run {
	c.T.Helper()
	run, err := c.Runs.GetRun(c.T.Context(), c.Tenant, id)
	Must(c.T, err)
	return run
}

// NewTenant creates a tenant.
func (c Fixture) NewTenant(name string) tenants.Tenant {
	c.T.Helper()
	made, err := c.Tenants.CreateTenant(c.T.Context(), tenants.Tenant{Name: name, Weight: 1})
	Must(c.T, err)
	return made
}

// Must fails the test at once if there is an error.
func (c Fixture) Must(err error) {
	c.T.Helper()
	Must(c.T, err)
}

// Exec runs a statement.
func (c Fixture) Exec(sql string, args ...any) {
	c.T.Helper()
	if _, err := c.DB.Callers.Exec(c.T.Context(), sql, args...); err != nil {
		c.T.Fatalf("%s: %v", sql, err)
	}
}

// Before has Postgres do something before each write of a kind to a table, until undo is called.
func (c Fixture) Before(write, table, does string) (undo func()) {
	c.T.Helper()
	c.Exec(`CREATE FUNCTION punctual.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + does + ` RETURN NEW; END $$;
		CREATE TRIGGER meddle BEFORE ` + write + ` ON punctual.` + table + ` FOR EACH ROW EXECUTE FUNCTION punctual.meddle()`)
	return func() { c.Exec(`DROP TRIGGER meddle ON punctual.` + table) }
}

// SlotAgo makes a slot that was due the given time ago the job's next slot, and returns it.
func (c Fixture) SlotAgo(job uuid.UUID, ago time.Duration) time.Time {
	c.T.Helper()
	now := c.Clock()
	slot := now.Add(-ago).Truncate(time.Second)
	if ago >= time.Hour { // for an hourly job, one of its own slots
		next, _ := c.Next(job)
		slot = next.Add(-next.Sub(slot).Truncate(time.Hour))
		if slot.After(now.Add(-ago)) {
			slot = slot.Add(-time.Hour)
		}
	}
	c.SetNext(job, slot)
	return slot
}

// Complete writes what the claim of a job's last slot writes about the job's schedule.
func (c Fixture) Complete(job uuid.UUID) {
	c.T.Helper()
	c.Exec(`WITH gone AS (
			DELETE FROM punctual.schedules s USING punctual.jobs j
			WHERE s.job_id = $1 AND j.id = $1 AND j.kind IN ('at', 'delay') RETURNING s.job_id, s.version)
		INSERT INTO punctual.completions (look_at, job_ids, versions)
		SELECT now() + interval '7 days', ARRAY[job_id], ARRAY[version] FROM gone`, job)
	c.Exec(`UPDATE punctual.schedules
		SET scheduled_for = NULL, next_run_at = NULL, enabled = false, completed_at = now()
		WHERE job_id = $1`, job)
}

// HistoryOf describes the job's runs, oldest first: trigger, status, reason, "late", and how many slots a skip stands
// for.
func (c Fixture) HistoryOf(job uuid.UUID) []string {
	c.T.Helper()
	runs, _, err := c.Runs.ListRuns(c.T.Context(), c.Tenant, runs.Filter{JobID: &job})
	Must(c.T, err)
	var lines []string
	for _, r := range runs {
		line := fmt.Sprintf("%s %s", r.Trigger, r.Status)
		if r.Reason != nil {
			line += " " + string(*r.Reason)
		}
		if r.Late {
			line += " late"
		}
		if r.Skipped != nil && r.Skipped.Count != nil {
			line += fmt.Sprintf(" x%d", *r.Skipped.Count)
		}
		lines = append([]string{line}, lines...)
	}
	return lines
}

// WantHistory compares the runs and skips of a job, in any order.
func (c Fixture) WantHistory(job uuid.UUID, want ...string) {
	c.T.Helper()
	got := c.HistoryOf(job)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		c.T.Errorf("-want +got:\n%s", diff)
	}
}

// Clock is the time by the database's clock.
func (c Fixture) Clock() time.Time {
	c.T.Helper()
	now, err := c.Now(c.T.Context())
	Must(c.T, err)
	return now
}

// Next returns a job's next slot and the time at which it is due.
func (c Fixture) Next(job uuid.UUID) (slot, due time.Time) {
	c.T.Helper()
	if err := c.DB.Callers.QueryRow(c.T.Context(),
		`SELECT scheduled_for, next_run_at FROM punctual.schedules WHERE job_id = $1`, job).Scan(&slot, &due); err != nil {
		c.T.Fatal(err)
	}
	return slot.UTC(), due.UTC()
}

// SetNext makes a slot, which is due at its instant, a job's next one.
func (c Fixture) SetNext(job uuid.UUID, slot time.Time) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.schedules SET scheduled_for = $2, next_run_at = $2 WHERE job_id = $1`, job, slot)
}

// Ready counts the rows of a job in ready.
func (c Fixture) Ready(job uuid.UUID) int {
	return c.Count(`SELECT count(*) FROM punctual.ready WHERE job_id = $1`, job)
}

// Chore does a batch of one of the store's chores.
func (c Fixture) Chore(ctx context.Context, name string) (left bool, err error) {
	for _, chore := range c.Chores() {
		if chore.Name == name {
			_, left, err = chore.Batch(ctx)
			return left, err
		}
	}
	return false, fmt.Errorf("no chore %s", name)
}

// Woken reports whether the tick loop was woken since the last call.
func (c Fixture) Woken() bool {
	select {
	case <-c.Claims.Wake():
		return true
	default:
		return false
	}
}

// Waiting returns once n statements wait for locks.
func (c Fixture) Waiting(n int) {
	c.T.Helper()
	Until(c.T, c.Connect(), fmt.Sprintf("%d statements to wait for a lock", n),
		`SELECT count(*) >= $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, n)
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantError compares errors by errors.Is.
func WantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// OpenBench opens a store for a benchmark.
func OpenBench(b *testing.B) *store.Store {
	b.Helper()
	return OpenStore(b, store.Options{DatabaseURL: pgtest.DSN(b), DefaultJitter: 10 * time.Second})
}

// SameInstant compares instants as Postgres stores them, in microseconds.
func SameInstant(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}
