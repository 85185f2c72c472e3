package claim_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
)

// replicate runs a replica that serves one queue until the test ends.
func replicate(c Fixture, queue string, slots int) { c.ReplicateOn(c.Replicas, queue, slots) }

// A silent target is noticed even when all worker slots are taken and the tenant is at its limit.
func TestASilentTargetIsNoticedWhateverIsInFlight(t *testing.T) {
	c := NewReplica(t)
	over := make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(target.Close)
	t.Cleanup(func() { close(over) })
	at := func(path string) Option {
		return func(d *jobspec.Definition) { d.Target.URL = target.URL + path }
	}
	c.Limit("max_concurrent_runs", 1)
	c.Create("silent", Never, ByCallback, at("/accept"))
	c.Create("slow", Never, at("/slow"), func(d *jobspec.Definition) { d.Timeout = jobspec.DurationOf(time.Hour) })
	replicate(c.Fixture, "default", 1)
	silent := c.Trigger("silent")
	c.Until("the target has accepted", `SELECT count(*) = 1
		FROM punctual.ready y
		JOIN punctual.runs r ON r.id = y.run_id
		WHERE r.id = $1 AND accepted_at IS NOT NULL`, silent.ID)
	slow := c.Trigger("slow")
	c.Until("the only slot is taken", `SELECT status = 'running' FROM punctual.runs WHERE id = $1`, slow.ID)
	c.Trigger("slow")
	c.Exec(`UPDATE punctual.deployment SET back_at = '-infinity'`)
	c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s' WHERE run_id = $1`, silent.ID)
	c.Until("the silence of a target has ended its attempt",
		`SELECT count(*) = 1 FROM punctual.attempts WHERE run_id = $1 AND outcome = 'lost'`, silent.ID)
}

func TestDeadlinesTakeNoPlaceInAnyLine(t *testing.T) {
	c := NewReplica(t)
	a := c.Accepted("works")
	next := func() scheduler.Upcoming {
		u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{{c.Queue}, {c.Queue}, {c.Queue}, {c.Queue}}, false)
		Must(t, err)
		return u
	}
	if u := next(); !u.Ready.IsZero() || !u.Ordered.IsZero() {
		t.Errorf("a deadline is looked for as work: %+v", u)
	}
	pulse := func() bool { return c.Wants(claim.ChoreSilent) }
	if wait, left, err := c.Claims.EndSilent(t.Context()); wait != 0 || left || err != nil || pulse() {
		t.Errorf("a minute before its deadline: wait %s, left %t, error %v", wait, left, err)
	}
	c.Exec(`UPDATE punctual.ready SET due_at = now() + interval '1 s'`)
	wait, left, err := c.Claims.EndSilent(t.Context())
	if wait <= 0 || wait > time.Second || !left || err != nil || !pulse() {
		t.Errorf("a second before: wait %s, left %t, error %v", wait, left, err)
	}
	if !c.Overdue(a.RunID) {
		t.Error("past it: the attempt goes on")
	}
	if u := next(); u.Ready.IsZero() || pulse() {
		t.Errorf("it is not retried: %+v", u)
	}
}

// The deadlines of a frozen tenant, however many, do not delay the deadlines of others.
func TestDeadlinesOfAFrozenTenantHoldUpNobody(t *testing.T) {
	c := NewReplica(t)
	other := c.Neighbour(1)
	a := c.Accepted("works")
	other.Accepted("frozen")
	c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane, waits)
		SELECT gen_random_uuid(), job_id, now() - interval '1 h', tenant, lane, waits
		FROM punctual.ready, generate_series(1, 1000) WHERE tenant = $1`, other.Tenant)
	c.Freeze(other.Tenant, "")
	if !c.Overdue(a.RunID) {
		t.Error("it is not noticed")
	}
}
