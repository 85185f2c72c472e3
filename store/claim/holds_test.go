package claim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/breaker"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/fleet"
	"punctual/store/history"
)

// parked makes n jobs, each with a run that waits for a host. The first run has waited longest.
func parked(c Replica, n int, by string) (runs, jobs []uuid.UUID) {
	c.T.Helper()
	c.Many(n, "parked-"+uuid.NewString()[:8], 0)
	batch := c.Claim(n, false)
	if len(batch.Runs) != n {
		c.T.Fatalf("%d of %d runs claimed", len(batch.Runs), n)
	}
	outcomes := make([]domain.Outcome, n)
	for i, a := range batch.Runs {
		outcomes[i] = Hold(a, by, a.Lease.ClaimedAt.Add(time.Duration(i-n)*time.Second), time.Hour)
		runs, jobs = append(runs, a.RunID), append(jobs, a.Job.ID)
	}
	c.Finish(outcomes...)
	return runs, jobs
}

func fetch(c Replica, held scheduler.HeldClaim) domain.Batch {
	c.T.Helper()
	held.Tenant, held.Lanes = c.Tenant, []int16{c.Queue * 4, c.Queue*4 + 1, c.Queue*4 + 2}
	b, err := c.Claims.ClaimReady(c.T.Context(), scheduler.Claim{Replica: c.ReplicaID, Held: &held})
	Must(c.T, err)
	return b
}

func report(c Replica, states ...admit.HoldState) []admit.HoldOrder {
	c.T.Helper()
	for i := range states {
		states[i].Tenant = c.Tenant
	}
	orders, err := c.Replicas.ReportHolds(c.T.Context(), c.ReplicaID, states)
	Must(c.T, err)
	return orders
}

func openHold(host string) admit.HoldState {
	return admit.HoldState{
		By: "breaker " + host, State: breaker.Open, Host: host, Failures: 12, LastError: "connection refused",
		For: time.Minute, ProbeIn: time.Second,
	}
}

func TestARunThatIsHeldBackWaitsInReady(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("held")
	c.Finish(Hold(a, Down, a.Lease.ClaimedAt, 40*time.Second))
	c.WantState(a.RunID, "pending attempt 0 ready in 40")
	if c.Count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND started_at IS NULL`, a.RunID) != 1 {
		t.Error("it was never sent, and says when it was started")
	}
	w, err := c.Runs.RunWaitsFor(t.Context(), c.Tenant, a.RunID)
	if err != nil || w == nil || w.Until == nil || w.Until.Sub(w.Since) != 40*time.Second {
		t.Fatalf("it waits for %+v, %v", w, err)
	}
	if w, err := c.Runs.RunWaitsFor(t.Context(), c.Tenant+1, a.RunID); w != nil || err != nil {
		t.Errorf("another tenant sees %+v, %v", w, err)
	}
	// A run that was sent once and waits now keeps the start time of that attempt.
	b := c.Manual("again")
	c.Finish(Failed(b))
	c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id = $1`, b.RunID)
	again := c.One(c.ClaimReady(10))
	c.Finish(Hold(again, Down, again.Lease.ClaimedAt, time.Minute))
	if c.Count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND started_at = $2`, b.RunID, b.Lease.ClaimedAt) != 1 {
		t.Error("it does not say when its only attempt was started")
	}
}

func TestTheLongestUnsentIsFetchedFirst(t *testing.T) {
	c := NewReplica(t)
	runs, jobs := parked(c, 5, Down)
	others, _ := parked(c, 2, "breaker b.test:443")
	fetched := func(b domain.Batch) (ids []uuid.UUID) {
		for _, a := range b.Runs {
			if a.Held == nil || !a.Held.Fetched || a.Held.Until.Sub(a.Held.Since) != time.Hour {
				t.Errorf("fetched with %+v", a.Held)
			}
			ids = append(ids, a.RunID)
		}
		return ids
	}
	if b := c.ClaimReady(10); len(b.Runs) != 0 {
		t.Errorf("%d runs that wait for their host are claimed as others", len(b.Runs))
	}
	if b := fetch(c, scheduler.HeldClaim{By: Down, Most: 1}); fmt.Sprint(fetched(b)) != fmt.Sprint(runs[:1]) ||
		len(b.Full) == 0 {
		t.Errorf("the first: %v, full %v", b.Runs, b.Full)
	}
	if b := fetch(c, scheduler.HeldClaim{By: Down, Most: 1, Not: jobs[1:3]}); fmt.Sprint(fetched(b)) !=
		fmt.Sprint(runs[3:4]) {
		t.Errorf("of jobs that had no turn yet: %v", fetched(b))
	}
	if b := fetch(c, scheduler.HeldClaim{By: Down, Most: 10}); len(fetched(b)) != 3 || len(b.Full) != 0 {
		t.Errorf("the rest: %v, full %v", b.Runs, b.Full)
	}
	held := scheduler.HeldClaim{By: "breaker b.test:443", Most: 10, Tenant: c.Tenant, Lanes: []int16{399}}
	if b, err := c.Claims.ClaimReady(t.Context(), scheduler.Claim{Replica: c.ReplicaID, Held: &held}); err != nil ||
		len(b.Runs) != 0 {
		t.Errorf("of a queue without slots: %v, %v", b.Runs, err)
	}
	if b := fetch(c, scheduler.HeldClaim{By: "breaker b.test:443", Most: 10}); len(fetched(b)) != len(others) {
		t.Errorf("of the other host: %v", fetched(b))
	}
}

func TestWhatNobodyHoldsBackIsReleased(t *testing.T) {
	c := NewReplica(t)
	runs, _ := parked(c, 3, Down)
	parked(c, 2, "breaker b.test:443")
	report(c, openHold("a.test:443"), openHold("b.test:443"))
	unheld := func() bool { return c.Wants(scheduler.ChoreHolds) }
	release := func() int {
		// The report is of a replica that holds nothing back.
		if _, err := c.Replicas.ReportHolds(t.Context(), uuid.New(), nil); err != nil {
			t.Fatal(err)
		}
		return c.Count(`SELECT count(*) FROM punctual.ready WHERE waits <> 'host'`)
	}
	if unheld() || release() != 0 {
		t.Error("runs are released that a replica holds back")
	}
	report(c, openHold("b.test:443"))
	if n := c.Count(`SELECT count(*) FROM punctual.ready WHERE waits <> 'host'`); n != 3 || unheld() {
		t.Errorf("%d runs whose breaker has closed are released, want 3", n)
	}
	b := c.ClaimReady(10)
	if len(b.Runs) != 3 || b.Runs[0].Held == nil || b.Runs[0].Held.Fetched {
		t.Fatalf("claimed %+v", b.Runs)
	}
	if got := c.State(runs[0]); !strings.HasPrefix(got, "running") {
		t.Errorf("it is %s", got)
	}
	c.Exec(`DELETE FROM punctual.replicas WHERE id = $1`, c.ReplicaID) // the replica is lost, and its holds are gone with it
	if !unheld() || release() != 2 || unheld() {
		t.Error("runs are not released that a lost replica held back")
	}
}

// A breaker has just opened, and its replica has not reported it yet. Only a report releases runs, as it says first
// what its replica holds back.
func TestNoChoreOfTheStoreReleasesWhatIsNotReportedYet(t *testing.T) {
	c := NewReplica(t)
	parked(c, 3, Down)
	for _, chore := range c.Chores() {
		if _, _, err := chore.Batch(t.Context()); err != nil {
			t.Errorf("%s: %v", chore.Name, err)
		}
	}
	const held = `SELECT count(*) FROM punctual.ready WHERE waits = 'host'`
	if n := c.Count(held); n != 3 {
		t.Errorf("%d runs wait for their host after the chores, want 3", n)
	}
	report(c, openHold("a.test:443"))
	if n := c.Count(held); n != 3 {
		t.Errorf("%d runs wait for their host after the report, want 3", n)
	}
}

func TestHoldsAreListedAndReset(t *testing.T) {
	c := NewReplica(t)
	parked(c, 3, Down)
	other := c
	other.ReplicaID = uuid.New()
	c.Exec(`INSERT INTO punctual.replicas (id, host, version, queues) VALUES ($1, 'h', 'v', '{}')`, other.ReplicaID)
	report(c, openHold("a.test:443"), admit.HoldState{
		By: "hanging b.test:80/x", State: breaker.Hanging, Host: "b.test:80", Path: "/x",
		Failures: 3, For: time.Second,
	})
	recovering := openHold("a.test:443")
	recovering.State = breaker.Recovering
	report(other, recovering)
	list := func() []fleet.Breaker {
		holds, err := c.Fleet.Holds(t.Context(), c.Tenant)
		Must(t, err)
		return holds
	}
	holds := list()
	if len(holds) != 2 || holds[0].HeldBy != Down || holds[0].State != breaker.Open ||
		holds[0].Replicas != 2 || holds[0].WaitingRuns != 3 || holds[0].WaitingSince == nil || holds[0].NextProbeAt == nil ||
		holds[1].Path != "/x" || holds[1].State != breaker.Hanging || holds[1].WaitingRuns != 0 {
		t.Errorf("%+v", holds)
	}
	if elsewhere, err := c.Fleet.Holds(t.Context(), c.Tenant+1); err != nil || len(elsewhere) != 0 {
		t.Errorf("another tenant sees %v, %v", elsewhere, err)
	}
	if orders := report(c, openHold("a.test:443")); len(orders) != 1 || orders[0].Reset || orders[0].Host != "a.test:443" {
		t.Errorf("another replica has reached the host: %+v", orders)
	}
	if n, err := c.Replicas.ResetHolds(t.Context(), c.Tenant, "a.test:443"); err != nil || n != 2 {
		t.Errorf("%d holds are reset, %v", n, err)
	}
	if orders := report(c, openHold("a.test:443")); len(orders) != 2 || !orders[0].Reset && !orders[1].Reset {
		t.Errorf("after the reset: %+v", orders)
	}
	if report(c); len(list()) != 1 {
		t.Errorf("a replica that holds nothing back any more: %+v", list())
	}
}

func TestOverdueSaysWhatHoldsItBack(t *testing.T) {
	c := NewReplica(t)
	heldBy := func(name string) string {
		return c.Text(`SELECT coalesce(string_agg(coalesce(held_by, '-'), ', ' ORDER BY due_at), 'not overdue')
			FROM punctual.overdue
			WHERE job = $1`, name)
	}
	a := c.Manual("host")
	c.Finish(Hold(a, Down, a.Lease.ClaimedAt, time.Hour))
	c.Manual("gate", Forbid)
	if _, err := c.TryTrigger("gate"); err == nil {
		t.Fatal("two runs of a job that must not overlap")
	}
	slot, _ := c.DueNow("slots")
	c.Exec(`UPDATE punctual.schedules
		SET scheduled_for = now() - interval '6 s', next_run_at = now() - interval '6 s'
		WHERE job_id = $1`, slot.ID)
	c.DueNow("just-due")
	unserved, _ := c.DueNow("unserved")
	c.Exec(`INSERT INTO punctual.queues (name) VALUES ('nobody')`)
	c.Exec(`UPDATE punctual.schedules SET lane = (SELECT id * 4 + 1 FROM punctual.queues WHERE name = 'nobody')
		WHERE job_id = $1`, unserved.ID)
	for name, want := range map[string]string{
		"host": Down, "gate": "not overdue", "slots": "slots", "just-due": "-",
		"unserved": `no live replica serves the queue "nobody"`,
	} {
		if got := heldBy(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if queues, err := c.Replicas.Unserved(t.Context()); err != nil || fmt.Sprint(queues) != "[nobody]" {
		t.Errorf("unserved: %v, %v", queues, err)
	}
	depths, _, err := c.Fleet.QueueDepths(t.Context(), c.Tenant)
	Must(t, err)
	for _, d := range depths {
		if (d.WaitsFor == nil) != (d.Name == "default") || d.Name == "default" && d.HeldRuns != 1 {
			t.Errorf("%+v", d)
		}
	}
}

func TestARunThatWaitsBeyondItsBoundIsAViolation(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("held")
	c.Finish(Hold(a, Down, a.Lease.ClaimedAt, time.Hour))
	violations := func() []string {
		t.Helper()
		found, summary := c.Verified(func(o *history.VerifyOptions) { o.Grace = time.Second })
		if !slices.Contains(summary.Notes, "1 run waits for "+Down+".") {
			t.Errorf("notes: %q", summary.Notes)
		}
		return found
	}
	if got := violations(); len(got) != 0 {
		t.Errorf("while it may wait: %v", got)
	}
	c.Exec(`DELETE FROM punctual.claims`) // as its replica does when it parks the run
	c.Exec(`UPDATE punctual.ready SET since = now() - interval '8 s', until = now() - interval '4 s'`)
	c.Exec(`UPDATE punctual.runs SET created_at = now() - interval '8 s'`)
	if got := violations(); !slices.Equal(got, []string{"unended held"}) {
		t.Errorf("beyond its bound: %v", got)
	}
}

// The claim decides that a run is late, so that its row and its request say the same, whatever ends its replica.
func TestARunThatIsFirstClaimedLateSaysSo(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Tolerating(10*time.Second), Notify(Hook, jobspec.EventLate))
	age := func(run uuid.UUID, by time.Duration) {
		c.Exec(`UPDATE punctual.runs SET due_at = due_at - $2::interval WHERE id = $1`, run, by)
	}
	inTime := c.Begun("job")
	c.Finish(Interrupted(inTime))
	age(inTime.RunID, time.Minute) // it was sent in time, so it stays so
	late := c.Trigger("job").ID
	age(late, time.Minute)
	for round, end := range []Ending{GivenBack, Succeeded} {
		b := c.ClaimReady(10)
		if len(b.Runs) != 2 {
			t.Fatalf("%d runs were claimed, want 2", len(b.Runs))
		}
		for _, a := range b.Runs {
			want := a.RunID == late
			c.WantCount(map[bool]int{true: 1}[want], "late rows", `SELECT count(*) FROM punctual.runs WHERE late AND id = $1`, a.RunID)
			if a.Late != want {
				t.Errorf("claim %d: the request of %s says late %t, want %t", round+1, a.RunID, a.Late, want)
			}
			c.Finish(end(a))
		}
	}
	c.WantCount(1, "notices about a late run", `SELECT count(*) FROM punctual.notices WHERE event = 'late' AND run_id = $1`, late)
	c.WantCount(1, "notices about late runs", `SELECT count(*) FROM punctual.notices WHERE event = 'late'`)
}

func TestARunThatGaveUpWaitingIsADeadLetter(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("never-sent")
	o := Unsent(a, domain.Abandon)
	o.Reason, o.Error = domain.ReasonUnreachable, "0 of 5 attempts made"
	c.Finish(o)
	c.WantState(a.RunID, "dead unreachable attempt 0 finished dead letter of 0 unreachable")
}

// A job whose host is down counts as failing, although its run has made no attempt.
func TestARunThatIsHeldBackIsToldAsFailing(t *testing.T) {
	c := NewReplica(t)
	told := func() int { return c.Count(`SELECT count(*) FROM punctual.notices WHERE event = 'failing'`) }
	a := c.Manual("held", Notify(Hook, jobspec.EventFailing))
	c.Finish(Hold(a, Down, a.Lease.ClaimedAt, time.Hour))
	if n := told(); n != 1 {
		t.Fatalf("%d notices that it is failing, want 1", n)
	}
	again := c.One(fetch(c, scheduler.HeldClaim{By: Down, Most: 1}))
	c.Finish(Hold(again, Down, a.Lease.ClaimedAt.Add(-time.Second), time.Hour)) // the same wait goes on
	if n := told(); n != 1 {
		t.Errorf("%d notices after it was held back again, want 1", n)
	}
	c.Finish(Succeeded(c.One(fetch(c, scheduler.HeldClaim{By: Down, Most: 1}))))
	c.WantCount(0, "it succeeded, and is failing still",
		`SELECT count(*) FROM punctual.notified WHERE failing_since IS NOT NULL`)
}
