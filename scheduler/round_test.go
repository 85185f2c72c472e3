package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"punctual/scheduler/domain"
)

// The first tick makes one claim. The second one works off the backlog: one of its claims takes long, and the other
// side goes on, but not for ever, because other kinds of work wait for the end of the tick.
func TestASideDoesNotWaitForTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		began := store.now()
		var claims atomic.Int32
		store.claiming = func(context.Context) error {
			if claims.Add(1) == 2 {
				time.Sleep(3 * time.Second)
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		store.add(5000, compiled(t, brief), 0)
		r := start(t, store, newGatedDials(t, false).client, 10_000)
		time.Sleep(850 * time.Millisecond)
		if n := len(store.claimsAfter(began.Add(-1))); n != 1+1+8 {
			t.Errorf("%d claims have begun after 850 ms, want one, a long one, and eight beside it", n)
		}
		time.Sleep(2 * time.Second)
		if n := len(store.claimsAfter(began.Add(-1))); n != 1+mostInATick {
			t.Errorf("%d claims have begun before the long one ended, want %d", n, 1+mostInATick)
		}
		time.Sleep(time.Second)
		if n := len(store.claimsAfter(began.Add(-1))); n <= 1+mostInATick {
			t.Error("no tick followed")
		}
		r.stop()
	})
}

// Claims side by side must not count on the same free slots.
func TestClaimsSideBySideTakeNoMoreThanTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		var claims atomic.Int32
		store.claiming = func(context.Context) error {
			time.Sleep(time.Duration(claims.Add(1)%3) * 50 * time.Millisecond)
			return nil
		}
		store.add(5000, compiled(t, patient), 0)
		const slots = 1000
		r := start(t, store, newGatedDials(t, true).client, slots)
		time.Sleep(OlderThan - time.Second) // then what is left is another kind of work
		if n, want := store.runs(), occupied([]int{slots}).Quotas(domain.WorkDue, slots, nil)[0].Slots; n != want {
			t.Errorf("%d runs are in flight, want %d", n, want)
		}
		r.stopWithin(time.Minute)
	})
}

func TestFurtherClaimsOfARound(t *testing.T) {
	full := domain.Batch{Full: []int16{1}}
	begin := func(size int) (next func() (ended func(domain.Batch, error))) {
		slots := occupied([]int{size})
		r := &round{
			claims: admit.InBatches(slots.Quotas(domain.WorkDue, sideBySide*admit.BatchSize, nil)),
			more:   func() []admit.Quota { return slots.Quotas(domain.WorkDue, admit.BatchSize, nil) },
		}
		return func() func(domain.Batch, error) {
			_, ended := r.next(domain.WorkDue, slots)
			return ended
		}
	}
	t.Run("while one is under way", func(t *testing.T) {
		next := begin(1000)
		one, two := next(), next()
		one(full, nil)
		if three := next(); three == nil {
			t.Error("no third claim beside the second")
		} else {
			three(full, nil)
		}
		two(full, nil)
		if next() != nil {
			t.Error("another claim beside none")
		}
	})
	t.Run("as long as there are slots for it", func(t *testing.T) {
		next := begin(299)
		one, _ := next(), next()
		if next() != nil {
			t.Error("a third claim, whose slots two claims may need")
		}
		one(full, nil)
		if next() == nil {
			t.Error("no third claim, though the first has ended and needs no slots")
		}
	})
	t.Run("until one finds less than it asked for", func(t *testing.T) {
		next := begin(1000)
		one, _ := next(), next()
		one(domain.Batch{}, nil)
		if next() != nil {
			t.Error("a third claim where nothing more is due")
		}
	})
}

// The draws on a tenant's limits come between two rounds. A round ends when one is due, or its claims would leave work.
func TestARoundDoesNotOutrunTheDrawsOnLimits(t *testing.T) {
	for name, limits := range map[string]admit.TenantLimits{
		"at once":  {Tenant: 1, Concurrent: 1_000_000},
		"a second": {Tenant: 1, PerSecond: 3900},
	} {
		virtually(t, name, func(t *testing.T) {
			store := newFakeStore()
			noisy, _ := tenants(t)
			store.limits = []admit.TenantLimits{limits}
			store.claiming = func(context.Context) error {
				time.Sleep(10 * time.Millisecond)
				return nil
			}
			slow := newGatedDials(t, false)
			slow.slow = time.Second
			r := start(t, store, slow.client, 4000)
			store.add(100, noisy, time.Second) // the first claim has nothing to start from
			store.add(1900, noisy, 3*time.Second)
			time.Sleep(4 * time.Second)
			for i, c := range store.claimsAfter(store.now().Add(-2 * time.Second)) {
				if left := 1900 - 100*i; c.runs < min(c.asked, left) {
					t.Errorf("claim %d asked for %d, found %d and took %d", i, c.asked, left, c.runs)
				}
			}
			if n := store.runs(); n != 2000 {
				t.Errorf("%d runs", n)
			}
			r.stopWithin(time.Minute)
		})
	}
}

// One of 150 queues has 2,000 runs. They take a few claims more than with one queue.
//
//prove:limits
func TestManyQueuesDoNotSlowDownTheOneThatIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		queues := map[string]int{}
		for i := range 150 {
			queues[fmt.Sprint("q", i)] = 100
		}
		queues["default"] = 100
		r := startQueues(t, store, dials.client, queues, 25*time.Second)
		store.add(2000, compiled(t, brief), 0)
		time.Sleep(4 * time.Second)
		r.stopWithin(time.Minute)
		runs, claims := store.runs(), len(store.claims)
		if runs != 2000 || claims > 200 {
			t.Errorf("%d of 2000 runs were claimed, by %d claims", runs, claims)
		}
	})
}
