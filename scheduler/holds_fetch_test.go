package scheduler

import (
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery"
	"punctual/scheduler/domain"
)

// The breaker of a recovering host closes once no run waits for the host. A fetch that could not look into every lane
// must not close it, because the runs that wait there would all hit the host at once.
func TestABreakerStaysWhileItsRunsCannotBeSeen(t *testing.T) {
	for name, taken := range map[string][]inFlight{
		"the runs' queue has slots only for ordered runs": {{runs: [domain.WorkKinds]int{domain.WorkReady: 16}}, {}},
		"the runs' queue has no slot, another one has":    {{runs: [domain.WorkKinds]int{domain.WorkReady: 20}}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := compiled(t, `{}`)
				store, log := newFakeStore(), slog.New(slog.DiscardHandler)
				slots := occupied([]int{20, 20}, taken...)
				s := &Scheduler{store: store, slots: slots, limits: newLimits(slots)}
				told := false
				s.holds = &holds{
					breakers: breaker.New(log), hangs: breaker.NewHangs(log), sizes: slots.sizes(), changed: func() { told = true },
				}
				recovers(t, s.holds, job)
				for range 50 {
					store.held = append(store.held, domain.Outcome{Assignment: domain.Assignment{
						RunID: uuid.New(), Job: job, Lane: domain.PriorityNormal.Lane(1),
						Held: &domain.Held{By: s.holds.breakers.All()[0].By()},
					}})
				}
				told, s.heart = false, newHeartbeat(s)
				if err := newTicker(s).fetchHeld(t.Context()); err != nil {
					t.Fatal(err)
				}
				if len(store.held) != 50 {
					t.Fatalf("%d runs wait, want 50: there was a slot for some", len(store.held))
				}
				if all := s.holds.breakers.All(); len(all) != 1 || told {
					t.Errorf("the breakers are %+v, want one: 50 runs wait", all)
				}
			})
		})
	}
}

// recovers makes the host of a job unreachable, and then reached again by a probe.
func recovers(t *testing.T, h *holds, job *domain.Job) {
	t.Helper()
	to, err := url.Parse("http://127.0.0.1:9/hook")
	if err != nil {
		t.Fatal(err)
	}
	a := domain.Assignment{Job: job, Attempt: 1, Lane: domain.PriorityNormal.Lane(1), Lease: &domain.Lease{}}
	for range 10 {
		f, wait := h.admit(a, to)
		if wait != nil {
			t.Fatal(wait.Why)
		}
		h.done(f, delivery.Result{Error: "connection refused"})
	}
	time.Sleep(10 * time.Second)
	a.Held = &domain.Held{Fetched: true}
	f, wait := h.admit(a, to)
	if wait != nil {
		t.Fatal(wait.Why)
	}
	h.done(f, delivery.Result{Status: 200})
	if all := h.breakers.All(); len(all) != 1 || !all[0].Recovering {
		t.Fatalf("the breakers are %+v, want one that recovers", all)
	}
}
