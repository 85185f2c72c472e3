package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"punctual/scheduler/domain"
)

// tenants returns a job of tenant 1 and a job of tenant 2.
func tenants(t *testing.T) (noisy, modest *domain.Job) {
	noisy, modest = compiled(t, brief), compiled(t, brief)
	noisy.Tenant, modest.Tenant = 1, 2
	return noisy, modest
}

func TestNoMoreAreSentAtOnceThanATenantMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, modest := tenants(t)
		store.limits = []admit.TenantLimits{{Tenant: 1, Name: "noisy", Concurrent: 3}}
		store.add(200, noisy, -2*time.Second)
		store.add(100, noisy, -time.Minute)
		store.add(50, noisy, time.Second)
		slow := newGatedDials(t, false)
		slow.slow = 100 * time.Millisecond
		start(t, store, slow.client, 20)
		time.Sleep(5 * time.Second)
		if most := slow.mostOpen(); most != 3 {
			t.Errorf("%d at once, want 3", most)
		}
		// Three at once, a tenth of a second each, make 30 a second, less the moments between two requests.
		if n := store.ended(); n < 100 || n > 150 {
			t.Errorf("%d in 5 s", n)
		}
		store.add(10, modest, time.Second)
		store.add(10, modest, -time.Second)
		time.Sleep(2 * time.Second)
		if last := lastOf(store, 2); last < 0 {
			t.Error("another tenant waits")
		}
		time.Sleep(time.Minute)
		if n := store.ended(); n != 370 {
			t.Errorf("%d runs in the end, want 370", n)
		}
	})
}

// While a tenant is held back, each end of a request makes a tick. If nothing else has become due, that tick makes no
// claim that finds nothing. What becomes due of other tenants is claimed at that instant all the same.
func TestWhileATenantIsHeldBackOnlyWhatIsDueIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, modest := tenants(t)
		store.limits = []admit.TenantLimits{{Tenant: 1, Name: "noisy", Concurrent: 5}}
		store.add(2000, noisy, -2*time.Second)
		slow := newGatedDials(t, false)
		slow.slow = 7 * time.Millisecond
		start(t, store, slow.client, 20)
		time.Sleep(time.Second)
		for i := range 20 {
			store.add(1, modest, time.Second+time.Duration(i)*13*time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		var slots, others, empty int
		store.set(func() {
			for _, o := range store.outcomes {
				if o.Job.Tenant != 2 {
					continue
				}
				slots++
				if late := o.StartedAt.Sub(o.DueAt); late > 2*time.Millisecond {
					t.Errorf("a slot of the other tenant was sent %s late", late)
				}
			}
			for _, c := range store.claims {
				switch {
				case c.work != domain.WorkDue && c.work != domain.WorkLate:
					others++
				case c.runs == 0:
					empty++
				}
			}
		})
		if slots != 20 {
			t.Errorf("%d slots of the other tenant were sent, want 20", slots)
		}
		if others > 0 || empty > 50 {
			t.Errorf("%d claims of runs in ready, of which there are none, and %d of slots that found none", others, empty)
		}
	})
}

func TestALimitThatIsLiftedOrLoweredIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, _ := tenants(t)
		store.add(400, noisy, -2*time.Second)
		slow := newGatedDials(t, false)
		slow.slow = 300 * time.Millisecond
		start(t, store, slow.client, 40)
		time.Sleep(500 * time.Millisecond)
		store.set(func() { store.limits = []admit.TenantLimits{{Tenant: 1, Concurrent: 2}} })
		time.Sleep(4 * time.Second) // the replica has learned of the limit, and the attempts in flight have ended
		if most := slow.mostOpen(); most != 40 {
			t.Errorf("%d at once without a limit", most)
		}
		time.Sleep(time.Second)
		if most := slow.mostOpen(); most > 2 {
			t.Errorf("%d at once with one", most)
		}
		store.set(func() { store.limits = nil })
		time.Sleep(2*time.Second + 400*time.Second/40)
		if n := store.ended(); n != 400 {
			t.Errorf("%d runs in the end, want 400", n)
		}
	})
}

func TestNoMoreAreStartedInASecondThanATenantMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, _ := tenants(t)
		store.limits = []admit.TenantLimits{{Tenant: 1, PerSecond: 10}}
		store.add(100, noisy, -2*time.Second)
		begun := time.Now()
		start(t, store, newGatedDials(t, false).client, 50)
		for store.ended() < 100 && time.Since(begun) < time.Minute {
			time.Sleep(100 * time.Millisecond)
			if n, most := store.runs(), 10*(1+time.Since(begun).Seconds()); float64(n) > most {
				t.Fatalf("%d started in %s, at most %.0f may be", n, time.Since(begun), most)
			}
		}
		if took := time.Since(begun); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("100 took %s", took)
		}
	})
}

func TestADrawThatFailsLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, modest := tenants(t)
		store.limits = []admit.TenantLimits{{Tenant: 1, Concurrent: 2, PerSecond: 1000}}
		store.add(100, noisy, -2*time.Second)
		n := 0
		store.drawing = func() error {
			if n++; n%3 != 0 {
				return errAway
			}
			return nil
		}
		start(t, store, newGatedDials(t, false).client, 20)
		time.Sleep(10 * time.Second)
		store.add(5, modest, 0)
		time.Sleep(5 * time.Minute)
		if n := store.ended(); n != 105 {
			t.Errorf("%d runs in the end, want 105", n)
		}
	})
}

func TestTenantsWithoutLimitsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, _ := tenants(t)
		store.limits = []admit.TenantLimits{{Tenant: 2, Concurrent: 10}} // this tenant has nothing to do
		store.add(200, noisy, 0)
		start(t, store, newGatedDials(t, false).client, 20)
		time.Sleep(10 * time.Second)
		if store.ended() != 200 || store.draws != 0 {
			t.Errorf("%d runs, %d draws", store.ended(), store.draws)
		}
	})
}

func TestDrawsThatFailHoldUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, modest := tenants(t)
		store.limits = []admit.TenantLimits{{Tenant: 1, Concurrent: 2}}
		store.add(100, noisy, -2*time.Second)
		store.drawing = func() error { return errAway } // say, because another transaction locks the tenant's row
		start(t, store, newGatedDials(t, false).client, 20)
		time.Sleep(5 * time.Second)
		store.add(5, modest, 0)
		time.Sleep(5 * time.Second)
		if n := store.ended(); n != 5 {
			t.Errorf("%d runs, want the other tenant's 5", n)
		}
		store.set(func() {
			if store.draws > 30 {
				t.Errorf("%d draws in 10 s", store.draws)
			}
			store.drawing = nil
		})
		time.Sleep(time.Minute)
		if n := store.ended(); n != 105 {
			t.Errorf("%d runs in the end, want 105", n)
		}
	})
}
