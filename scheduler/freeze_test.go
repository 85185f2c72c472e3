package scheduler

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"
)

func TestAFrozenReplicaClaimsNothingAndLooksEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.frozen = &Freeze{Since: store.now(), By: "somebody", Reason: FrozenAsked}
		store.add(500, compiled(t, brief), -2*time.Second)
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(10 * time.Minute)
		if looks, claims := read(store, func() int { return len(store.looks) }),
			read(store, func() int { return len(store.claims) }); looks > 700 || claims != 0 {
			t.Errorf("%d looks and %d claims in ten minutes", looks, claims)
		}
		store.set(func() { store.frozen = nil })
		time.Sleep(20 * time.Second)
		if n := store.ended(); n != 500 {
			t.Errorf("unfrozen, %d runs have ended, want 500", n)
		}
	})
}

// Whoever ends a freeze, and wherever: each replica claims within a second. (It heard of it with a heartbeat, and then
// slept on: up to three seconds.)
func TestAnUnfreezeIsHeededWithinASecond(t *testing.T) {
	for name, of := range map[string]struct{ freeze, unfreeze func(*fakeStore) }{
		"of the deployment": {
			func(f *fakeStore) { f.frozen = &Freeze{Since: f.now(), By: "somebody", Reason: FrozenAsked} },
			func(f *fakeStore) { f.frozen = nil },
		},
		"of a tenant": {
			func(f *fakeStore) { f.limits = []admit.TenantLimits{{Tenant: 1, Name: "noisy", Frozen: true}} },
			func(f *fakeStore) { f.limits = nil },
		},
		"of a tenant with a limit": {
			func(f *fakeStore) {
				f.limits = []admit.TenantLimits{{Tenant: 1, Name: "noisy", Concurrent: 3, Frozen: true}}
			},
			func(f *fakeStore) { f.limits[0].Frozen = false },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore()
				noisy, _ := tenants(t)
				of.freeze(store)
				start(t, store, newGatedDials(t, false).client, 10)
				for i := range 40 {
					ended := store.ended()
					store.add(1, noisy, 0)
					time.Sleep(5*time.Second + time.Duration(i)*97*time.Millisecond)
					if n := store.ended() - ended; n != 0 {
						t.Fatalf("%d runs of somebody who is frozen", n)
					}
					store.set(func() { of.unfreeze(store) })
					time.Sleep(1100 * time.Millisecond) // a request takes a while
					if n := store.ended() - ended; n != 1 {
						t.Errorf("%d runs have ended after a second, want 1", n)
					}
					store.set(func() { of.freeze(store) })
					time.Sleep(3 * time.Second)
				}
			})
		})
	}
}

// What this replica itself unfreezes is claimed at once.
func TestAnUnfreezeOfThisReplicaWakesTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.frozen = &Freeze{Since: store.now(), By: "somebody", Reason: FrozenAsked}
		store.add(1, compiled(t, brief), -2*time.Second)
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(10*time.Second + 123*time.Millisecond)
		at := store.now()
		store.set(func() { store.frozen = nil })
		store.wake <- struct{}{}
		time.Sleep(2 * time.Second)
		claims := read(store, func() []fakeClaim { return store.claims })
		if len(claims) == 0 || claims[0].at.Sub(at) > 10*time.Millisecond {
			t.Errorf("the claims are %v, want one at %s", claims, at)
		}
	})
}

// A claim may learn of the freeze before a look does.
func TestAClaimThatIsHaltedIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		start(t, store, newGatedDials(t, false).client, 10)
		store.add(500, compiled(t, brief), 1500*time.Millisecond)
		time.Sleep(1400 * time.Millisecond) // the last look has seen the slots coming
		store.set(func() { store.halted = true })
		time.Sleep(time.Minute)
		if n := read(store, func() int { return len(store.claims) }); n < 1 || n > 4 {
			t.Errorf("%d claims in a minute", n)
		}
	})
}

// Due work of a frozen tenant must not make the replica try to claim it in vain at full speed. Due work of other
// tenants is claimed.
func TestAFrozenTenantIsHeldBack(t *testing.T) {
	t.Run("with a limit", func(t *testing.T) { frozenTenant(t, 3) })
	t.Run("without", func(t *testing.T) { frozenTenant(t, 0) })
}

func frozenTenant(t *testing.T, concurrent int) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, modest := tenants(t)
		store.limits = []admit.TenantLimits{{Tenant: 1, Name: "noisy", Concurrent: concurrent, Frozen: true}}
		store.add(300, noisy, -2*time.Second)
		store.add(100, noisy, -time.Minute)
		start(t, store, newGatedDials(t, false).client, 20)
		time.Sleep(time.Minute)
		store.add(20, modest, time.Second)
		time.Sleep(10 * time.Second)
		if n := store.ended(); n != 20 {
			t.Errorf("%d runs have ended, want the 20 of the other tenant", n)
		}
		if claims, peeks := read(store, func() int { return len(store.claims) }),
			read(store, func() int { return store.peeks }); claims > 70*3*8 || peeks > 70*3*8 {
			t.Errorf("%d claims and %d looks in 70 s", claims, peeks)
		}
		if n := read(store, func() int { return store.draws }); n > 70 {
			t.Errorf("%d draws on the limits of a frozen tenant", n)
		}
		store.set(func() { store.limits = []admit.TenantLimits{{Tenant: 1, Name: "noisy", Concurrent: concurrent}} })
		time.Sleep(5 * time.Minute)
		if n := store.ended(); n != 420 {
			t.Errorf("unfrozen, %d runs have ended, want 420", n)
		}
	})
}

func TestTheLogTellsOfFreezes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := freezing{log: slog.New(slog.NewTextHandler(&log, nil))}
		asked := &Freeze{Since: time.Now(), By: "alice", Reason: FrozenAsked}
		restored := &Freeze{Since: time.Now(), By: "Punctual", Reason: FrozenRestored}
		tenant := []admit.TenantLimits{{Tenant: 1, Name: "billing", Frozen: true}, {Tenant: 2, Name: "other", Concurrent: 1}}
		for i, step := range []struct {
			now     *Freeze
			tenants []admit.TenantLimits
			passes  time.Duration
			want    string // empty: nothing is logged
		}{
			{nil, nil, 0, ""},
			{asked, nil, 0, "the deployment is frozen"},
			{asked, nil, remindEvery - time.Second, ""},
			{asked, nil, time.Second, "`punctual unfreeze` ends it"},
			{restored, nil, 0, "--adopt-database"},
			{restored, tenant, 0, "tenants are frozen"},
			{restored, tenant, remindEvery, "billing"},
			{nil, tenant, 0, "no longer frozen"},
			{nil, nil, 0, "no tenant is frozen now"},
			{nil, nil, remindEvery, ""},
		} {
			time.Sleep(step.passes)
			log.Reset()
			f.heed(step.now, step.tenants)
			if said := log.String(); !strings.Contains(said, step.want) || (said == "") != (step.want == "") {
				t.Errorf("step %d: the log says %q, want %q", i, said, step.want)
			}
			if f.on() != (step.now != nil) {
				t.Errorf("step %d: halted is %t", i, f.on())
			}
		}
	})
}
