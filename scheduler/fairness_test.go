package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"punctual/scheduler/domain"
)

// A tenant with few due slots does not wait behind the older backlog of another tenant.
func TestABacklogOfOneTenantDoesNotHoldUpAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, modest := compiled(t, brief), compiled(t, brief)
		noisy.Tenant, modest.Tenant = 1, 2
		store.add(2000, noisy, -2*time.Second)
		store.add(10, modest, -time.Second)
		start(t, store, newGatedDials(t, false).client, 20)
		time.Sleep(time.Minute)
		if last := lastOf(store, 2); last < 0 || last > 100 {
			t.Errorf("the last of its 10 slots was number %d of 2010", last)
		}
		if n := len(read(store, func() []domain.Outcome { return store.outcomes })); n != 2010 {
			t.Errorf("%d slots were run", n)
		}
	})
}

func TestWhenEverythingFitsNobodyIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add(50, compiled(t, brief), time.Second)
		start(t, store, newGatedDials(t, false).client, 100)
		time.Sleep(5 * time.Second)
		if n := read(store, func() int { return store.peeks }); n != 0 {
			t.Errorf("%d looks at who waits", n)
		}
	})
}

// Late slots leave a part of the queue to other work, so most of the time no late slot can be claimed.
func TestTheBacklogOfOneTenantDoesNotHoldUpThatOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, modest := compiled(t, brief), compiled(t, brief)
		noisy.Tenant, modest.Tenant = 1, 2
		store.add(400, noisy, -2*time.Minute)
		store.add(5, modest, -time.Minute)
		slow := newGatedDials(t, false)
		slow.slow = time.Second
		start(t, store, slow.client, 20)
		time.Sleep(10 * time.Minute)
		if last := lastOf(store, 2); last < 0 || last > 50 {
			t.Errorf("the last of its 5 slots was number %d of 405", last)
		}
	})
}

func TestAQueueWithRoomDoesNotEndTheFairnessOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		noisy, modest := compiled(t, brief), compiled(t, brief)
		noisy.Tenant, modest.Tenant = 1, 2
		store.add(200, noisy, -2*time.Second)
		store.add(2, modest, -time.Second)
		slow := newGatedDials(t, false)
		slow.slow = 100 * time.Millisecond
		startQueues(t, store, slow.client, map[string]int{"one": 10, "other": 10}, time.Second)
		time.Sleep(10 * time.Minute)
		if last := lastOf(store, 2); last < 0 || last > 50 {
			t.Errorf("the last of its 2 slots was number %d of 202", last)
		}
	})
}

func TestALookAtWhoWaitsThatHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.peeking = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		store.add(50, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(5 * time.Minute)
		if n := len(read(store, func() []domain.Outcome { return store.outcomes })); n != 50 {
			t.Errorf("%d of 50 slots were run", n)
		}
	})
}

// lastOf returns the index of a tenant's last outcome, or -1.
func lastOf(store *fakeStore, tenant int32) int {
	last := -1
	for i, o := range read(store, func() []domain.Outcome { return store.outcomes }) {
		if o.Job.Tenant == tenant {
			last = i
		}
	}
	return last
}

// Where more tenants wait than there are slots, a tenant gets up to eight slots in its turn. Over ten claims it gets as
// many as its weight says, to within one turn, also while its requests end faster than claims follow each other.
func TestSharesOverTenClaims(t *testing.T) {
	t.Parallel()
	for weighted, claims := range map[bool]int{false: 10, true: 30} { // every tenant has its turn in them
		slots := admit.NewSlots(map[string]int{"default": 1000}, map[string]int16{"default": 1}, 0)
		f := fairness{dealt: map[turn]int{}, atOnce: admit.MostAtOnce}
		var waiting []admit.Contender
		weights := 0
		for i := range int32(150) {
			weight := 1
			if weighted && i%3 == 0 {
				weight = 4
			}
			weights += weight
			waiting = append(waiting, admit.Contender{Queue: 1, Tenant: 1 + i, Weight: weight, Oldest: time.Unix(int64(i), 0)})
		}
		got := map[int32]int{}
		for claim := range claims {
			tenants := map[int32]bool{}
			for _, q := range f.share([]admit.Quota{{Queue: 1, Slots: 100}}, waiting, slots) {
				got[q.Tenant] += q.Slots
				tenants[q.Tenant] = true
			}
			if len(tenants) > 100/admit.MostAtOnce+1 {
				t.Errorf("claim %d looks for the runs of %d tenants", claim, len(tenants))
			}
		}
		for _, c := range waiting {
			fair := 100 * claims * c.Weight / weights
			if n := got[c.Tenant]; n < fair-admit.MostAtOnce || n > fair+admit.MostAtOnce {
				t.Errorf("a tenant with weight %d got %d slots of %d, want %d", c.Weight, n, 100*claims, fair)
			}
		}
	}
}

// A claim that looks for the work of many tenants costs more, so each of many gets several slots in its turn. In a
// small queue a turn must not take slots for as long as slow requests last while others wait.

// Tenants with little due get no more slots than they use.
func TestATurnIsAsLongAsTenantsHaveWork(t *testing.T) {
	t.Parallel()
	var f fairness
	for _, step := range []struct{ asked, got, want int }{
		{100, 100, 2},
		{100, 95, 4},
		{100, 100, 8},
		{100, 100, 8},
		{100, 70, 8},
		{100, 20, 4},
		{100, 30, 2},
		{100, 10, 1},
		{100, 0, 0},
		{100, 100, 2},
	} {
		if f.learn(step.asked, step.got); f.atOnce != step.want {
			t.Fatalf("after %d of %d it is %d, want %d", step.got, step.asked, f.atOnce, step.want)
		}
	}
}
