package store_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/notices"
	"punctual/store/runs"
)

// approvals makes steps of a workflow wait for approval.
func approvals(a domain.Approval, names ...string) Option {
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
func await(c Replica, all ...domain.Assignment) {
	c.T.Helper()
	for _, a := range all {
		o := Ended(a, domain.Await)
		o.RetryIn = a.Job.MaxDuration.Value()
		c.FinishAndRelease(o)
	}
}

// waitForApproval starts a workflow, and lets its only first step wait for approval.
func waitForApproval(c Replica, job string) (workflow, step domain.Assignment) {
	c.T.Helper()
	workflow = c.StartWorkflow(job, "")
	for _, step = range c.ClaimSteps() {
		await(c, step)
	}
	return workflow, step
}

func decide(c Replica, run uuid.UUID, approved bool, note string) (runs.Run, error) {
	ctx := audit.WithActor(c.T.Context(), audit.Actor{Kind: audit.Command, Name: "ann"})
	return c.Runs.Decide(ctx, c.Tenant, run, approved, note)
}

func TestAStepWaitsForApproval(t *testing.T) {
	c := NewReplica(t)
	c.Create("etl", Never, Steps("approve", "load<approve"), approvals(domain.Approval{}, "approve"))
	w, a := waitForApproval(c, "etl")
	c.WantState(a.RunID, "running attempt 1 ready in 86400")
	c.WantCount(0, "leases are held", `SELECT count(*) FROM punctual.claims`)
	waits, err := c.Runs.RunWaitsFor(t.Context(), c.Tenant, a.RunID)
	c.Must(err)
	if waits == nil || waits.What != "approval" || waits.Until == nil ||
		waits.Until.Sub(waits.Since).Round(time.Minute) != 24*time.Hour {
		t.Errorf("it waits for %+v", waits)
	}
	whole, err := c.Runs.GetRun(t.Context(), c.Tenant, w.RunID)
	c.Must(err)
	if !strings.Contains(whole.WaitingFor.What, "approve waits for approval until 20") {
		t.Errorf("the workflow waits for %s", whole.WaitingFor.What)
	}
	run, err := decide(c, w.RunID, true, `looks {{"good"}}`)
	c.Must(err)
	if run.ID != a.RunID || !strings.HasPrefix(string(run.Result),
		`{"decision":"approved","by":"command ann","note":"looks {{\"good\"}}","at":"20`) {
		t.Errorf("run %s has the result %s", run.ID, run.Result)
	}
	c.GoOn()
	load := c.ClaimSteps()["load"]
	if sent := c.SentBody(load); !strings.Contains(sent, `{"approve":{"status":"succeeded","result":{"decision":"approved"`) {
		t.Errorf("load is sent %s", sent)
	}
	for _, id := range []uuid.UUID{a.RunID, w.RunID} {
		tooLate(c, id, "was approved by command ann at 20")
	}
	c.WantCount(1, "entries of the audit log", `
		SELECT count(*) FROM punctual.audit_log WHERE action = 'run.approve' AND actor = 'ann' AND resource_id = $1
		   AND after ->> 'note' = 'looks {{"good"}}'`, a.RunID)
	c.FinishAndRelease(Succeeded(load))
	c.Listen()
	c.WantState(w.RunID, "succeeded attempt 1 finished")
	c.GoOn()
	c.NothingLeft()
	c.Clean()
}

// tooLate fails the test unless a decision comes too late, and the error says so.
func tooLate(c Replica, run uuid.UUID, says string) {
	c.T.Helper()
	if _, err := decide(c, run, true, ""); !errors.Is(err, store.ErrState) || !strings.Contains(err.Error(), says) {
		c.T.Errorf("error %v, want one that says %q", err, says)
	}
}

func TestHowAnApprovalEnds(t *testing.T) {
	t.Parallel()
	hour := domain.Approval{ExpiresAfter: domain.DurationOf(time.Hour)}
	for name, with := range map[string]struct {
		do                 func(c Replica, w, a domain.Assignment)
		state, told, whole string
	}{
		"it is rejected": {
			do: func(c Replica, _, a domain.Assignment) {
				_, err := decide(c, a.RunID, false, "not today")
				c.Must(err)
			},
			state: "dead rejected attempt 1 finished attempts: 1 failed rejected",
			told:  "was rejected by command ann at 20", whole: "dead rejected: step a is dead (rejected): rejected by command ann",
		},
		"its time is up": {
			do: func(c Replica, _, a domain.Assignment) {
				c.Exec(`UPDATE punctual.runs SET started_at = started_at - interval '1 hour' WHERE id = $1`, a.RunID)
				c.Overdue(a.RunID)
			},
			state: "dead approval_expired attempt 1 finished attempts: 1 timed_out approval_expired",
			told:  "has ended as dead, approval_expired",
			whole: "dead approval_expired: step a is dead (approval_expired): it was neither approved nor rejected within " +
				"its expires_after of 1h0m0s",
		},
		"its workflow has had its time": {
			do: func(c Replica, w, _ domain.Assignment) {
				c.Exec(`UPDATE punctual.runs SET started_at = started_at - interval '8 days' WHERE id = $1`, w.RunID)
				c.Overdue(w.RunID)
			},
			state: "cancelled timeout attempt 1 finished attempts: 1 cancelled timeout",
			told:  "has ended as cancelled, timeout",
			whole: "dead timeout: its steps have not ended within its max_duration of 168h",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			c.Create("w", Never, Steps("a", "b<a"), approvals(hour, "a"))
			w, a := waitForApproval(c, "w")
			with.do(c, w, a)
			c.GoOn()
			c.Listen()
			c.WantState(a.RunID, with.state)
			tooLate(c, a.RunID, with.told)
			c.GoOn()
			if got := c.Text(`SELECT concat_ws(' ', status, reason) || ': ' || coalesce(error, '') FROM punctual.runs
				WHERE id = $1`, w.RunID); !strings.HasPrefix(got, with.whole) {
				t.Errorf("the workflow is %s, want %s", got, with.whole)
			}
			c.WantCount(0, "steps go on", `SELECT count(*) FROM punctual.runs
				WHERE step = 'b' AND status NOT IN ('skipped', 'cancelled')`)
			c.NothingLeft()
			c.Clean()
		})
	}
}

// A cancel that comes while a replica has the run, which is about to wait, ends it before anybody can decide.
func TestAnApprovalIsCancelledBeforeItWaits(t *testing.T) {
	c := NewReplica(t)
	c.Create("w", Never, Steps("a"), approvals(domain.Approval{}, "a"))
	c.StartWorkflow("w", "")
	a := c.ClaimSteps()["a"]
	tooLate(c, a.RunID, "does not wait for approval yet")
	c.Cancel(a.RunID)
	await(c, a)
	tooLate(c, a.RunID, "is being cancelled")
	c.Listen()
	c.WantState(a.RunID, "cancelled cancelled_by_user attempt 1 finished attempts: 1 cancelled cancelled_by_user")
}

// Of two people who decide at once, on two replicas, one does, and the other learns who.
func TestOneDecisionCounts(t *testing.T) {
	c := NewReplica(t)
	c.Create("w", Never, Steps("a", "b"), approvals(domain.Approval{}, "a", "b"))
	w := c.StartWorkflow("w", "")
	both := c.ClaimSteps()
	await(c, both["a"], both["b"])
	tooLate(c, w.RunID, "a (run "+both["a"].RunID.String()+"), b (run "+both["b"].RunID.String()+")")
	other := c
	other.Store = OpenStore(t, c.Options)
	errs := make([]error, 2)
	var deciding sync.WaitGroup
	for i, who := range []Replica{c, other} {
		deciding.Go(func() { _, errs[i] = decide(who, both["a"].RunID, i == 0, "") })
	}
	deciding.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("both or none decided: %v", errs)
	}
	if err := errors.Join(errs...); !errors.Is(err, store.ErrState) || !strings.Contains(err.Error(), "by command ann at") {
		t.Errorf("the second is told %v", err)
	}
	c.WantCount(1, "entries of the audit log", `
		SELECT count(*) FROM punctual.audit_log WHERE action IN ('run.approve', 'run.reject')`)
}

// The notice that a step waits is written with what makes it wait, sent once to each recipient, and its link decides.
func TestTheLinkOfAnApproval(t *testing.T) {
	t.Parallel()
	c := AsReplica(OpenFixture(t, store.Options{
		DatabaseURL: pgtest.DSN(t), MaxConns: 8, Master: pgtest.Master(t), PublicURL: "https://punctual.example", Pages: true,
	}))
	c.Create("etl", Never, Steps("approve", "other"), Notify(Hook, domain.EventDead), approvals(domain.Approval{
		Notify: []domain.ApprovalNotify{
			{URL: "https://one.example/"}, {Format: domain.FormatEmail, To: "ann@example.com"},
		},
	}, "approve"), approvals(domain.Approval{}, "other"))
	c.StartWorkflow("etl", "")
	both := c.ClaimSteps()
	a := both["approve"]
	await(c, a, both["other"])
	c.WantCount(2, "notices wait", `SELECT count(*) FROM punctual.outbox WHERE run_id = $1`, a.RunID)
	token := ""
	for range 3 { // the second recipient cannot be reached at first
		m, err := c.Notices.Claim(t.Context(), true)
		c.Must(err)
		if m == nil {
			t.Fatal("there is no notice")
		}
		if again, err := c.Notices.Claim(t.Context(), true); err != nil || again != nil && again.Recipient == m.Recipient {
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
			c.WantCount(1, "leases", `SELECT count(*) FROM punctual.outbox WHERE under_way AND message = $1`, m.ID)
		}
		if m.To.Format == domain.FormatEmail && c.Count(`SELECT count(*) FROM punctual.outbox WHERE failures > 0`) == 0 {
			answered.Arrival = notice.Unsent
		}
		c.Must(c.Notices.Answered(t.Context(), *m, answered))
		c.Exec(`UPDATE punctual.outbox SET held_until = now()`)
	}
	c.WantCount(0, "notices wait", `SELECT count(*) FROM punctual.outbox`)
	list, _, _, err := c.Notices.ListNotices(t.Context(), c.Tenant, notices.Filter{})
	c.Must(err)
	if len(list) != 2 || list[0].Events[0] != "approval" {
		t.Errorf("the list is %+v", list)
	}

	key, err := c.Claims.ReadTokenKey(t.Context(), c.DB.Callers)
	c.Must(err)
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
	c.Must(err)
	if seen.Status != domain.StatusRunning || seen.SentTo != "ann@example.com" || seen.Until == nil || seen.Decision != "" {
		t.Errorf("the link shows %+v", seen)
	}
	if seen, err = c.Runs.DecideByLink(t.Context(), a.RunID, token, false, "no"); err != nil ||
		!strings.HasPrefix(seen.Decision, "rejected by the link sent to ann@example.com at 20") {
		t.Errorf("the link shows %+v, error %v", seen, err)
	}
	_, err = c.Runs.DecideByLink(t.Context(), a.RunID, token, true, "")
	if !errors.Is(err, store.ErrState) {
		t.Errorf("after the decision: %v", err)
	}
	c.WantCount(1, "entries of the audit log", `
		SELECT count(*) FROM punctual.audit_log
		WHERE action = 'run.reject' AND actor_kind = 'link' AND actor = 'ann@example.com'`)
}

// A notice that could not be sent before the decision is sent no more.
func TestADecisionEndsItsNotices(t *testing.T) {
	c := NewReplica(t)
	c.Create("w", Never, Steps("a"), approvals(domain.Approval{
		Notify: []domain.ApprovalNotify{{URL: "https://one.example/"}},
	}, "a"))
	_, a := waitForApproval(c, "w")
	_, err := decide(c, a.RunID, true, "")
	c.Must(err)
	if m, err := c.Notices.Claim(t.Context(), true); m != nil || err != nil {
		t.Errorf("%+v, error %v", m, err)
	}
	c.WantCount(0, "notices wait", `SELECT count(*) FROM punctual.outbox`)
}

// However many recipients a tenant has, and however slow they are, senders are left to others.
func TestFewNoticesOfApprovalsOfATenantAreUnderWayAtOnce(t *testing.T) {
	c := NewReplica(t)
	c.Create("w", Never, Steps("a"), approvals(domain.Approval{
		Notify: slices.Repeat([]domain.ApprovalNotify{{URL: "https://one.example/"}}, 10),
	}, "a"))
	waitForApproval(c, "w")
	claim := func() (got []notice.Outgoing) {
		for {
			m, err := c.Notices.Claim(t.Context(), true)
			c.Must(err)
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
	c.Must(c.Notices.Answered(t.Context(), first[0], notice.Answer{Arrival: notice.Delivered}))
	c.Must(c.Notices.Answered(t.Context(), first[1], notice.Answer{Arrival: notice.Unsent}))
	if next := claim(); len(next) != 2 {
		t.Errorf("after two answers %d more are under way", len(next))
	}
}
