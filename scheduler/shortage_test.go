package scheduler

import (
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

// A replica lacks file descriptors. It gives runs back unsent, and claims less.
//
//prove:replicas
func TestAReplicaThatLacksDescriptorsClaimsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		dials.refusal = syscall.EMFILE
		dials.refused = "127.0.0.1:9"
		const runs, slots = 3000, 500
		store.add(runs, compiled(t, `{"retry":{"max_attempts":1}}`), 0)
		r := start(t, store, dials.client, slots)
		time.Sleep(10*time.Second + admit.CutEvery/2) // claims begin when a second is over
		synctest.Wait()
		sent := dials.tried()
		if got := store.verdicts(); got[domain.GiveBack] != sent || len(got) != 1 {
			t.Errorf("verdicts %v after %d attempts, want all given back", got, sent)
		}
		for _, o := range read(store, func() []domain.Outcome { return slices.Clone(store.outcomes) }) {
			if o.End().Number != 0 || o.RetryIn < shortRetry || o.Error == "" {
				t.Fatalf("given back: %+v after %s: %s", o.End(), o.RetryIn, o.Error)
			}
		}
		if n := r.metric("punctual_breakers_open"); n != 0 {
			t.Errorf("%v breakers are open", n)
		}
		if n := r.metric("punctual_replica_shortages_total"); int(n) != sent {
			t.Errorf("%v shortages in the metrics, want %d", n, sent)
		}
		if lacks := read(store, func() string { return store.lacks }); lacks == "" {
			t.Error("the heartbeat does not tell that descriptors lack")
		}
		if sent > 4*slots { // without a cut, each of the runs is claimed every second or two
			t.Errorf("%d runs were claimed in 10 s", sent)
		}
		dials.mu.Lock()
		dials.refused = ""
		dials.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if n := store.ended(); n != runs {
			t.Errorf("%d of %d runs have been claimed when nothing has lacked for two minutes", n, runs)
		}
		if lacks := read(store, func() string { return store.lacks }); lacks != "" {
			t.Errorf("the heartbeat still tells that %s lack", lacks)
		}
	})
}

func TestPortsThatLackForOneTargetHoldUpNoOther(t *testing.T) {
	t.Parallel()
	s := holding(newFakeStore(), occupied([]int{20}))
	s.config.Shortages = new(Shortages)
	s.metrics, s.log = NewMetrics(prometheus.NewRegistry(), time.Second), slog.New(slog.DiscardHandler)
	var o domain.Outcome
	s.fellShort(&o, wire.Result{Lacks: delivery.Ports})
	if n := s.admission.Slots.Spare(); n < 20 {
		t.Errorf("only %d more runs may be claimed", n)
	}
	s.fellShort(&o, wire.Result{Lacks: "file descriptors"})
	if n := s.admission.Slots.Spare(); n != 0 {
		t.Errorf("%d more runs may be claimed at once", n)
	}
}
