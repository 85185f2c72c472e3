package jobs_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/pg"
)

func TestDeleteJob(t *testing.T) {
	t.Parallel()
	t.Run("frees the name and keeps the history", func(t *testing.T) {
		c := NewFixture(t)
		ctx := t.Context()
		old := c.Create("a")
		run := c.Trigger("a")
		c.DeleteJob("a")
		_, err := c.Jobs.GetJob(ctx, c.Tenant, old.ID.String())
		WantError(t, err, pg.ErrNotFound)
		_, err = c.TryTrigger(old.ID.String())
		WantError(t, err, pg.ErrNotFound)
		WantError(t, c.Jobs.DeleteJob(ctx, c.Tenant, "a", nil, false), pg.ErrNotFound)
		if c.Create("a").ID == old.ID {
			t.Error("the id was used again")
		}
		if got := c.Run(run.ID); got.Job != "a" {
			t.Errorf("its run: %+v", got)
		}
	})
	for _, test := range []struct {
		name   string
		job    Option
		paused bool
		want   string
	}{
		{"records what is due as skipped", Every(time.Hour), false, "schedule skipped job_deleted x3"},
		{"records a one-shot that is due as skipped", Delay(time.Hour), false, "schedule skipped job_deleted x1"},
		{"records what passed while it was paused as paused", Every(time.Hour), true, "schedule skipped paused x3"},
		{"records a one-shot that waited for a resume as skipped", Delay(time.Hour), true, "schedule skipped job_deleted x1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewFixture(t)
			job := c.Create("a", test.job)
			if test.paused {
				c.Pause("a")
			}
			c.SlotAgo(job.ID, 2*time.Hour)
			c.DeleteJob("a")
			c.WantHistory(job.ID, test.want)
		})
	}
}

func TestNoTriggerOutlivesTheDeleteOfItsJob(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	for range 10 {
		job := c.Create("a")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := c.TryTrigger(job.ID.String()); err != nil &&
					!errors.Is(err, pg.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := c.Jobs.DeleteJob(ctx, c.Tenant, job.ID.String(), nil, false); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if n := c.Ready(job.ID); n != 0 {
			t.Fatalf("%d runs of a deleted job wait", n)
		}
	}
}

func TestTriggerJob(t *testing.T) {
	t.Parallel()
	t.Run("makes a run that waits, of active, paused and completed jobs", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("active")
		c.Create("paused")
		c.Pause("paused")
		c.Complete(c.Create("completed", Delay(time.Hour)).ID)
		for _, name := range []string{"active", "paused", "completed"} {
			run := c.Trigger(name)
			if run.Job != name || run.Status != domain.StatusPending || run.Trigger != domain.TriggerManual ||
				run.MaxAttempts != 5 || c.Ready(run.JobID) != 1 {
				t.Errorf("%s: %+v", name, run)
			}
		}
		if !c.Woken() {
			t.Error("the tick loop was not told")
		}
	})
	t.Run("keeps the body and headers of the run", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		if _, err := c.For(c.Tenant).TriggerJob(t.Context(), "a",
			jobs.TriggerRequest{Body: []byte(`"x\u0000"`), Headers: map[string]string{"A": "b"}}); err != nil {
			t.Fatal(err)
		}
		if n := c.Count(`SELECT count(*) FROM punctual.run_data WHERE body = $1 AND headers ->> 'A' = 'b'`,
			[]byte(`"x\u0000"`)); n != 1 {
			t.Errorf("%d", n)
		}
	})
	t.Run("of concurrent ones a single one runs where overlap is forbidden", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("a", Forbid)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				var active *jobs.ActiveRunError
				if _, err := c.For(c.Tenant).TriggerJob(context.WithoutCancel(t.Context()), "a", jobs.TriggerRequest{}); err != nil &&
					!errors.As(err, &active) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		a := c.One(c.ClaimReady(10))
		for _, of := range Column[string](c.Fixture, `
			SELECT concat_ws(' ', status, reason, blocked_by) FROM punctual.runs WHERE job_id = $1 AND id <> $2`,
			job.ID, a.RunID) {
			if of != "skipped overlap "+a.RunID.String() {
				t.Errorf("a run beside it: %s", of)
			}
		}
	})
}
