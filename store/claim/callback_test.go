package claim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/runs"
)

func superseded(t *testing.T, err error) {
	t.Helper()
	if _, is := errors.AsType[*runs.SupersededError](err); !is {
		t.Errorf("error %v, want a SupersededError", err)
	}
}

func TestWorkThatGoesOnIsHeldByNoReplica(t *testing.T) {
	c := NewReplica(t)
	a := c.Accepted("a", Forbid)
	c.WantState(a.RunID, "running 202 attempt 1 ready in 60")
	c.WantCount(0, "claims hold it", `SELECT count(*) FROM punctual.claims`)
	c.Lose(c.ReplicaID)
	if n := c.Recover(); n != 0 {
		t.Errorf("%d runs recovered: it died with its replica", n)
	}
	if b := c.ClaimReady(10); len(b.Runs) != 0 {
		t.Error("it was claimed before its deadline")
	}
	if _, err := c.TryTrigger("a"); err == nil {
		t.Error("it does not count as active")
	}
	run, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
	if err != nil || run.Status != domain.StatusSucceeded || run.Attempt != 1 || run.AcceptedAt == nil ||
		run.FinishedAt.Before(*run.StartedAt) {
		t.Errorf("completed: %+v, error %v", run, err)
	}
	c.NothingLeft()
	if again, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil); err != nil ||
		!again.FinishedAt.Equal(*run.FinishedAt) {
		t.Errorf("completed again: %+v, error %v", again, err)
	}
	_, err = c.Beat(a, "")
	superseded(t, err)
}

func TestASilentTargetLosesItsAttempt(t *testing.T) {
	c := NewReplica(t)
	a := c.Accepted("a", Forbid)
	c.MustBeat(a, `{"rows":7}`)
	c.Overdue(a.RunID)
	c.WantState(a.RunID, "retrying silent attempt 1 next in 0 ready in 0 attempts: 1 lost silent")
	for _, call := range []func() error{
		func() error { _, err := c.Beat(a, ""); return err },
		func() error { _, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil); return err },
		func() error { _, err := c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "x", true); return err },
	} {
		superseded(t, call())
	}
	b := c.One(c.ClaimReady(10))
	if b.Attempt != 2 || b.Fence <= a.Fence || b.RunToken == a.RunToken {
		t.Fatalf("the next attempt: %+v", b)
	}
	_, err := c.Claims.RunProgress(t.Context(), a.RunID, a.RunToken)
	superseded(t, err)
	p, err := c.Claims.RunProgress(t.Context(), b.RunID, b.RunToken)
	if err != nil || p.Attempt != 2 || string(p.Progress) != `{"rows":7}` || p.RecordedAt == nil {
		t.Errorf("progress %+v, error %v", p, err)
	}
	c.Accept(b)
	c.WantState(a.RunID, "running silent 202 attempt 2 ready in 60 attempts: 1 lost silent")
	c.Overdue(a.RunID)
	c.Accept(c.One(c.ClaimReady(10)))
	c.Overdue(a.RunID)
	c.WantState(a.RunID,
		"dead silent attempt 3 finished dead letter of 3 silent attempts: 1 lost silent, 2 lost silent, 3 lost silent")
	c.NothingLeft()
}

func TestATargetIsNotBlamedForSilenceThatNobodyCouldHear(t *testing.T) {
	c := NewReplica(t)
	a := c.Accepted("a")
	// The database comes back after an hour: no replica has renewed its heartbeat, and the deadline passed long ago.
	away := func() {
		c.Exec(`UPDATE punctual.replicas SET renewed_at = now() - interval '1 h'`)
		c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '55 minutes'`)
		c.Exec(`UPDATE punctual.deployment SET back_at = '-infinity'`)
	}
	away()
	c.Listen()
	c.WantState(a.RunID, "running 202 attempt 1 ready in 6")
	away()
	c.Renewed()
	c.Listen()
	c.WantState(a.RunID, "running 202 attempt 1 ready in 60")
	// A replica that starts also gives the target its time anew.
	away()
	AsReplica(c.Fixture).Listen()
	c.WantState(a.RunID, "running 202 attempt 1 ready in 60")
	// If one of two replicas was cut off, the target gets no extra time: the other replica could receive its calls.
	other := AsReplica(c.Fixture)
	away()
	c.Exec(`UPDATE punctual.replicas SET renewed_at = now() WHERE id = $1`, other.ReplicaID)
	c.Renewed()
	c.Listen()
	c.WantState(a.RunID, "retrying silent attempt 1 next in 0 ready in 0 attempts: 1 lost silent")
}

func TestAFailureThatNothingCanFollowIsReportedTwice(t *testing.T) {
	c := NewReplica(t)
	a := c.Accepted("a", func(d *domain.Definition) {
		d.ExpiresAfter, d.Retry.InitialBackoff = domain.DurationOf(time.Minute), domain.DurationOf(time.Hour)
	})
	for range 2 {
		if run, err := c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "the ledger is locked", true); err != nil ||
			run.Status != domain.StatusDead || OrEmpty(run.Reason) != domain.ReasonExpired {
			t.Fatalf("%+v, error %v", run, err)
		}
	}
	_, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
	superseded(t, err)
}

func TestATokenOfAnAttemptThatAFailoverHasUndone(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("a", ByCallback)
	c.Exec(`UPDATE punctual.runs SET status = 'pending', fence = NULL, attempt = 0`)
	_, err := c.Beat(a, "")
	superseded(t, err)
	_, err = c.Claims.RunProgress(t.Context(), a.RunID, a.RunToken)
	superseded(t, err)
}

// A target whose run is to be cancelled is told with a heartbeat, which no longer moves the deadline.
func TestCancelOfWorkThatGoesOn(t *testing.T) {
	c := NewReplica(t)
	a := c.Accepted("a", Forbid)
	run, err := c.Runs.CancelRun(t.Context(), c.Tenant, a.RunID)
	if err != nil || run.Status != domain.StatusRunning || OrEmpty(run.Reason) != domain.ReasonCancelled {
		t.Fatalf("%+v, error %v", run, err)
	}
	c.WantCount(0, "a replica is told, which does not hold the run", `SELECT count(*) FROM punctual.cancels`)
	c.Exec(`UPDATE punctual.ready SET due_at = now() + interval '20 s'`)
	if b := c.MustBeat(a, ""); !b.CancelRequested || time.Until(b.Deadline) > 21*time.Second {
		t.Errorf("beat %+v", b)
	}
	c.WantState(a.RunID, "running cancelled_by_user 202 attempt 1 ready in 20")
}

func TestRunTokensOpenOneAttemptOfOneRun(t *testing.T) {
	c := NewReplica(t)
	a, other := c.Accepted("a"), c.Accepted("b")
	for _, token := range []string{
		"", "prt_", other.RunToken, a.RunToken[:len(a.RunToken)-1], a.RunToken + "A", fmt.Sprintf("prt_%064d", 0),
	} {
		if _, err := c.Claims.HeartbeatRun(t.Context(), a.RunID, token, nil); !errors.Is(err, domain.ErrRunToken) {
			t.Errorf("%q: error %v", token, err)
		}
	}
	second := OpenStore(t, store.Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 4})
	if _, err := second.Claims.HeartbeatRun(t.Context(), a.RunID, a.RunToken, nil); err != nil {
		t.Errorf("at another replica: %v", err)
	}
	second.Close()
	if _, err := second.Claims.HeartbeatRun(
		t.Context(), a.RunID, other.RunToken, nil,
	); !errors.Is(err, domain.ErrRunToken) {
		t.Errorf("a wrong token is no matter for the database: error %v", err)
	}
}

func TestReadingProgressWaitsForNobody(t *testing.T) {
	c := NewReplica(t)
	a := c.Accepted("a", Forbid)
	c.MustBeat(a, `{"rows":7}`)
	c.Stranger(`exclusive, punctual.ready, punctual.runs`)
	if p, err := c.Claims.RunProgress(Bounded(t), a.RunID, a.RunToken); err != nil || string(p.Progress) != `{"rows":7}` {
		t.Errorf("progress %+v, error %v", p, err)
	}
}

func TestADeadlineLeavesTheGateToWhoeverHoldsIt(t *testing.T) {
	c := NewReplica(t)
	a := c.Accepted("a", Forbid)
	c.Stranger(`exclusive`)
	before := c.Clock()
	c.Overdue(a.RunID)
	if n := c.Count(`SELECT count(*) FROM punctual.runs r JOIN punctual.ready y ON y.run_id = r.id
		WHERE r.id = $1 AND r.status = 'running' AND r.attempt = 1
			AND y.due_at BETWEEN $2::timestamptz + interval '10 ms' AND now() + interval '1 s'`, a.RunID, before); n != 1 {
		t.Errorf("the run is %s, and not put off", c.State(a.RunID))
	}
}
