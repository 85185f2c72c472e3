package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
	"punctual/store/tenants"
)

// crud is a store with a database of its own, and with helpers for tests of jobs and runs.
type crud struct {
	*Store
	t      *testing.T
	tenant int32
}

// newCRUD opens the store on a new database, and lets the test run beside others.
func newCRUD(t *testing.T) crud {
	t.Helper()
	t.Parallel()
	return newCRUDOn(t, pgtest.DSN(t))
}

// eachExecMode runs a test in each of pgx's query exec modes. Some poolers need modes in which the server does not tell
// the types of parameters.
func eachExecMode(t *testing.T, test func(t *testing.T, c crud)) {
	for _, mode := range []string{"exec", "cache_describe", "describe_exec", "cache_statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, newCRUDOn(t, pgtest.DSN(t)+"&default_query_exec_mode="+mode))
		})
	}
}

// newCRUDOn opens the store on a database.
func newCRUDOn(t *testing.T, dsn string) crud {
	t.Helper()
	return openCRUD(t, Options{DatabaseURL: dsn, MaxConns: 8, Master: pgtest.Master(t)})
}

// openCRUD opens the store for the tenant that comes with the schema.
func openCRUD(t *testing.T, o Options) crud {
	t.Helper()
	return crud{Store: openStore(t, o), t: t, tenant: 1}
}

// openStore opens the store until the end of the test.
func openStore(tb testing.TB, o Options) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), o)
	must(tb, err)
	tb.Cleanup(s.Close)
	return s
}

func (c crud) create(name string, options ...option) jobs.Record {
	c.t.Helper()
	job, err := c.tryCreate(name, options...)
	if err != nil {
		c.t.Fatalf("creating %s: %v", name, err)
	}
	return job
}

func (c crud) tryCreate(name string, options ...option) (jobs.Record, error) {
	return c.For(c.tenant).CreateJob(c.t.Context(), jobs.NewJob{Definition: definition(name, options...)})
}

func (c crud) createMany(on jobs.OnConflict, definitions ...domain.Definition) ([]jobs.BatchResult, error) {
	return c.For(c.tenant).CreateJobs(c.t.Context(), batch(definitions...), on)
}

func (c crud) get(ref string) jobs.Record {
	c.t.Helper()
	job, err := c.Jobs.GetJob(c.t.Context(), c.tenant, ref)
	must(c.t, err)
	return job
}

func (c crud) put(d domain.Definition) (jobs.Record, bool) {
	c.t.Helper()
	job, created, err := c.Jobs.PutJob(c.t.Context(), c.tenant, d.Name, jobs.NewJob{Definition: d}, nil, false)
	must(c.t, err)
	return job, created
}

func (c crud) tryPut(d domain.Definition) (jobs.Record, error) {
	job, _, err := c.Jobs.PutJob(c.t.Context(), c.tenant, d.Name, jobs.NewJob{Definition: d}, nil, false)
	return job, err
}

func (c crud) edit(ref string, change option) jobs.Record {
	c.t.Helper()
	job, err := c.tryEdit(ref, change)
	must(c.t, err)
	return job
}

func (c crud) tryEdit(ref string, change option) (jobs.Record, error) {
	return c.Jobs.EditJob(c.t.Context(), c.tenant, ref, nil, func(j jobs.Record) (jobs.NewJob, error) {
		change(&j.Definition)
		return jobs.NewJob{Definition: j.Definition}, nil
	})
}

// run reads a run.
func (c crud) run(id uuid.UUID) runs.Run {
	c.t.Helper()
	run, err := c.Runs.GetRun(c.t.Context(), c.tenant, id)
	must(c.t, err)
	return run
}

func (c crud) newTenant(name string) tenants.Tenant {
	c.t.Helper()
	made, err := c.Tenants.CreateTenant(c.t.Context(), tenants.Tenant{Name: name, Weight: 1})
	must(c.t, err)
	return made
}

// must fails the test at once if there is an error.
func (c crud) must(err error) {
	c.t.Helper()
	must(c.t, err)
}

func (c crud) exec(sql string, args ...any) {
	c.t.Helper()
	if _, err := c.DB.Callers.Exec(c.t.Context(), sql, args...); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// before has Postgres do something before each write of a kind to a table, until undo is called.
func (c crud) before(write, table, does string) (undo func()) {
	c.t.Helper()
	c.exec(`CREATE FUNCTION punctual.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ` + does + ` RETURN NEW; END $$;
		CREATE TRIGGER meddle BEFORE ` + write + ` ON punctual.` + table + ` FOR EACH ROW EXECUTE FUNCTION punctual.meddle()`)
	return func() { c.exec(`DROP TRIGGER meddle ON punctual.` + table) }
}

// slotAgo makes a slot that was due the given time ago the job's next slot, and returns it.
func (c crud) slotAgo(job uuid.UUID, ago time.Duration) time.Time {
	c.t.Helper()
	now := c.now()
	slot := now.Add(-ago).Truncate(time.Second)
	if ago >= time.Hour { // for an hourly job, one of its own slots
		next, _ := c.next(job)
		slot = next.Add(-next.Sub(slot).Truncate(time.Hour))
		if slot.After(now.Add(-ago)) {
			slot = slot.Add(-time.Hour)
		}
	}
	c.setNext(job, slot)
	return slot
}

// complete writes what the claim of a job's last slot writes about the job's schedule.
func (c crud) complete(job uuid.UUID) {
	c.t.Helper()
	c.exec(`WITH gone AS (
			DELETE FROM punctual.schedules s USING punctual.jobs j
			WHERE s.job_id = $1 AND j.id = $1 AND j.kind IN ('at', 'delay') RETURNING s.job_id, s.version)
		INSERT INTO punctual.completions (look_at, job_ids, versions)
		SELECT now() + interval '7 days', ARRAY[job_id], ARRAY[version] FROM gone`, job)
	c.exec(`UPDATE punctual.schedules
		SET scheduled_for = NULL, next_run_at = NULL, enabled = false, completed_at = now()
		WHERE job_id = $1`, job)
}

// history describes the job's runs, oldest first: trigger, status, reason, "late", and how many slots a skip stands
// for.
func (c crud) history(job uuid.UUID) []string {
	c.t.Helper()
	runs, _, err := c.Runs.ListRuns(c.t.Context(), c.tenant, runs.Filter{JobID: &job})
	must(c.t, err)
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

// wantHistory compares the runs and skips of a job, in any order.
func (c crud) wantHistory(job uuid.UUID, want ...string) {
	c.t.Helper()
	got := c.history(job)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("-want +got:\n%s", diff)
	}
}

// value returns what a query yields.
func value[T any](c crud, sql string, args ...any) (v T) {
	c.t.Helper()
	if err := c.DB.Callers.QueryRow(c.t.Context(), sql, args...).Scan(&v); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// column returns what a query yields, row by row.
func column[T any](c crud, sql string, args ...any) []T {
	c.t.Helper()
	values, err := pg.All(c.t.Context(), c.DB.Callers, pgx.RowTo[T], sql, args...)
	if err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return values
}

func (c crud) count(sql string, args ...any) int {
	c.t.Helper()
	return value[int](c, sql, args...)
}

// wantCount fails the test unless a query counts so many.
func (c crud) wantCount(want int, what, sql string, args ...any) {
	c.t.Helper()
	if n := c.count(sql, args...); n != want {
		c.t.Errorf("%s: counted %d, want %d", what, n, want)
	}
}

// text returns the text that a query yields, and "-" for no row or null.
func (c crud) text(sql string, args ...any) string {
	c.t.Helper()
	for _, text := range column[*string](c, sql, args...) {
		if text != nil {
			return *text
		}
	}
	return "-"
}

// now is the time by the database's clock.
func (c crud) now() time.Time {
	c.t.Helper()
	now, err := c.Now(c.t.Context())
	must(c.t, err)
	return now
}

// next returns a job's next slot and the time at which it is due.
func (c crud) next(job uuid.UUID) (slot, due time.Time) {
	c.t.Helper()
	if err := c.DB.Callers.QueryRow(c.t.Context(),
		`SELECT scheduled_for, next_run_at FROM punctual.schedules WHERE job_id = $1`, job).Scan(&slot, &due); err != nil {
		c.t.Fatal(err)
	}
	return slot.UTC(), due.UTC()
}

// setNext makes a slot, which is due at its instant, a job's next one.
func (c crud) setNext(job uuid.UUID, slot time.Time) {
	c.t.Helper()
	c.exec(`UPDATE punctual.schedules SET scheduled_for = $2, next_run_at = $2 WHERE job_id = $1`, job, slot)
}

func (c crud) ready(job uuid.UUID) int {
	return c.count(`SELECT count(*) FROM punctual.ready WHERE job_id = $1`, job)
}

// chore does a batch of one of the store's chores.
func (c crud) chore(ctx context.Context, name string) (left bool, err error) {
	for _, chore := range c.Chores() {
		if chore.Name == name {
			_, left, err = chore.Batch(ctx)
			return left, err
		}
	}
	return false, fmt.Errorf("no chore %s", name)
}

// woken reports whether the tick loop was woken since the last call.
func (c crud) woken() bool {
	select {
	case <-c.Claims.Wake():
		return true
	default:
		return false
	}
}

// inTurn locks the job's schedule, calls others, and unlocks the schedule once n statements wait for locks.
func (c crud) inTurn(job uuid.UUID, n int, others func()) {
	c.t.Helper()
	free := c.stranger(`schedules WHERE job_id = $1`, job)
	others()
	c.waiting(n)
	free()
}

// waiting returns once n statements wait for locks.
func (c crud) waiting(n int) {
	c.t.Helper()
	until(c.t, c.connect(), fmt.Sprintf("%d statements to wait for a lock", n),
		`SELECT count(*) >= $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, n)
}

// patience is how long a test waits for something that takes no time on an idle machine.
const patience = 2 * time.Minute

// until repeats a query until its answer is true.
func (c crud) until(what, sql string, args ...any) {
	c.t.Helper()
	until(c.t, c.DB.Callers, what, sql, args...)
}

func until(t testing.TB, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, what, sql string, args ...any,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for yes := false; !yes; {
		if err := db.QueryRow(ctx, sql, args...).Scan(&yes); err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func openBench(b *testing.B) *Store {
	b.Helper()
	return openStore(b, Options{DatabaseURL: pgtest.DSN(b), DefaultJitter: 10 * time.Second})
}

// sameInstant compares instants as Postgres stores them, in microseconds.
func sameInstant(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}
