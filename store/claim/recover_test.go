package claim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
)

// Postgres ends a transaction whose replica is silent between two statements. On a slow network a recovery is silent
// for that long, so it is done again with more time.
func TestARecoveryOverASlowNetworkIsDoneAgainWithMoreTime(t *testing.T) {
	t.Parallel()
	direct := pgtest.TCP(t, pgtest.Server(t), pgtest.DSN(t))
	c := AsReplica(NewFixtureOn(t, direct))
	c.Create("job")
	a := c.Begun("job")
	c.Lose(c.ReplicaID)
	proxy, through := pgtest.NewProxy(t, direct)
	far := OpenReplica(t, through)
	proxy.Slow(700*time.Millisecond, 0)
	if n := far.Recover(); n != 1 {
		t.Errorf("%d runs are recovered, want one; it is %s", n, c.State(a.RunID))
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	t.Run("runs of a lost replica are ready at once, and their late outcome changes nothing", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a", Forbid)
		c.Trigger("a")
		replica := uuid.New()
		a := c.ClaimAll(replica)[0]
		if n := c.Recover(); n != 0 {
			t.Fatalf("%d runs of a living replica were taken", n)
		}
		c.Lose(replica)
		pulse, err := c.Replicas.Renew(t.Context(), replica, scheduler.Condition{})
		if err != nil || pulse.Known || !pulse.Orphans {
			t.Errorf("pulse %+v, error %v", pulse, err)
		}
		if n := c.Recover(); n != 1 {
			t.Fatalf("%d runs recovered", n)
		}
		if n := c.Recover(); n != 0 {
			t.Errorf("%d runs recovered twice", n)
		}
		again := c.ClaimAll(uuid.New())
		if len(again) != 1 || again[0].RunID != a.RunID || again[0].Attempt != 2 || again[0].Fence <= a.Fence {
			t.Fatalf("claimed again: %+v", again)
		}
		o := domain.Outcome{
			Assignment: a, Verdict: domain.Bury, Reason: domain.ReasonHTTP5xx, StartedAt: a.DueAt, FinishedAt: a.DueAt,
		}
		if n, err := c.Claims.Finish(t.Context(), []domain.Outcome{o}, []uuid.UUID{a.Lease.ID}); n != 1 || err != nil {
			t.Errorf("superseded %d, error %v", n, err)
		}
		c.Finish(again[0], domain.Succeed, "")
		run := c.Run(a.RunID)
		if run.Status != domain.StatusSucceeded || len(run.Attempts) != 2 ||
			run.Attempts[0].Outcome != domain.AttemptLost {
			t.Errorf("run %+v", run)
		}
		c.WantCount(0, "something is left", `SELECT (SELECT count(*) FROM punctual.dead_letters)
			+ (SELECT count(*) FROM punctual.claims)
			+ (SELECT count(active_run) FROM punctual.exclusive)`)
	})
	t.Run("what this binary cannot read is left to another one, and keeps nobody else's runs", func(t *testing.T) {
		c := NewFixture(t)
		for i := range 12 { // more than Recover ends at a time
			replica, name := uuid.New(), fmt.Sprintf("a%d", i)
			job := c.Create(name)
			c.Trigger(name)
			if claimed := c.ClaimAll(replica); len(claimed) != 1 {
				t.Fatalf("claimed %d", len(claimed))
			}
			c.Lose(replica)
			if i != 7 {
				c.Exec(`UPDATE punctual.job_versions SET definition = '{"from":"tomorrow"}' WHERE job_id = $1`, job.ID)
			}
		}
		c.Definitions.Forget()
		if n := c.Recover(); n != 1 {
			t.Errorf("%d runs recovered", n)
		}
		if n := c.Recover(); n != 0 {
			t.Errorf("%d runs recovered twice", n)
		}
		c.WantCount(11, "claims are left", `SELECT count(*) FROM punctual.claims`)
	})
	t.Run("claims whose commit was in doubt are given back without counting", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("a")
		c.Trigger("a")
		replica := uuid.New()
		a := c.ClaimAll(replica)[0]
		pulse, err := c.Replicas.Renew(t.Context(), replica, scheduler.Condition{})
		if err != nil || !slices.Equal(pulse.Claims, []uuid.UUID{a.Lease.ID}) {
			t.Fatalf("pulse %+v, error %v", pulse, err)
		}
		if n, err := c.Claims.GiveBack(t.Context(), pulse.Claims); n != 1 || err != nil {
			t.Fatalf("gave back %d, error %v", n, err)
		}
		if again := c.ClaimAll(replica); len(again) != 1 || again[0].Attempt != 1 || again[0].Fence <= a.Fence {
			t.Errorf("claimed again: %+v", again)
		}
	})
}
