package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

// claimAll registers a replica and claims what is due and ready in the default queue.
func (c crud) claimAll(replica uuid.UUID) []domain.Assignment {
	c.t.Helper()
	if _, err := c.Claims.Register(c.t.Context(),
		scheduler.Replica{ID: replica, Host: "test", Version: "test", Queues: map[string]int{"default": 10}}); err != nil {
		c.t.Fatal(err)
	}
	claim := scheduler.Claim{Replica: replica, Quotas: []admit.Quota{{Queue: 1, Slots: 10}}}
	runs := claimer{crud: c, replica: replica, queue: 1}.claim(10, false).Runs
	for _, claim.Work = range []domain.Work{domain.WorkReady, domain.WorkOrdered} {
		ready, err := c.Claims.ClaimReady(c.t.Context(), claim)
		must(c.t, err)
		runs = append(runs, ready.Runs...)
	}
	return runs
}

func (c crud) finish(a domain.Assignment, verdict domain.Verdict, reason domain.Reason) {
	c.t.Helper()
	o := domain.Outcome{
		Assignment: a, Verdict: verdict, Reason: reason, StartedAt: a.Lease.ClaimedAt,
		FinishedAt: a.Lease.ClaimedAt, HTTPStatus: 200, RetryIn: time.Hour,
	}
	if n, err := c.Claims.Finish(c.t.Context(), []domain.Outcome{o}, []uuid.UUID{a.Lease.ID}); err != nil || n != 0 {
		c.t.Fatalf("finish: superseded %d, error %v", n, err)
	}
}

func (c crud) cancel(run uuid.UUID) {
	c.t.Helper()
	if _, err := c.Runs.CancelRun(c.t.Context(), c.tenant, run); err != nil {
		c.t.Fatal(err)
	}
}

func TestCancelRun(t *testing.T) {
	t.Parallel()
	t.Run("ends a waiting run at once, and answers the same again", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		run := c.trigger("a")
		for range 2 {
			got, err := c.Runs.CancelRun(t.Context(), c.tenant, run.ID)
			if err != nil || got.Status != domain.StatusCancelled || orEmpty(got.Reason) != domain.ReasonCancelled ||
				got.FinishedAt == nil {
				t.Fatalf("got %s %s, error %v", got.Status, orEmpty(got.Reason), err)
			}
		}
		if runs := c.claimAll(uuid.New()); len(runs) != 0 {
			t.Errorf("a cancelled run was claimed")
		}
	})
	for _, verdict := range []domain.Verdict{
		domain.Succeed, domain.RetryRun, domain.Bury, domain.GiveBack, domain.Interrupt, domain.Cancel,
	} {
		t.Run(fmt.Sprintf(
			"wins over outcome %d of a run that is being sent, and tells its replica", verdict,
		), func(t *testing.T) {
			c := newCRUD(t)
			c.create("a", forbid)
			c.trigger("a")
			replica := uuid.New()
			a := c.claimAll(replica)[0]
			got, err := c.Runs.CancelRun(t.Context(), c.tenant, a.RunID)
			if err != nil || got.Status != domain.StatusRunning || orEmpty(got.Reason) != domain.ReasonCancelled {
				t.Fatalf("got %s %s, error %v", got.Status, orEmpty(got.Reason), err)
			}
			pulse, err := c.Claims.Renew(t.Context(), replica, scheduler.Condition{})
			if err != nil || len(pulse.Cancels) != 1 || pulse.Cancels[0] != a.RunID {
				t.Fatalf("pulse %+v, error %v", pulse, err)
			}
			c.finish(a, verdict, domain.ReasonHTTP5xx)
			if got, err = c.Runs.GetRun(t.Context(), c.tenant, a.RunID); err != nil || got.Status != domain.StatusCancelled ||
				orEmpty(got.Reason) != domain.ReasonCancelled {
				t.Errorf("verdict %d: the run is %s %s, error %v", verdict, got.Status, orEmpty(got.Reason), err)
			}
			if verdict != domain.GiveBack && (len(got.Attempts) != 1 ||
				verdict == domain.Succeed && got.Attempts[0].Outcome != domain.AttemptCancelled) {
				t.Errorf("verdict %d: what was sent is not on record: %+v", verdict, got.Attempts)
			}
			if n := c.count(`SELECT (SELECT count(*) FROM punctual.ready)
				+ (SELECT count(*) FROM punctual.dead_letters)
				+ (SELECT count(*) FROM punctual.claims)
				+ (SELECT count(active_run) FROM punctual.exclusive)`); n != 0 {
				t.Errorf("verdict %d: something is left of the run", verdict)
			}
		})
	}
	t.Run("refuses a run that has ended otherwise", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a")
		c.trigger("a")
		a := c.claimAll(uuid.New())[0]
		c.finish(a, domain.Succeed, "")
		if _, err := c.Runs.CancelRun(t.Context(), c.tenant, a.RunID); !errors.Is(err, ErrState) {
			t.Errorf("error %v", err)
		}
		if _, err := c.Runs.CancelRun(t.Context(), c.tenant+1, a.RunID); !errors.Is(err, ErrNotFound) {
			t.Errorf("another tenant's run: error %v", err)
		}
	})
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	t.Run("replace cancels the active run, and the new one starts when it has ended", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a", overlapping(domain.PolicyReplace))
		replica := uuid.New()
		c.slotAgo(job.ID, 2*time.Second)
		first := c.claimAll(replica)[0]
		c.slotAgo(job.ID, time.Second)
		if started := c.claimAll(replica); len(started) != 0 {
			t.Fatalf("the new run started while the old one was active")
		}
		c.finish(first, domain.Cancel, domain.ReasonCancelled)
		if got := c.run(first.RunID); got.Status != domain.StatusCancelled ||
			orEmpty(got.Reason) != domain.ReasonReplaced {
			t.Errorf("the old run is %s %s", got.Status, orEmpty(got.Reason))
		}
		if started := c.claimAll(replica); len(started) != 1 || started[0].RunID == first.RunID {
			t.Errorf("the new run did not start at once: %v", started)
		}
	})
	t.Run("replace cancels a run that waits for its retry, and starts at once", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a", overlapping(domain.PolicyReplace))
		c.slotAgo(job.ID, 2*time.Second)
		first := c.claimAll(uuid.New())[0]
		c.finish(first, domain.RetryRun, domain.ReasonHTTP5xx)
		c.slotAgo(job.ID, time.Second)
		started := c.claimAll(uuid.New())
		if len(started) != 1 || started[0].RunID == first.RunID {
			t.Fatalf("started %v", started)
		}
		if got := c.run(first.RunID); got.Status != domain.StatusCancelled ||
			orEmpty(got.Reason) != domain.ReasonReplaced {
			t.Errorf("the old run is %s %s", got.Status, orEmpty(got.Reason))
		}
	})
	t.Run("wait keeps one run waiting and records further slots", func(t *testing.T) {
		c := newCRUD(t)
		job := c.create("a", overlapping(domain.PolicyWait))
		replica := uuid.New()
		c.slotAgo(job.ID, 3*time.Second)
		first := c.claimAll(replica)[0]
		c.slotAgo(job.ID, 2*time.Second)
		c.claimAll(replica)
		c.slotAgo(job.ID, time.Second)
		c.claimAll(replica)
		c.wantCount(1, "skips for overlap", `SELECT count(*)
			FROM punctual.runs
			WHERE status = 'skipped' AND reason = 'overlap' AND blocked_by IS NOT NULL`)
		var active *jobs.ActiveRunError
		if _, err := c.tryTrigger("a"); !errors.As(err, &active) {
			t.Errorf("a trigger beside a waiting run: error %v", err)
		}
		c.finish(first, domain.Succeed, "")
		second := c.claimAll(replica)
		if len(second) != 1 {
			t.Fatalf("the waiting run did not start at once: %v", second)
		}
		c.finish(second[0], domain.Succeed, "")
		c.wantCount(0, "the gate is not free", `SELECT count(active_run) + count(waiting_run) FROM punctual.exclusive`)
	})
	t.Run("a trigger under replace takes the place of the active run", func(t *testing.T) {
		c := newCRUD(t)
		c.create("a", overlapping(domain.PolicyReplace))
		c.trigger("a")
		replica := uuid.New()
		first := c.claimAll(replica)[0]
		second := c.trigger("a")
		if started := c.claimAll(replica); len(started) != 0 {
			t.Fatalf("the new run started while the old one was active")
		}
		c.finish(first, domain.Succeed, "")
		if got := c.run(first.RunID); got.Status != domain.StatusCancelled {
			t.Errorf("the old run is %s", got.Status)
		}
		if started := c.claimAll(replica); len(started) != 1 || started[0].RunID != second.ID {
			t.Errorf("started %v", started)
		}
	})
}
