package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/fleet"
	"punctual/store/history"
)

const down = "breaker a.test:443"

// hold is the outcome that parks a run for a while.
func hold(a domain.Assignment, by string, since time.Time, patience time.Duration) domain.Outcome {
	o := unsent(a, domain.Hold)
	o.Held = &domain.Held{By: by, Since: since, Until: since.Add(patience)}
	o.RetryIn, o.Error = patience, "waiting: the circuit breaker of a.test:443 is open"
	return o
}

// parked makes n jobs, each with a run that waits for a host. The first run has waited longest.
func (c claimer) parked(n int, by string) (runs, jobs []uuid.UUID) {
	c.t.Helper()
	c.many(n, "parked-"+uuid.NewString()[:8], 0)
	batch := c.claim(n, false)
	if len(batch.Runs) != n {
		c.t.Fatalf("%d of %d runs claimed", len(batch.Runs), n)
	}
	outcomes := make([]domain.Outcome, n)
	for i, a := range batch.Runs {
		outcomes[i] = hold(a, by, a.Lease.ClaimedAt.Add(time.Duration(i-n)*time.Second), time.Hour)
		runs, jobs = append(runs, a.RunID), append(jobs, a.Job.ID)
	}
	c.finish(outcomes...)
	return runs, jobs
}

func (c claimer) fetch(held scheduler.HeldClaim) domain.Batch {
	c.t.Helper()
	held.Tenant, held.Lanes = c.tenant, []int16{c.queue * 4, c.queue*4 + 1, c.queue*4 + 2}
	b, err := c.Claims.ClaimReady(c.t.Context(), scheduler.Claim{Replica: c.replica, Held: &held})
	must(c.t, err)
	return b
}

func (c claimer) report(states ...admit.HoldState) []admit.HoldOrder {
	c.t.Helper()
	for i := range states {
		states[i].Tenant = c.tenant
	}
	orders, err := c.Claims.ReportHolds(c.t.Context(), c.replica, states)
	must(c.t, err)
	return orders
}

func openHold(host string) admit.HoldState {
	return admit.HoldState{
		By: "breaker " + host, State: admit.HoldOpen, Host: host, Failures: 12, LastError: "connection refused",
		For: time.Minute, ProbeIn: time.Second,
	}
}

func TestARunThatIsHeldBackWaitsInReady(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("held")
	c.finish(hold(a, down, a.Lease.ClaimedAt, 40*time.Second))
	c.wantState(a.RunID, "pending attempt 0 ready in 40")
	if c.count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND started_at IS NULL`, a.RunID) != 1 {
		t.Error("it was never sent, and says when it was started")
	}
	w, err := c.Runs.RunWaitsFor(t.Context(), c.tenant, a.RunID)
	if err != nil || w == nil || w.Until == nil || w.Until.Sub(w.Since) != 40*time.Second {
		t.Fatalf("it waits for %+v, %v", w, err)
	}
	if w, err := c.Runs.RunWaitsFor(t.Context(), c.tenant+1, a.RunID); w != nil || err != nil {
		t.Errorf("another tenant sees %+v, %v", w, err)
	}
	// A run that was sent once and waits now keeps the start time of that attempt.
	b := c.manual("again")
	c.finish(failed(b))
	c.exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id = $1`, b.RunID)
	again := c.one(c.claimReady(10))
	c.finish(hold(again, down, again.Lease.ClaimedAt, time.Minute))
	if c.count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND started_at = $2`, b.RunID, b.Lease.ClaimedAt) != 1 {
		t.Error("it does not say when its only attempt was started")
	}
}

func TestTheLongestUnsentIsFetchedFirst(t *testing.T) {
	c := newClaimer(t)
	runs, jobs := c.parked(5, down)
	others, _ := c.parked(2, "breaker b.test:443")
	fetched := func(b domain.Batch) (ids []uuid.UUID) {
		for _, a := range b.Runs {
			if a.Held == nil || !a.Held.Fetched || a.Held.Until.Sub(a.Held.Since) != time.Hour {
				t.Errorf("fetched with %+v", a.Held)
			}
			ids = append(ids, a.RunID)
		}
		return ids
	}
	if b := c.claimReady(10); len(b.Runs) != 0 {
		t.Errorf("%d runs that wait for their host are claimed as others", len(b.Runs))
	}
	if b := c.fetch(scheduler.HeldClaim{By: down, Most: 1}); fmt.Sprint(fetched(b)) != fmt.Sprint(runs[:1]) ||
		len(b.Full) == 0 {
		t.Errorf("the first: %v, full %v", b.Runs, b.Full)
	}
	if b := c.fetch(scheduler.HeldClaim{By: down, Most: 1, Not: jobs[1:3]}); fmt.Sprint(fetched(b)) !=
		fmt.Sprint(runs[3:4]) {
		t.Errorf("of jobs that had no turn yet: %v", fetched(b))
	}
	if b := c.fetch(scheduler.HeldClaim{By: down, Most: 10}); len(fetched(b)) != 3 || len(b.Full) != 0 {
		t.Errorf("the rest: %v, full %v", b.Runs, b.Full)
	}
	held := scheduler.HeldClaim{By: "breaker b.test:443", Most: 10, Tenant: c.tenant, Lanes: []int16{399}}
	if b, err := c.Claims.ClaimReady(t.Context(), scheduler.Claim{Replica: c.replica, Held: &held}); err != nil ||
		len(b.Runs) != 0 {
		t.Errorf("of a queue without slots: %v, %v", b.Runs, err)
	}
	if b := c.fetch(scheduler.HeldClaim{By: "breaker b.test:443", Most: 10}); len(fetched(b)) != len(others) {
		t.Errorf("of the other host: %v", fetched(b))
	}
}

func TestWhatNobodyHoldsBackIsReleased(t *testing.T) {
	c := newClaimer(t)
	runs, _ := c.parked(3, down)
	c.parked(2, "breaker b.test:443")
	c.report(openHold("a.test:443"), openHold("b.test:443"))
	unheld := func() bool { return c.wants(scheduler.ChoreHolds) }
	release := func() int {
		if _, err := c.Claims.ReportHolds(t.Context(), uuid.New(), nil); err != nil { // of a replica that holds nothing back
			t.Fatal(err)
		}
		return c.count(`SELECT count(*) FROM punctual.ready WHERE held_by IS NULL`)
	}
	if unheld() || release() != 0 {
		t.Error("runs are released that a replica holds back")
	}
	c.report(openHold("b.test:443"))
	if n := c.count(`SELECT count(*) FROM punctual.ready WHERE held_by IS NULL`); n != 3 || unheld() {
		t.Errorf("%d runs whose breaker has closed are released, want 3", n)
	}
	b := c.claimReady(10)
	if len(b.Runs) != 3 || b.Runs[0].Held == nil || b.Runs[0].Held.Fetched {
		t.Fatalf("claimed %+v", b.Runs)
	}
	if got := c.state(runs[0]); !strings.HasPrefix(got, "running") {
		t.Errorf("it is %s", got)
	}
	c.exec(`DELETE FROM punctual.replicas WHERE id = $1`, c.replica) // the replica is lost, and its holds are gone with it
	if !unheld() || release() != 2 || unheld() {
		t.Error("runs are not released that a lost replica held back")
	}
}

// A breaker has just opened, and its replica has not reported it yet. Only a report releases runs, as it says first
// what its replica holds back.
func TestNoChoreOfTheStoreReleasesWhatIsNotReportedYet(t *testing.T) {
	c := newClaimer(t)
	c.parked(3, down)
	for _, chore := range c.Chores() {
		if _, _, err := chore.Batch(t.Context()); err != nil {
			t.Errorf("%s: %v", chore.Name, err)
		}
	}
	const held = `SELECT count(*) FROM punctual.ready WHERE held_by IS NOT NULL`
	if n := c.count(held); n != 3 {
		t.Errorf("%d runs wait for their host after the chores, want 3", n)
	}
	c.report(openHold("a.test:443"))
	if n := c.count(held); n != 3 {
		t.Errorf("%d runs wait for their host after the report, want 3", n)
	}
}

func TestHoldsAreListedAndReset(t *testing.T) {
	c := newClaimer(t)
	c.parked(3, down)
	other := c
	other.replica = uuid.New()
	c.exec(`INSERT INTO punctual.replicas (id, host, version, queues) VALUES ($1, 'h', 'v', '{}')`, other.replica)
	c.report(openHold("a.test:443"), admit.HoldState{
		By: "hanging b.test:80/x", State: admit.HoldHanging, Host: "b.test:80", Path: "/x",
		Failures: 3, For: time.Second,
	})
	recovering := openHold("a.test:443")
	recovering.State = admit.HoldRecovering
	other.report(recovering)
	list := func() []fleet.Breaker {
		holds, err := c.Fleet.Holds(t.Context(), c.tenant)
		must(t, err)
		return holds
	}
	holds := list()
	if len(holds) != 2 || holds[0].HeldBy != down || holds[0].State != admit.HoldOpen ||
		holds[0].Replicas != 2 || holds[0].WaitingRuns != 3 || holds[0].WaitingSince == nil || holds[0].NextProbeAt == nil ||
		holds[1].Path != "/x" || holds[1].State != admit.HoldHanging || holds[1].WaitingRuns != 0 {
		t.Errorf("%+v", holds)
	}
	if elsewhere, err := c.Fleet.Holds(t.Context(), c.tenant+1); err != nil || len(elsewhere) != 0 {
		t.Errorf("another tenant sees %v, %v", elsewhere, err)
	}
	if orders := c.report(openHold("a.test:443")); len(orders) != 1 || orders[0].Reset || orders[0].Host != "a.test:443" {
		t.Errorf("another replica has reached the host: %+v", orders)
	}
	if n, err := c.Fleet.ResetHolds(t.Context(), c.tenant, "a.test:443"); err != nil || n != 2 {
		t.Errorf("%d holds are reset, %v", n, err)
	}
	if orders := c.report(openHold("a.test:443")); len(orders) != 2 || !orders[0].Reset && !orders[1].Reset {
		t.Errorf("after the reset: %+v", orders)
	}
	if c.report(); len(list()) != 1 {
		t.Errorf("a replica that holds nothing back any more: %+v", list())
	}
}

func TestOverdueSaysWhatHoldsItBack(t *testing.T) {
	c := newClaimer(t)
	heldBy := func(name string) string {
		return c.text(`SELECT coalesce(string_agg(coalesce(held_by, '-'), ', ' ORDER BY due_at), 'not overdue')
			FROM punctual.overdue
			WHERE job = $1`, name)
	}
	a := c.manual("host")
	c.finish(hold(a, down, a.Lease.ClaimedAt, time.Hour))
	c.manual("gate", forbid)
	if _, err := c.tryTrigger("gate"); err == nil {
		t.Fatal("two runs of a job that must not overlap")
	}
	slot, _ := c.dueNow("slots")
	c.exec(`UPDATE punctual.schedules
		SET scheduled_for = now() - interval '6 s', next_run_at = now() - interval '6 s'
		WHERE job_id = $1`, slot.ID)
	c.dueNow("just-due")
	unserved, _ := c.dueNow("unserved")
	c.exec(`INSERT INTO punctual.queues (name) VALUES ('nobody')`)
	c.exec(`UPDATE punctual.schedules SET lane = (SELECT id * 4 + 1 FROM punctual.queues WHERE name = 'nobody')
		WHERE job_id = $1`, unserved.ID)
	for name, want := range map[string]string{
		"host": down, "gate": "not overdue", "slots": "slots", "just-due": "-",
		"unserved": `no live replica serves the queue "nobody"`,
	} {
		if got := heldBy(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if queues, err := c.Claims.Unserved(t.Context()); err != nil || fmt.Sprint(queues) != "[nobody]" {
		t.Errorf("unserved: %v, %v", queues, err)
	}
	depths, _, err := c.Fleet.QueueDepths(t.Context(), c.tenant)
	must(t, err)
	for _, d := range depths {
		if (d.WaitsFor == nil) != (d.Name == "default") || d.Name == "default" && d.HeldRuns != 1 {
			t.Errorf("%+v", d)
		}
	}
}

func TestARunThatWaitsBeyondItsBoundIsAViolation(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("held")
	c.finish(hold(a, down, a.Lease.ClaimedAt, time.Hour))
	violations := func() []string {
		t.Helper()
		found, summary := c.verified(func(o *history.VerifyOptions) { o.Grace = time.Second })
		if !slices.Contains(summary.Notes, "1 run waits for "+down+".") {
			t.Errorf("notes: %q", summary.Notes)
		}
		return found
	}
	if got := violations(); len(got) != 0 {
		t.Errorf("while it may wait: %v", got)
	}
	c.exec(`DELETE FROM punctual.claims`) // as its replica does when it parks the run
	c.exec(`UPDATE punctual.ready SET held_since = now() - interval '8 s', held_until = now() - interval '4 s'`)
	c.exec(`UPDATE punctual.runs SET created_at = now() - interval '8 s'`)
	if got := violations(); !slices.Equal(got, []string{"unended held"}) {
		t.Errorf("beyond its bound: %v", got)
	}
}

func TestARunThatTurnedLateSaysSo(t *testing.T) {
	c := newClaimer(t)
	a, b := c.manual("late"), c.manual("punctual")
	late := succeeded(a)
	late.TurnedLate = true
	c.finish(late, succeeded(b))
	if n := c.count(`SELECT count(*) FROM punctual.runs WHERE late AND id = $1`, a.RunID); n != 1 ||
		c.count(`SELECT count(*) FROM punctual.runs WHERE late`) != 1 {
		t.Error("the late one is not marked, or the other one is")
	}
}

func TestARunThatGaveUpWaitingIsADeadLetter(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("never-sent")
	o := unsent(a, domain.Abandon)
	o.Reason, o.Error = domain.ReasonUnreachable, "0 of 5 attempts made"
	c.finish(o)
	c.wantState(a.RunID, "dead unreachable attempt 0 finished dead letter of 0 unreachable")
}

// A job whose host is down counts as failing, although its run has made no attempt.
func TestARunThatIsHeldBackIsToldAsFailing(t *testing.T) {
	c := newClaimer(t)
	told := func() int { return c.count(`SELECT count(*) FROM punctual.notices WHERE event = 'failing'`) }
	a := c.manual("held", notify(hook, domain.EventFailing))
	c.finish(hold(a, down, a.Lease.ClaimedAt, time.Hour))
	if n := told(); n != 1 {
		t.Fatalf("%d notices that it is failing, want 1", n)
	}
	again := c.one(c.fetch(scheduler.HeldClaim{By: down, Most: 1}))
	c.finish(hold(again, down, a.Lease.ClaimedAt.Add(-time.Second), time.Hour)) // the same wait goes on
	if n := told(); n != 1 {
		t.Errorf("%d notices after it was held back again, want 1", n)
	}
	c.finish(succeeded(c.one(c.fetch(scheduler.HeldClaim{By: down, Most: 1}))))
	c.wantCount(0, "it succeeded, and is failing still",
		`SELECT count(*) FROM punctual.notified WHERE failing_since IS NOT NULL`)
}
