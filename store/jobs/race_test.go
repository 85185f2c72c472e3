package jobs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// All kinds of writes race with claims on three jobs. Nothing deadlocks, and the rows agree.
//
// Also writes of all jobs by operations.
//
//prove:claims
func TestWritesAndClaimsDoNotDeadlock(t *testing.T) {
	c := NewFixture(t)
	expected := func(err error) bool {
		var active *jobs.ActiveRunError
		var batch *jobs.BatchError
		if errors.As(err, &batch) { // names that had moved to another job at each look
			for _, one := range batch.Errors {
				if !errors.Is(one, jobs.ErrNameTaken) {
					return false
				}
			}
			return true
		}
		return err == nil || errors.Is(err, pg.ErrNotFound) || errors.Is(err, jobs.ErrNameTaken) ||
			errors.Is(err, pg.ErrState) ||
			errors.As(err, &active)
	}
	kinds := []Option{Every(time.Second), Every(time.Hour), Delay(0), Never, At(time.Now())}
	random := func() jobspec.Definition {
		d := Definition(fmt.Sprintf("j%d", rand.IntN(3)), kinds[rand.IntN(len(kinds))], Described(uuid.NewString()))
		if rand.IntN(2) == 0 {
			Forbid(&d)
		}
		return d
	}
	times := 40
	if testing.Short() {
		times = 12
	}
	var wg sync.WaitGroup
	for name, write := range c.Writes() {
		wg.Go(func() {
			for range times {
				if err := write(random()); !expected(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	c.Work()
	agrees(c)
}

// agrees checks that the rows of every job agree.
func agrees(c Fixture) {
	c.T.Helper()
	for _, check := range []struct{ name, sql string }{
		{"a schedule is at another version than its job", `SELECT count(*)
			FROM punctual.jobs j
			JOIN punctual.schedules s ON s.job_id = j.id
			WHERE s.version <> j.version`},
		{"a version is missing", `SELECT count(*)
			FROM punctual.jobs j
			WHERE version <> (SELECT count(*) FROM punctual.job_versions v WHERE v.job_id = j.id)`},
		{"a job that is not active has an enabled schedule", `SELECT count(*)
			FROM punctual.jobs j
			JOIN punctual.schedules s ON s.job_id = j.id
			WHERE s.enabled AND j.state <> 'active'`},
		{"an active job has no next slot", `SELECT count(*)
			FROM punctual.jobs j
			JOIN punctual.schedules s ON s.job_id = j.id
			WHERE NOT s.enabled
				AND punctual.job_state(j, s) = 'active'
				AND j.kind <> 'none'`},
		{"a job that forbids overlap has no gate", `SELECT count(*)
			FROM punctual.jobs j
			JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
			WHERE v.definition ->> 'concurrency_policy' = 'forbid'
				AND NOT EXISTS (SELECT FROM punctual.exclusive x WHERE x.job_id = j.id)`},
		{"a pending run does not wait", `SELECT count(*)
			FROM punctual.runs r
			WHERE status = 'pending'
				AND NOT EXISTS (SELECT FROM punctual.ready y WHERE y.run_id = r.id)`},
		{"an operation failed", `SELECT count(*) FROM punctual.operations WHERE state <> 'done'`},
		{"a deadlock", `SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()`},
		{"a run of a deleted job waits", `SELECT count(*)
			FROM punctual.ready y
			JOIN punctual.jobs j ON j.id = y.job_id
			WHERE j.state = 'deleted'`},
	} {
		if n := c.Count(check.sql); n != 0 {
			c.T.Errorf("%s: %d times", check.name, n)
		}
	}
}

func TestAnEditSettlesALongBacklogWithinBounds(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("a", Every(time.Second), Missed(jobspec.MissedFireAll))
	first := c.SlotAgo(job.ID, 2*time.Hour)
	c.Edit("a", Every(time.Hour))
	if n := c.Ready(job.ID); n != 1000 {
		t.Errorf("%d runs wait", n)
	}
	skips, _, err := c.Runs.ListRuns(t.Context(), c.Tenant, runs.Filter{Job: "a", Reason: domain.ReasonMissed})
	if err != nil || len(skips) != 1 {
		t.Fatalf("%d skips, %v", len(skips), err)
	}
	if s := skips[0].Skipped; !s.First.Equal(first.Add(1000*time.Second)) || s.Count != nil ||
		s.Last.After(skips[0].CreatedAt) {
		t.Errorf("the skip stands for %+v", s)
	}
}

// A skip that an edit writes stands only for slots that were due when the skip was made.
func TestASkipThatAnEditMakesAfterAWaitIsNotMadeBeforeItsLastSlot(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	job := c.Create("a", Every(time.Second), Missed(jobspec.MissedFireAll))
	c.SlotAgo(job.ID, 2*time.Hour) // so many slots that the last ones become a skip
	free := c.Stranger(`schedules WHERE job_id = $1`, job.ID)
	began := c.Clock()
	done := make(chan error, 1)
	go func() {
		_, err := c.TryEdit("a", Every(time.Hour))
		done <- err
	}()
	c.Waiting(1)
	c.Until("two slots to become due meanwhile", `SELECT clock_timestamp() > $1::timestamptz + interval '2 s'`, began)
	free()
	Must(t, <-done)
	skips, _, err := c.Runs.ListRuns(ctx, c.Tenant, runs.Filter{Job: "a", Reason: domain.ReasonMissed})
	if err != nil || len(skips) != 1 {
		t.Fatalf("%d skips, %v", len(skips), err)
	}
	if s := skips[0]; s.Skipped.Last.Before(began) || s.Skipped.Last.After(s.CreatedAt) ||
		s.FinishedAt.Before(s.CreatedAt) {
		t.Errorf("the skip stands for %+v, made at %s, finished at %s", s.Skipped, s.CreatedAt, s.FinishedAt)
	}
}

// An edit that waited for the job's lock settles the slots that became due meanwhile. It dates their runs no earlier
// than the slots were due.
func TestARunThatAnEditMakesAfterAWaitIsNotMadeBeforeItWasDue(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	job := c.Create("a", Rarely)
	tx := c.Transaction()
	if _, err := tx.Exec(ctx, `SELECT FROM punctual.schedules WHERE job_id = $1 FOR UPDATE`, job.ID); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.TryEdit("a", Described("x"))
		done <- err
	}()
	c.Waiting(1)
	if _, err := tx.Exec(ctx, `UPDATE punctual.schedules
		SET scheduled_for = date_trunc('second', clock_timestamp()) + interval '1 s',
			next_run_at = date_trunc('second', clock_timestamp()) + interval '1 s'
		WHERE job_id = $1`, job.ID); err != nil {
		t.Fatal(err)
	}
	Until(t, tx, "the slot to become due",
		`SELECT clock_timestamp() >= next_run_at FROM punctual.schedules WHERE job_id = $1`, job.ID)
	Must(t, tx.Commit(ctx))
	Must(t, <-done)
	if n := c.Count(`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND created_at >= due_at`, job.ID); n != 1 {
		t.Errorf("%d runs were made once they were due, of %q", n, c.HistoryOf(job.ID))
	}
}
