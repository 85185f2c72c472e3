package scheduler

import (
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// The breaker of a recovering host closes once no run waits for the host. A fetch that could not look into every lane
// must not close it, because the runs that wait there would all hit the host at once.
func TestABreakerStaysWhileItsRunsCannotBeSeen(t *testing.T) {
	for name, taken := range map[string][]perKind{
		"the runs' queue has slots only for ordered runs": {{domain.WorkReady: 17}, {}},
		"the runs' queue has no slot, another one has":    {{domain.WorkReady: 19, domain.WorkOrdered: 1}, {}},
	} {
		virtually(t, name, func(t *testing.T) {
			job, store, told := compiled(t, `{}`), newFakeStore(), false
			s := holding(store, occupied([]int{20, 20}, taken...))
			s.admission.Holds.Changed = func() { told = true }
			recovers(t, s.admission.Holds, job)
			for range 50 {
				store.held = append(store.held, domain.Outcome{Assignment: domain.Assignment{
					RunID: uuid.New(), Job: job, Lane: jobspec.PriorityNormal.Lane(1),
					Held: &domain.Held{By: s.admission.Holds.Breakers.All()[0].By},
				}})
			}
			told, s.heart = false, newHeartbeat(s) // the other one has not beaten for 10 s
			must(t, newTicker(s).fetchHeld(t.Context()))
			if len(store.held) != 50 {
				t.Fatalf("%d runs wait, want 50: there was a slot for some", len(store.held))
			}
			if all := s.admission.Holds.Breakers.All(); len(all) != 1 || told {
				t.Errorf("the breakers are %+v, want one: 50 runs wait", all)
			}
		})
	}
}

// A new run does not overtake the runs that wait for a place that hangs, although a fetch could not look where they
// wait.
func TestNoRunOvertakesWaitingRunsThatCannotBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holding(newFakeStore(), occupied([]int{20}, perKind{domain.WorkReady: 17}))
		to, a := hook(t), scheduled(compiled(t, `{}`))
		for range 3 {
			f, _ := s.admission.Holds.Admit(a, to, time.Now())
			s.admission.Holds.Done(f, wire.Result{Reason: wire.ReasonTimeout, Sent: true})
		}
		var out []admit.Flight
		for range breaker.Quarter(20) {
			f, _ := s.admission.Holds.Admit(a, to, time.Now())
			out = append(out, f)
		}
		if _, wait := s.admission.Holds.Admit(a, to, time.Now()); wait == nil || !wait.Hanging {
			t.Fatalf("beside a quarter of the worker slots: %+v, want a wait for what hangs", wait)
		}
		for _, f := range out {
			s.admission.Holds.Done(f, wire.Result{Cancelled: true})
		}
		must(t, newTicker(s).fetchHeld(t.Context()))
		if _, wait := s.admission.Holds.Admit(a, to, time.Now()); wait == nil {
			t.Error("a new run overtook the runs that wait")
		}
	})
}

// holding returns the part of a replica that holds runs back and fetches them.
func holding(store Store, slots *admit.Slots) *Scheduler {
	log := slog.New(slog.DiscardHandler)
	s := &Scheduler{
		store: store, admission: admit.New(slots, log, func() {}), metrics: NewMetrics(prometheus.NewRegistry(), time.Second),
	}
	s.heart = newHeartbeat(s)
	return s
}

// recovers makes the host of a job unreachable, and then reached again by a probe.
func recovers(t *testing.T, h *admit.Holds, job *domain.Job) {
	t.Helper()
	to, a := hook(t), scheduled(job)
	for range 10 {
		f, wait := h.Admit(a, to, time.Now())
		if wait != nil {
			t.Fatal(wait.Why)
		}
		h.Done(f, wire.Result{Error: "connection refused"})
	}
	time.Sleep(10 * time.Second)
	a.Held = &domain.Held{Fetched: true}
	f, wait := h.Admit(a, to, time.Now())
	if wait != nil {
		t.Fatal(wait.Why)
	}
	h.Done(f, wire.Result{Status: 200})
	if all := h.Breakers.All(); len(all) != 1 || all[0].State != breaker.Recovering {
		t.Fatalf("the breakers are %+v, want one that recovers", all)
	}
}

// hook returns where the jobs of these tests are sent.
func hook(t *testing.T) *url.URL {
	t.Helper()
	to, err := url.Parse("http://127.0.0.1:9/hook")
	must(t, err)
	return to
}

// scheduled returns the first attempt of a job's run that has just become due.
func scheduled(job *domain.Job) domain.Assignment {
	return domain.Assignment{Job: job, Attempt: 1, Lane: jobspec.PriorityNormal.Lane(1), Lease: &domain.Lease{}}
}
