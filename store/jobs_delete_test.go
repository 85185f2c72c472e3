package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

func (c crud) trigger(ref string) runs.Run {
	c.t.Helper()
	run, err := c.tryTrigger(ref)
	must(c.t, err)
	return run
}

func (c crud) tryTrigger(ref string) (runs.Run, error) {
	return c.For(c.tenant).TriggerJob(c.t.Context(), ref, jobs.TriggerRequest{})
}

// claimed writes what a claim writes to a waiting run.
func (c crud) claimed(run runs.Run) {
	c.t.Helper()
	c.exec(`DELETE FROM punctual.ready WHERE run_id = $1`, run.ID)
	c.exec(`UPDATE punctual.runs
		SET status = 'running', attempt = 1, fence = nextval('punctual.fences'), claimed_at = now(), started_at = now()
		WHERE id = $1`, run.ID)
}

func TestDeleteJob(t *testing.T) {
	t.Run("cancels the runs that wait and lets the running ones finish", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a", forbid)
		running := c.trigger("a")
		c.claimed(running)
		waiting := c.trigger2(job)
		c.exec(`UPDATE punctual.exclusive SET active_run = $2 WHERE job_id = $1`, job.ID, waiting.ID)
		c.deleteJob("a")
		if got := c.history(job.ID); !slices.Equal(got, []string{"manual running", "manual cancelled job_deleted"}) {
			t.Errorf("history %q", got)
		}
		if c.ready(job.ID) != 0 || c.count(`SELECT count(*) FROM punctual.exclusive WHERE active_run IS NOT NULL`) != 0 {
			t.Error("a cancelled run still waits or holds the gate")
		}
	})
	t.Run("frees the name and keeps the history", func(t *testing.T) {
		c := newCRUD(t)
		ctx := t.Context()
		old := c.create("a")
		run := c.trigger("a")
		c.deleteJob("a")
		_, err := c.Jobs.GetJob(ctx, c.tenant, old.ID.String())
		wantError(t, err, pg.ErrNotFound)
		_, err = c.tryTrigger(old.ID.String())
		wantError(t, err, pg.ErrNotFound)
		wantError(t, c.Jobs.DeleteJob(ctx, c.tenant, "a", nil, false), pg.ErrNotFound)
		if c.create("a").ID == old.ID {
			t.Error("the id was used again")
		}
		if got := c.run(run.ID); got.Job != "a" {
			t.Errorf("its run: %+v", got)
		}
	})
	for _, test := range []struct {
		name   string
		job    option
		paused bool
		want   string
	}{
		{"records what is due as skipped", every(time.Hour), false, "schedule skipped job_deleted x3"},
		{"records a one-shot that is due as skipped", delay(time.Hour), false, "schedule skipped job_deleted x1"},
		{"records what passed while it was paused as paused", every(time.Hour), true, "schedule skipped paused x3"},
		{"records a one-shot that waited for a resume as skipped", delay(time.Hour), true, "schedule skipped job_deleted x1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCRUD(t)
			job := c.create("a", test.job)
			if test.paused {
				c.pause("a")
			}
			c.slotAgo(job.ID, 2*time.Hour)
			c.deleteJob("a")
			c.wantHistory(job.ID, test.want)
		})
	}
}

// trigger2 makes a second waiting run of a job that forbids overlap, as catching up does.
func (c crud) trigger2(job jobs.Record) runs.Run {
	c.t.Helper()
	c.exec(`UPDATE punctual.job_versions SET definition = (definition::jsonb - 'concurrency_policy')::json
		WHERE job_id = $1`, job.ID)
	return c.trigger(job.ID.String())
}

func TestNoTriggerOutlivesTheDeleteOfItsJob(t *testing.T) {
	c := newCRUD(t)
	ctx := t.Context()
	for range 10 {
		job := c.create("a")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := c.tryTrigger(job.ID.String()); err != nil &&
					!errors.Is(err, pg.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := c.Jobs.DeleteJob(ctx, c.tenant, job.ID.String(), nil, false); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if n := c.ready(job.ID); n != 0 {
			t.Fatalf("%d runs of a deleted job wait", n)
		}
	}
}

func TestTriggerJob(t *testing.T) {
	t.Run("makes a run that waits, of active, paused and completed jobs", func(t *testing.T) {
		c := newCRUD(t)
		c.create("active")
		c.create("paused")
		c.pause("paused")
		c.complete(c.create("completed", delay(time.Hour)).ID)
		for _, name := range []string{"active", "paused", "completed"} {
			run := c.trigger(name)
			if run.Job != name || run.Status != domain.StatusPending || run.Trigger != domain.TriggerManual ||
				run.MaxAttempts != 5 || c.ready(run.JobID) != 1 {
				t.Errorf("%s: %+v", name, run)
			}
		}
		if !c.woken() {
			t.Error("the tick loop was not told")
		}
	})
	t.Run("keeps the body and headers of the run", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		if _, err := c.For(c.tenant).TriggerJob(t.Context(), "a",
			jobs.TriggerRequest{Body: []byte(`"x\u0000"`), Headers: map[string]string{"A": "b"}}); err != nil {
			t.Fatal(err)
		}
		if n := c.count(`SELECT count(*) FROM punctual.run_data WHERE body = $1 AND headers ->> 'A' = 'b'`,
			[]byte(`"x\u0000"`)); n != 1 {
			t.Errorf("%d", n)
		}
	})
	t.Run("names the run in the way where overlap is forbidden", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a", forbid)
		run := c.trigger("a")
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"while it waits", func() {}},
			{"while it runs", func() {
				c.claimed(run)
				c.exec(`UPDATE punctual.exclusive SET active_run = $2 WHERE job_id = $1`, job.ID, run.ID)
			}},
		} {
			step.do()
			var active *jobs.ActiveRunError
			if _, err := c.tryTrigger("a"); !errors.As(err, &active) || active.Run != run.ID {
				t.Errorf("%s: %v", step.name, err)
			}
		}
		c.exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE id = $1`, run.ID)
		c.trigger("a")
	})
	t.Run("of concurrent ones a single one runs where overlap is forbidden", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("a", forbid)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				var active *jobs.ActiveRunError
				if _, err := c.For(c.tenant).TriggerJob(context.WithoutCancel(t.Context()), "a", jobs.TriggerRequest{}); err != nil &&
					!errors.As(err, &active) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		a := c.one(c.claimReady(10))
		for _, of := range column[string](c.crud, `
			SELECT concat_ws(' ', status, reason, blocked_by) FROM punctual.runs WHERE job_id = $1 AND id <> $2`,
			job.ID, a.RunID) {
			if of != "skipped overlap "+a.RunID.String() {
				t.Errorf("a run beside it: %s", of)
			}
		}
	})
}
