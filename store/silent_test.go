package store

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store/claim"
)

// replicate runs a replica that serves one queue until the test ends.
func (c crud) replicate(queue string, slots int) { c.replicateOn(c.Claims, queue, slots) }

func (c crud) replicateOn(store scheduler.Store, queue string, slots int) {
	c.t.Helper()
	client := delivery.New(delivery.Config{Guard: guard.New(guard.Loopback)})
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error)
	go func() {
		done <- scheduler.Run(ctx, store, scheduler.Config{
			Queues: map[string]int{queue: slots}, Client: client, Log: slog.New(slog.DiscardHandler),
			Metrics: scheduler.NewMetrics(prometheus.NewRegistry(), time.Second), Credentials: c.Secrets, Chores: c.Chores(),
			Notices: c.Notices,
		})
	}()
	c.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
		client.Close()
	})
}

// A silent target is noticed even when all worker slots are taken and the tenant is at its limit.
func TestASilentTargetIsNoticedWhateverIsInFlight(t *testing.T) {
	c := newClaimer(t)
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
	at := func(path string) option {
		return func(d *domain.Definition) { d.Target.URL = target.URL + path }
	}
	c.limit("max_concurrent_runs", 1)
	c.create("silent", never, byCallback, at("/accept"))
	c.create("slow", never, at("/slow"), func(d *domain.Definition) { d.Timeout = domain.DurationOf(time.Hour) })
	c.replicate("default", 1)
	silent := c.trigger("silent")
	c.until("the target has accepted", `SELECT count(*) = 1
		FROM punctual.ready y
		JOIN punctual.runs r ON r.id = y.run_id
		WHERE r.id = $1 AND accepted_at IS NOT NULL`, silent.ID)
	slow := c.trigger("slow")
	c.until("the only slot is taken", `SELECT status = 'running' FROM punctual.runs WHERE id = $1`, slow.ID)
	c.trigger("slow")
	c.exec(`UPDATE punctual.deployment SET back_at = '-infinity'`)
	c.exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s' WHERE run_id = $1`, silent.ID)
	c.until("the silence of a target has ended its attempt",
		`SELECT count(*) = 1 FROM punctual.attempts WHERE run_id = $1 AND outcome = 'lost'`, silent.ID)
}

func TestDeadlinesTakeNoPlaceInAnyLine(t *testing.T) {
	c := newClaimer(t)
	a := c.accepted("works")
	next := func() scheduler.Upcoming {
		u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{{c.queue}, {c.queue}, {c.queue}, {c.queue}}, false)
		must(t, err)
		return u
	}
	if u := next(); !u.Ready.IsZero() || !u.Ordered.IsZero() {
		t.Errorf("a deadline is looked for as work: %+v", u)
	}
	pulse := func() bool { return c.wants(claim.ChoreSilent) }
	if wait, left, err := c.Claims.EndSilent(t.Context()); wait != 0 || left || err != nil || pulse() {
		t.Errorf("a minute before its deadline: wait %s, left %t, error %v", wait, left, err)
	}
	c.exec(`UPDATE punctual.ready SET due_at = now() + interval '1 s'`)
	wait, left, err := c.Claims.EndSilent(t.Context())
	if wait <= 0 || wait > time.Second || !left || err != nil || !pulse() {
		t.Errorf("a second before: wait %s, left %t, error %v", wait, left, err)
	}
	if !c.overdue(a.RunID) {
		t.Error("past it: the attempt goes on")
	}
	if u := next(); u.Ready.IsZero() || pulse() {
		t.Errorf("it is not retried: %+v", u)
	}
}

// The deadlines of a frozen tenant, however many, do not delay the deadlines of others.
func TestDeadlinesOfAFrozenTenantHoldUpNobody(t *testing.T) {
	c := newClaimer(t)
	other := c.neighbour(1)
	a := c.accepted("works")
	other.accepted("frozen")
	c.exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT gen_random_uuid(), job_id, now() - interval '1 h', tenant, lane
		FROM punctual.ready, generate_series(1, 1000) WHERE tenant = $1`, other.tenant)
	c.freeze(other.tenant, "")
	if !c.overdue(a.RunID) {
		t.Error("it is not noticed")
	}
}
