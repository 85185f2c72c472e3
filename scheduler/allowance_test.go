package scheduler

import (
	"testing"
	"time"

	"punctual/scheduler/domain"
)

// limitedTenants returns limits of n tenants, none of which holds an allowance yet.
func limitedTenants(n int) *limits {
	l := newLimits(occupied([]int{10}))
	now := make([]TenantLimits, n)
	for i := range now {
		now[i] = TenantLimits{Tenant: int32(i + 1), Concurrent: 5}
	}
	l.set(now)
	return l
}

func TestADrawIsOfAFewTenantsAtATime(t *testing.T) {
	l := limitedTenants(3 * mostWishes)
	for _, t := range l.tenants {
		l.holdBack(t, domain.WorkDue, true)
	}
	for draws := 1; ; draws++ {
		wishes := l.short()
		if len(wishes) > mostWishes {
			t.Fatalf("%d wishes in a draw", len(wishes))
		}
		if len(wishes) == 0 {
			break
		}
		if draws > 3 {
			t.Fatal("somebody is asked for twice")
		}
		answers := make([]Allowance, len(wishes))
		for i, w := range wishes {
			answers[i] = Allowance{TenantLimits: TenantLimits{Tenant: w.Tenant, Concurrent: 5}, Slots: 5, Noted: 5}
		}
		l.take(wishes, answers)
	}
	for _, id := range l.all() {
		if l.available(id) != 5 {
			t.Fatalf("tenant %d may start %d", id, l.available(id))
		}
	}
}

// The database may have noted slots for this replica although its answer was lost. The replica gives them back even if
// nothing is due any more.
func TestSlotsWhoseDrawWasNotAnsweredAreGivenBack(t *testing.T) {
	l := limitedTenants(1)
	l.holdBack(l.tenants[1], domain.WorkDue, true)
	if wishes := l.short(); len(wishes) != 1 || wishes[0].Slots != 5 {
		t.Fatalf("wishes %+v", wishes)
	}
	l.gotAll(1, domain.WorkDue, time.Now()) // other replicas have claimed the due slots
	wishes := l.idle(false, l.all())
	if len(wishes) != 1 || wishes[0].Slots != 0 || wishes[0].Keep != 0 {
		t.Fatalf("wishes %+v, want to keep none", wishes)
	}
	l.take(wishes, []Allowance{{TenantLimits: TenantLimits{Tenant: 1, Concurrent: 5}}})
	if wishes := l.idle(false, l.all()); len(wishes) != 0 {
		t.Errorf("once they are: %+v", wishes)
	}
}
