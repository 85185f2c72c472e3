package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/runs"
)

// accepted makes a run of a new job whose target has answered 202.
func (c claimer) accepted(name string, options ...option) domain.Assignment {
	c.t.Helper()
	a := c.manual(name, append([]option{byCallback}, options...)...)
	c.accept(a)
	return a
}

func (c claimer) accept(a domain.Assignment) {
	c.t.Helper()
	o := ended(a, domain.Await)
	o.HTTPStatus, o.RetryIn = 202, time.Minute
	c.finishAndRelease(o)
}

// overdue lets the deadline of a run pass and then ends silent attempts as replicas do; replicas have renewed their
// heartbeat all the while. It reports whether the attempt was ended.
func (c claimer) overdue(run uuid.UUID) bool {
	c.t.Helper()
	c.exec(`UPDATE punctual.deployment SET back_at = '-infinity'`)
	c.exec(`UPDATE punctual.replicas SET renewed_at = now()`)
	c.exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s' WHERE run_id = $1`, run)
	before := c.text(`SELECT fence::text FROM punctual.runs WHERE id = $1 AND status = 'running'`, run)
	c.listen()
	return c.count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'running' AND fence::text = $2`,
		run, before) == 0
}

// listen ends the attempts of targets that missed their deadlines, as replicas do.
func (c claimer) listen() {
	c.t.Helper()
	for left := true; left; {
		var wait time.Duration
		var err error
		if wait, left, err = c.Claims.EndSilent(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		left = left && wait == 0
	}
}

func (c claimer) beat(a domain.Assignment, progress string) (claim.Beat, error) {
	var raw json.RawMessage
	if progress != "" {
		raw = json.RawMessage(progress)
	}
	return c.Claims.HeartbeatRun(c.t.Context(), a.RunID, a.RunToken, raw)
}

func (c claimer) mustBeat(a domain.Assignment, progress string) claim.Beat {
	c.t.Helper()
	b, err := c.beat(a, progress)
	must(c.t, err)
	return b
}

// nothingLeft fails the test if a row remains in a table that has rows of unfinished runs only.
func (c claimer) nothingLeft() {
	c.t.Helper()
	c.wantCount(0, "rows are left in ready, claims and exclusive", `SELECT (SELECT count(*) FROM punctual.ready)
		+ (SELECT count(*) FROM punctual.claims)
		+ (SELECT count(active_run) + count(waiting_run) FROM punctual.exclusive)`)
}

func superseded(t *testing.T, err error) {
	t.Helper()
	if _, is := errors.AsType[*runs.SupersededError](err); !is {
		t.Errorf("error %v, want a SupersededError", err)
	}
}

func TestWorkThatGoesOnIsHeldByNoReplica(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a", forbid)
	c.wantState(a.RunID, "running 202 attempt 1 ready in 60")
	c.wantCount(0, "claims hold it", `SELECT count(*) FROM punctual.claims`)
	c.lose(c.replica)
	if n := c.recover(); n != 0 {
		t.Errorf("%d runs recovered: it died with its replica", n)
	}
	if b := c.claimReady(10); len(b.Runs) != 0 {
		t.Error("it was claimed before its deadline")
	}
	if _, err := c.tryTrigger("a"); err == nil {
		t.Error("it does not count as active")
	}
	run, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
	if err != nil || run.Status != domain.StatusSucceeded || run.Attempt != 1 || run.AcceptedAt == nil ||
		run.FinishedAt.Before(*run.StartedAt) {
		t.Errorf("completed: %+v, error %v", run, err)
	}
	c.nothingLeft()
	if again, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil); err != nil ||
		!again.FinishedAt.Equal(*run.FinishedAt) {
		t.Errorf("completed again: %+v, error %v", again, err)
	}
	_, err = c.beat(a, "")
	superseded(t, err)
}

func TestALostReplicaTakesItsClaimWithItBeforeTheAnswerIsRecorded(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("a", byCallback)
	c.mustBeat(a, `{"rows":1}`)
	c.lose(c.replica)
	if n := c.recover(); n != 1 {
		t.Fatalf("%d runs recovered", n)
	}
	_, err := c.beat(a, "")
	superseded(t, err)
}

func TestCompletionMayComeBeforeTheAnswer(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("a", byCallback, forbid)
	if _, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil); err != nil {
		t.Fatal(err)
	}
	c.accept(a) // the 202 arrives only after the completion
	c.wantState(a.RunID, "succeeded attempt 1 finished")
	c.nothingLeft()
}

func TestHeartbeatsPutTheDeadlineOff(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a")
	c.exec(`UPDATE punctual.ready SET due_at = now() + interval '5 s'`)
	if b := c.mustBeat(a, ""); b.CancelRequested || time.Until(b.Deadline) < 50*time.Second {
		t.Errorf("beat %+v", b)
	}
	c.wantState(a.RunID, "running 202 attempt 1 ready in 60")
	// max_duration bounds the deadline, however often the target sends a heartbeat.
	c.exec(`UPDATE punctual.runs SET started_at = now() - interval '59 minutes 30 s'`)
	if b := c.mustBeat(a, ""); time.Until(b.Deadline) > 31*time.Second {
		t.Errorf("beat %+v", b)
	}
	c.exec(`UPDATE punctual.runs SET started_at = now() - interval '61 minutes'`)
	c.overdue(a.RunID)
	if run := c.run(a.RunID); run.Status != domain.StatusDead || // its target may still be working
		run.Attempts[0].Outcome != domain.AttemptTimedOut {
		t.Errorf("after max_duration: %+v", run)
	}
}

func TestASilentTargetLosesItsAttempt(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a", forbid)
	c.mustBeat(a, `{"rows":7}`)
	c.overdue(a.RunID)
	c.wantState(a.RunID, "retrying silent attempt 1 next in 0 ready in 0 attempts: 1 lost silent")
	for _, call := range []func() error{
		func() error { _, err := c.beat(a, ""); return err },
		func() error { _, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil); return err },
		func() error { _, err := c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "x", true); return err },
	} {
		superseded(t, call())
	}
	b := c.one(c.claimReady(10))
	if b.Attempt != 2 || b.Fence <= a.Fence || b.RunToken == a.RunToken {
		t.Fatalf("the next attempt: %+v", b)
	}
	_, err := c.Claims.RunProgress(t.Context(), a.RunID, a.RunToken)
	superseded(t, err)
	p, err := c.Claims.RunProgress(t.Context(), b.RunID, b.RunToken)
	if err != nil || p.Attempt != 2 || string(p.Progress) != `{"rows":7}` || p.RecordedAt == nil {
		t.Errorf("progress %+v, error %v", p, err)
	}
	c.accept(b)
	c.wantState(a.RunID, "running silent 202 attempt 2 ready in 60 attempts: 1 lost silent")
	c.overdue(a.RunID)
	c.accept(c.one(c.claimReady(10)))
	c.overdue(a.RunID)
	c.wantState(a.RunID,
		"dead silent attempt 3 finished dead letter of 3 silent attempts: 1 lost silent, 2 lost silent, 3 lost silent")
	c.nothingLeft()
}

func TestATargetIsNotBlamedForSilenceThatNobodyCouldHear(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a")
	// The database comes back after an hour: no replica has renewed its heartbeat, and the deadline passed long ago.
	away := func() {
		c.exec(`UPDATE punctual.replicas SET renewed_at = now() - interval '1 h'`)
		c.exec(`UPDATE punctual.ready SET due_at = now() - interval '55 minutes'`)
		c.exec(`UPDATE punctual.deployment SET back_at = '-infinity'`)
	}
	away()
	c.listen()
	c.wantState(a.RunID, "running 202 attempt 1 ready in 6")
	away()
	c.renewed()
	c.listen()
	c.wantState(a.RunID, "running 202 attempt 1 ready in 60")
	// A replica that starts also gives the target its time anew.
	away()
	asClaimer(c.crud).listen()
	c.wantState(a.RunID, "running 202 attempt 1 ready in 60")
	// If one of two replicas was cut off, the target gets no extra time: the other replica could receive its calls.
	other := asClaimer(c.crud)
	away()
	c.exec(`UPDATE punctual.replicas SET renewed_at = now() WHERE id = $1`, other.replica)
	c.renewed()
	c.listen()
	c.wantState(a.RunID, "retrying silent attempt 1 next in 0 ready in 0 attempts: 1 lost silent")
}

func TestATargetReportsFailure(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a", forbid)
	for range 2 { // the target calls again if the answer to its first call was lost
		run, err := c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "the ledger is locked", true)
		if err != nil || run.Status != domain.StatusRetrying || orEmpty(run.Reason) != domain.ReasonFailed ||
			orEmpty(run.Error) != "the ledger is locked" || len(run.Attempts) != 1 {
			t.Fatalf("%+v, error %v", run, err)
		}
	}
	b := c.again()
	c.accept(b)
	run, err := c.Runs.FailRun(t.Context(), b.RunID, b.RunToken, "there is no such account", false)
	if err != nil || run.Status != domain.StatusDead || orEmpty(run.Reason) != domain.ReasonFailed {
		t.Errorf("without retry: %+v, error %v", run, err)
	}
	c.wantCount(1, "dead letters",
		`SELECT count(*) FROM punctual.dead_letters WHERE reason = 'failed' AND attempts = 2`)
	c.nothingLeft()
}

func TestAFailureThatNothingCanFollowIsReportedTwice(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a", func(d *domain.Definition) {
		d.ExpiresAfter, d.Retry.InitialBackoff = domain.DurationOf(time.Minute), domain.DurationOf(time.Hour)
	})
	for range 2 {
		if run, err := c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "the ledger is locked", true); err != nil ||
			run.Status != domain.StatusDead || orEmpty(run.Reason) != domain.ReasonExpired {
			t.Fatalf("%+v, error %v", run, err)
		}
	}
	_, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
	superseded(t, err)
}

func TestATokenOfAnAttemptThatAFailoverHasUndone(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("a", byCallback)
	c.exec(`UPDATE punctual.runs SET status = 'pending', fence = NULL, attempt = 0`)
	_, err := c.beat(a, "")
	superseded(t, err)
	_, err = c.Claims.RunProgress(t.Context(), a.RunID, a.RunToken)
	superseded(t, err)
}

func TestCancelOfWorkThatGoesOn(t *testing.T) {
	cancelled := func(t *testing.T) (claimer, domain.Assignment) {
		c := newClaimer(t)
		a := c.accepted("a", forbid)
		run, err := c.Runs.CancelRun(t.Context(), c.tenant, a.RunID)
		if err != nil || run.Status != domain.StatusRunning || orEmpty(run.Reason) != domain.ReasonCancelled {
			t.Fatalf("%+v, error %v", run, err)
		}
		c.wantCount(0, "a replica is told, which does not hold the run", `SELECT count(*) FROM punctual.cancels`)
		return c, a
	}
	t.Run("is told with a heartbeat, which no longer moves the deadline", func(t *testing.T) {
		c, a := cancelled(t)
		c.exec(`UPDATE punctual.ready SET due_at = now() + interval '20 s'`)
		if b := c.mustBeat(a, ""); !b.CancelRequested || time.Until(b.Deadline) > 21*time.Second {
			t.Errorf("beat %+v", b)
		}
		c.wantState(a.RunID, "running cancelled_by_user 202 attempt 1 ready in 20")
	})
	for name, end := range map[string]func(claimer, domain.Assignment) error{
		"completes": func(c claimer, a domain.Assignment) error {
			_, err := c.Runs.CompleteRun(c.t.Context(), a.RunID, a.RunToken, nil)
			return err
		},
		"fails": func(c claimer, a domain.Assignment) error {
			_, err := c.Runs.FailRun(c.t.Context(), a.RunID, a.RunToken, "stopped", true)
			return err
		},
		"says nothing": func(c claimer, a domain.Assignment) error { c.overdue(a.RunID); return nil },
	} {
		t.Run("ends the run when the target "+name, func(t *testing.T) {
			c, a := cancelled(t)
			must(t, end(c, a))
			run := c.run(a.RunID)
			if run.Status != domain.StatusCancelled || orEmpty(run.Reason) != domain.ReasonCancelled {
				t.Errorf("%+v", run)
			}
			c.nothingLeft()
		})
	}
}

func TestANewRunWaitsForWorkThatItReplaces(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a", overlapping(domain.PolicyReplace))
	next := c.trigger("a")
	if b := c.claimReady(10); len(b.Runs) != 0 {
		t.Fatal("it started while the old one was at work")
	}
	if b := c.mustBeat(a, ""); !b.CancelRequested {
		t.Error("the old one is not told")
	}
	if _, err := c.Runs.FailRun(t.Context(), a.RunID, a.RunToken, "stopped", true); err != nil {
		t.Fatal(err)
	}
	if b := c.one(c.claimReady(10)); b.RunID != next.ID {
		t.Errorf("claimed %s", b.RunID)
	}
}

func TestDeletingAJobLeavesWorkThatGoesOn(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a")
	c.deleteJob("a")
	if b := c.mustBeat(a, ""); b.CancelRequested {
		t.Error("a cancel is requested")
	}
	if _, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil); err != nil {
		t.Fatal(err)
	}
	c.wantState(a.RunID, "succeeded 202 attempt 1 finished")
}

func TestRunTokensOpenOneAttemptOfOneRun(t *testing.T) {
	c := newClaimer(t)
	a, other := c.accepted("a"), c.accepted("b")
	for _, token := range []string{
		"", "prt_", other.RunToken, a.RunToken[:len(a.RunToken)-1], a.RunToken + "A", fmt.Sprintf("prt_%064d", 0),
	} {
		if _, err := c.Claims.HeartbeatRun(t.Context(), a.RunID, token, nil); !errors.Is(err, domain.ErrRunToken) {
			t.Errorf("%q: error %v", token, err)
		}
	}
	second := openStore(t, Options{DatabaseURL: c.Options.DatabaseURL, MaxConns: 4})
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
	c := newClaimer(t)
	a := c.accepted("a", forbid)
	c.mustBeat(a, `{"rows":7}`)
	c.stranger(`exclusive, punctual.ready, punctual.runs`)
	if p, err := c.Claims.RunProgress(bounded(t), a.RunID, a.RunToken); err != nil || string(p.Progress) != `{"rows":7}` {
		t.Errorf("progress %+v, error %v", p, err)
	}
}

func TestADeadlineLeavesTheGateToWhoeverHoldsIt(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("a", forbid)
	c.stranger(`exclusive`)
	before := c.now()
	c.overdue(a.RunID)
	if n := c.count(`SELECT count(*) FROM punctual.runs r JOIN punctual.ready y ON y.run_id = r.id
		WHERE r.id = $1 AND r.status = 'running' AND r.attempt = 1
			AND y.due_at BETWEEN $2::timestamptz + interval '1 s' AND now() + interval '1 s'`, a.RunID, before); n != 1 {
		t.Errorf("the run is %s, and not put off by a second", c.state(a.RunID))
	}
}
