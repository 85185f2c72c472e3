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

func TestAFrozenReplicaNeitherClaimsNorLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.frozen = &Freeze{Since: store.now(), By: "somebody", Reason: FrozenAsked}
		store.add(500, compiled(t, brief), -2*time.Second)
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(10 * time.Minute)
		if looks, claims := read(store, func() int { return len(store.looks) }),
			read(store, func() int { return len(store.claims) }); looks != 0 || claims != 0 {
			t.Errorf("%d looks and %d claims in ten minutes", looks, claims)
		}
		store.set(func() { store.frozen = nil })
		time.Sleep(20 * time.Second)
		if n := store.ended(); n != 500 {
			t.Errorf("unfrozen, %d runs have ended, want 500", n)
		}
	})
}

// A claim may learn of the freeze before the heartbeat does.
func TestAClaimThatIsHaltedIsNotTriedAgainBeforeTheNextHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(time.Second)
		store.add(500, compiled(t, brief), 0)
		store.set(func() { store.halted = true })
		time.Sleep(time.Minute)
		// The heartbeats of this store report no freeze. So each is followed by one try of at most two kinds of work.
		if n := read(store, func() int { return len(store.claims) }); n < 1 || n > 2*40 {
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
