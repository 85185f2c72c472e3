package claim_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store"
)

func TestCancelRun(t *testing.T) {
	t.Parallel()
	t.Run("ends a waiting run at once, and answers the same again", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		run := c.Trigger("a")
		for range 2 {
			got, err := c.Runs.CancelRun(t.Context(), c.Tenant, run.ID)
			if err != nil || got.Status != domain.StatusCancelled || OrEmpty(got.Reason) != domain.ReasonCancelled ||
				got.FinishedAt == nil {
				t.Fatalf("got %s %s, error %v", got.Status, OrEmpty(got.Reason), err)
			}
		}
		if runs := c.ClaimAll(uuid.New()); len(runs) != 0 {
			t.Errorf("a cancelled run was claimed")
		}
	})
	for _, verdict := range []domain.Verdict{
		domain.Succeed, domain.RetryRun, domain.Bury, domain.GiveBack, domain.Interrupt, domain.Cancel,
	} {
		t.Run(fmt.Sprintf(
			"wins over outcome %d of a run that is being sent, and tells its replica", verdict,
		), func(t *testing.T) {
			c := NewFixture(t)
			c.Create("a", Forbid)
			c.Trigger("a")
			replica := uuid.New()
			a := c.ClaimAll(replica)[0]
			got, err := c.Runs.CancelRun(t.Context(), c.Tenant, a.RunID)
			if err != nil || got.Status != domain.StatusRunning || OrEmpty(got.Reason) != domain.ReasonCancelled {
				t.Fatalf("got %s %s, error %v", got.Status, OrEmpty(got.Reason), err)
			}
			pulse, err := c.Replicas.Renew(t.Context(), replica, scheduler.Condition{})
			if err != nil || len(pulse.Cancels) != 1 || pulse.Cancels[0] != a.RunID {
				t.Fatalf("pulse %+v, error %v", pulse, err)
			}
			c.Finish(a, verdict, domain.ReasonHTTP5xx)
			if got, err = c.Runs.GetRun(t.Context(), c.Tenant, a.RunID); err != nil || got.Status != domain.StatusCancelled ||
				OrEmpty(got.Reason) != domain.ReasonCancelled {
				t.Errorf("verdict %d: the run is %s %s, error %v", verdict, got.Status, OrEmpty(got.Reason), err)
			}
			if verdict != domain.GiveBack && (len(got.Attempts) != 1 ||
				verdict == domain.Succeed && got.Attempts[0].Outcome != domain.AttemptCancelled) {
				t.Errorf("verdict %d: what was sent is not on record: %+v", verdict, got.Attempts)
			}
			if n := c.Count(`SELECT (SELECT count(*) FROM punctual.ready)
				+ (SELECT count(*) FROM punctual.dead_letters)
				+ (SELECT count(*) FROM punctual.claims)
				+ (SELECT count(active_run) FROM punctual.exclusive)`); n != 0 {
				t.Errorf("verdict %d: something is left of the run", verdict)
			}
		})
	}
	t.Run("refuses a run that has ended otherwise", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		c.Trigger("a")
		a := c.ClaimAll(uuid.New())[0]
		c.Finish(a, domain.Succeed, "")
		if _, err := c.Runs.CancelRun(t.Context(), c.Tenant, a.RunID); !errors.Is(err, store.ErrState) {
			t.Errorf("error %v", err)
		}
		if _, err := c.Runs.CancelRun(t.Context(), c.Tenant+1, a.RunID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another tenant's run: error %v", err)
		}
	})
}
