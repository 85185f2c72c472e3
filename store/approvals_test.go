package store

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/audit"
	"punctual/store/notices"
	"punctual/store/runs"
)

// approvals makes steps of a workflow wait for approval.
func approvals(a domain.Approval, names ...string) option {
	return func(d *domain.Definition) {
		for i, s := range d.Steps {
			for _, name := range names {
				if s.Name == name {
					d.Steps[i] = domain.Step{Name: name, DependsOn: s.DependsOn, When: s.When, Approval: &a}
				}
			}
		}
	}
}

// await lets the runs of steps wait for approval, as a replica does that has claimed them.
func (c claimer) await(all ...domain.Assignment) {
	c.t.Helper()
	for _, a := range all {
		o := ended(a, domain.Await)
		o.RetryIn = a.Job.MaxDuration.Value()
		c.finishAndRelease(o)
	}
}

// waitForApproval starts a workflow, and lets its only first step wait for approval.
func (c claimer) waitForApproval(job string) (workflow, step domain.Assignment) {
	c.t.Helper()
	workflow = c.startWorkflow(job, "")
	for _, step = range c.claimSteps() {
		c.await(step)
	}
	return workflow, step
}

func (c claimer) decide(run uuid.UUID, approved bool, note string) (runs.Run, error) {
	ctx := audit.WithActor(c.t.Context(), audit.Actor{Kind: audit.Command, Name: "ann"})
	return c.Runs.Decide(ctx, c.tenant, run, approved, note)
}

func TestAStepWaitsForApproval(t *testing.T) {
	c := newClaimer(t)
	c.create("etl", never, steps("approve", "load<approve"), approvals(domain.Approval{}, "approve"))
	w, a := c.waitForApproval("etl")
	c.wantState(a.RunID, "running attempt 1 ready in 86400")
	c.wantCount(0, "leases are held", `SELECT count(*) FROM punctual.claims`)
	waits, err := c.Runs.RunWaitsFor(t.Context(), c.tenant, a.RunID)
	c.must(err)
	if waits == nil || waits.What != "approval" || waits.Until == nil ||
		waits.Until.Sub(waits.Since).Round(time.Minute) != 24*time.Hour {
		t.Errorf("it waits for %+v", waits)
	}
	whole, err := c.Runs.GetRun(t.Context(), c.tenant, w.RunID)
	c.must(err)
	if !strings.Contains(whole.WaitingFor.What, "approve waits for approval until 20") {
		t.Errorf("the workflow waits for %s", whole.WaitingFor.What)
	}
	run, err := c.decide(w.RunID, true, `looks {{"good"}}`)
	c.must(err)
	if run.ID != a.RunID || !strings.HasPrefix(string(run.Result),
		`{"decision":"approved","by":"command ann","note":"looks {{\"good\"}}","at":"20`) {
		t.Errorf("run %s has the result %s", run.ID, run.Result)
	}
	c.goOn()
	load := c.claimSteps()["load"]
	if !strings.Contains(string(load.Body), `{"approve":{"status":"succeeded","result":{"decision":"approved"`) {
		t.Errorf("load is sent %s", load.Body)
	}
	for _, id := range []uuid.UUID{a.RunID, w.RunID} {
		c.tooLate(id, "was approved by command ann at 20")
	}
	c.wantCount(1, "entries of the audit log", `
		SELECT count(*) FROM punctual.audit_log WHERE action = 'run.approve' AND actor = 'ann' AND resource_id = $1
		   AND after ->> 'note' = 'looks {{"good"}}'`, a.RunID)
	c.finishAndRelease(succeeded(load))
	c.listen()
	c.wantState(w.RunID, "succeeded attempt 1 finished")
	c.goOn()
	c.nothingLeft()
	c.clean()
}

// tooLate fails the test unless a decision comes too late, and the error says so.
func (c claimer) tooLate(run uuid.UUID, says string) {
	c.t.Helper()
	if _, err := c.decide(run, true, ""); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), says) {
		c.t.Errorf("error %v, want one that says %q", err, says)
	}
}

func TestHowAnApprovalEnds(t *testing.T) {
	hour := domain.Approval{ExpiresAfter: domain.DurationOf(time.Hour)}
	for name, with := range map[string]struct {
		do                 func(c claimer, w, a domain.Assignment)
		state, told, whole string
	}{
		"it is rejected": {
			do: func(c claimer, _, a domain.Assignment) {
				_, err := c.decide(a.RunID, false, "not today")
				c.must(err)
			},
			state: "dead rejected attempt 1 finished attempts: 1 failed rejected",
			told:  "was rejected by command ann at 20", whole: "dead rejected: step a is dead (rejected): rejected by command ann",
		},
		"its time is up": {
			do: func(c claimer, _, a domain.Assignment) {
				c.exec(`UPDATE punctual.runs SET started_at = started_at - interval '1 hour' WHERE id = $1`, a.RunID)
				c.overdue(a.RunID)
			},
			state: "dead approval_expired attempt 1 finished attempts: 1 timed_out approval_expired",
			told:  "has ended as dead, approval_expired",
			whole: "dead approval_expired: step a is dead (approval_expired): it was neither approved nor rejected within " +
				"its expires_after of 1h0m0s",
		},
		"it is cancelled": {
			do:    func(c claimer, _, a domain.Assignment) { c.cancel(a.RunID) },
			state: "cancelled cancelled_by_user attempt 1 finished attempts: 1 cancelled cancelled_by_user",
			told:  "has ended as cancelled, cancelled_by_user", whole: "dead upstream_failed: step a is cancelled",
		},
		"its workflow is cancelled": {
			do: func(c claimer, w, _ domain.Assignment) {
				c.cancel(w.RunID)
				c.goOn()
			},
			state: "cancelled cancelled_by_user attempt 1 finished attempts: 1 cancelled cancelled_by_user",
			told:  "has ended as cancelled, cancelled_by_user", whole: "cancelled cancelled_by_user: ",
		},
		"its workflow has had its time": {
			do: func(c claimer, w, _ domain.Assignment) {
				c.exec(`UPDATE punctual.runs SET started_at = started_at - interval '8 days' WHERE id = $1`, w.RunID)
				c.overdue(w.RunID)
			},
			state: "cancelled cancelled_by_user attempt 1 finished attempts: 1 cancelled cancelled_by_user",
			told:  "has ended as cancelled, cancelled_by_user",
			whole: "dead timeout: its steps have not ended within its max_duration of 168h",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			c.create("w", never, steps("a", "b<a"), approvals(hour, "a"))
			w, a := c.waitForApproval("w")
			with.do(c, w, a)
			c.goOn()
			c.listen()
			c.wantState(a.RunID, with.state)
			c.tooLate(a.RunID, with.told)
			c.goOn()
			if got := c.text(`SELECT concat_ws(' ', status, reason) || ': ' || coalesce(error, '') FROM punctual.runs
				WHERE id = $1`, w.RunID); !strings.HasPrefix(got, with.whole) {
				t.Errorf("the workflow is %s, want %s", got, with.whole)
			}
			c.wantCount(0, "steps go on", `SELECT count(*) FROM punctual.runs
				WHERE step = 'b' AND status NOT IN ('skipped', 'cancelled')`)
			c.nothingLeft()
			c.clean()
		})
	}
}

// A cancel that comes while a replica has the run, which is about to wait, ends it before anybody can decide.
func TestAnApprovalIsCancelledBeforeItWaits(t *testing.T) {
	c := newClaimer(t)
	c.create("w", never, steps("a"), approvals(domain.Approval{}, "a"))
	c.startWorkflow("w", "")
	a := c.claimSteps()["a"]
	c.tooLate(a.RunID, "does not wait for approval yet")
	c.cancel(a.RunID)
	c.await(a)
	c.tooLate(a.RunID, "is being cancelled")
	c.listen()
	c.wantState(a.RunID, "cancelled cancelled_by_user attempt 1 finished attempts: 1 cancelled cancelled_by_user")
}

// Of two people who decide at once, on two replicas, one does, and the other learns who.
func TestOneDecisionCounts(t *testing.T) {
	c := newClaimer(t)
	c.create("w", never, steps("a", "b"), approvals(domain.Approval{}, "a", "b"))
	w := c.startWorkflow("w", "")
	both := c.claimSteps()
	c.await(both["a"], both["b"])
	c.tooLate(w.RunID, "a (run "+both["a"].RunID.String()+"), b (run "+both["b"].RunID.String()+")")
	other := c
	other.Store = openStore(t, c.Options)
	errs := make([]error, 2)
	var deciding sync.WaitGroup
	for i, who := range []claimer{c, other} {
		deciding.Go(func() { _, errs[i] = who.decide(both["a"].RunID, i == 0, "") })
	}
	deciding.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("both or none decided: %v", errs)
	}
	if err := errors.Join(errs...); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "by command ann at") {
		t.Errorf("the second is told %v", err)
	}
	c.wantCount(1, "entries of the audit log", `
		SELECT count(*) FROM punctual.audit_log WHERE action IN ('run.approve', 'run.reject')`)
}

// The notice that a step waits is written with what makes it wait, sent once to each recipient, and its link decides.
func TestTheLinkOfAnApproval(t *testing.T) {
	t.Parallel()
	c := asClaimer(openCRUD(t, Options{
		DatabaseURL: pgtest.DSN(t), MaxConns: 8, Master: pgtest.Master(t), PublicURL: "https://punctual.example", Pages: true,
	}))
	c.create("etl", never, steps("approve", "other"), notify(hook, domain.EventDead), approvals(domain.Approval{
		Notify: []domain.ApprovalNotify{
			{URL: "https://one.example/"}, {Format: domain.FormatEmail, To: "ann@example.com"},
		},
	}, "approve"), approvals(domain.Approval{}, "other"))
	c.startWorkflow("etl", "")
	both := c.claimSteps()
	a := both["approve"]
	c.await(a, both["other"])
	c.wantCount(2, "notices wait", `SELECT count(*) FROM punctual.approval_notices WHERE run_id = $1`, a.RunID)
	token := ""
	for range 3 { // the second recipient cannot be reached at first
		m, err := c.Notices.ClaimNotice(t.Context())
		c.must(err)
		if m == nil {
			t.Fatal("there is no notice")
		}
		if again, err := c.Notices.ClaimNotice(t.Context()); err != nil || again != nil && again.Nth == m.Nth {
			t.Errorf("while it is under way, it is sent again: %v", err)
		}
		if !strings.Contains(m.Headline, "Job etl: step approve waits for approval") {
			t.Errorf("the headline is %s", m.Headline)
		}
		answered := notice.Answer{Arrival: notice.Delivered}
		if m.To.Format == domain.FormatEmail {
			_, after, _ := strings.Cut(string(m.Body), "https://punctual.example/approvals/"+a.RunID.String()+"?token=")
			var ok bool
			if token, _, ok = strings.Cut(after, `\n`); !ok || !strings.Contains(string(m.Body), ", until 20") {
				t.Errorf("the mail is %s", m.Body)
			}
			c.wantCount(1, "leases", `SELECT count(*) FROM punctual.approval_notices WHERE lease = $1`, m.ID)
		}
		if m.Nth == 1 && c.count(`SELECT count(*) FROM punctual.approval_notices WHERE failures > 0`) == 0 {
			answered.Arrival = notice.Unsent
		}
		c.must(c.Notices.Answered(t.Context(), *m, answered))
		c.exec(`UPDATE punctual.approval_notices SET due_at = now()`)
	}
	c.wantCount(0, "notices wait", `SELECT count(*) FROM punctual.approval_notices`)
	list, _, _, err := c.Notices.ListNotices(t.Context(), c.tenant, notices.Filter{})
	c.must(err)
	if len(list) != 2 || list[0].Events[0] != "approval" {
		t.Errorf("the list is %+v", list)
	}

	key, err := c.Claims.ReadTokenKey(t.Context(), c.DB.Callers)
	c.must(err)
	for name, bad := range map[string]string{
		"none": "", "another's": domain.ApprovalToken(key, both["other"].RunID, 1), "cut": token[:len(token)-1],
		"of a recipient that is none": domain.ApprovalToken(key, a.RunID, 2), "a run token": domain.RunToken(key, a.RunID, 1),
	} {
		if _, err := c.Runs.DecideByLink(t.Context(), a.RunID, bad, true, ""); !errors.Is(err, domain.ErrApprovalToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := domain.ReadRunToken(key, a.RunID, token); err == nil {
		t.Error("the token of a link is taken for a run token")
	}
	seen, err := c.Runs.ByLink(t.Context(), a.RunID, token)
	c.must(err)
	if seen.Status != domain.StatusRunning || seen.SentTo != "ann@example.com" || seen.Until == nil || seen.Decision != "" {
		t.Errorf("the link shows %+v", seen)
	}
	if seen, err = c.Runs.DecideByLink(t.Context(), a.RunID, token, false, "no"); err != nil ||
		!strings.HasPrefix(seen.Decision, "rejected by the link sent to ann@example.com at 20") {
		t.Errorf("the link shows %+v, error %v", seen, err)
	}
	_, err = c.Runs.DecideByLink(t.Context(), a.RunID, token, true, "")
	if !errors.Is(err, ErrState) {
		t.Errorf("after the decision: %v", err)
	}
	c.wantCount(1, "entries of the audit log", `
		SELECT count(*) FROM punctual.audit_log
		WHERE action = 'run.reject' AND actor_kind = 'link' AND actor = 'ann@example.com'`)
}

// A notice that could not be sent before the decision is sent no more.
func TestADecisionEndsItsNotices(t *testing.T) {
	c := newClaimer(t)
	c.create("w", never, steps("a"), approvals(domain.Approval{
		Notify: []domain.ApprovalNotify{{URL: "https://one.example/"}},
	}, "a"))
	_, a := c.waitForApproval("w")
	_, err := c.decide(a.RunID, true, "")
	c.must(err)
	if m, err := c.Notices.ClaimNotice(t.Context()); m != nil || err != nil {
		t.Errorf("%+v, error %v", m, err)
	}
	c.wantCount(0, "notices wait", `SELECT count(*) FROM punctual.approval_notices`)
}

// However many recipients a tenant has, and however slow they are, messengers are left to others.
func TestFewNoticesOfApprovalsOfATenantAreUnderWayAtOnce(t *testing.T) {
	c := newClaimer(t)
	c.create("w", never, steps("a"), approvals(domain.Approval{
		Notify: slices.Repeat([]domain.ApprovalNotify{{URL: "https://one.example/"}}, 10),
	}, "a"))
	c.waitForApproval("w")
	claim := func() (got []notice.Outgoing) {
		for {
			m, err := c.Notices.ClaimNotice(t.Context())
			c.must(err)
			if m == nil {
				return got
			}
			got = append(got, *m)
		}
	}
	first := claim()
	if len(first) != 4 {
		t.Fatalf("%d are under way", len(first))
	}
	c.must(c.Notices.Answered(t.Context(), first[0], notice.Answer{Arrival: notice.Delivered}))
	c.must(c.Notices.Answered(t.Context(), first[1], notice.Answer{Arrival: notice.Unsent}))
	if next := claim(); len(next) != 2 {
		t.Errorf("after two answers %d more are under way", len(next))
	}
}
