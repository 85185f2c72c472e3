package admit

import (
	"testing"
	"time"

	"punctual/scheduler/domain"
)

// limitedTenants returns limits of n tenants, none of which holds an allowance yet.
func limitedTenants(n int) *Limits {
	l := newLimits(occupied([]int{10}))
	now := make([]TenantLimits, n)
	for i := range now {
		now[i] = TenantLimits{Tenant: int32(i + 1), Concurrent: 5}
	}
	l.Set(now)
	return l
}

func TestADrawIsOfAFewTenantsAtATime(t *testing.T) {
	l := limitedTenants(3 * MostWishes)
	for _, t := range l.tenants {
		l.holdBack(t, domain.WorkDue, true)
	}
	for draws := 1; ; draws++ {
		wishes := l.Short()
		if len(wishes) > MostWishes {
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
		l.Take(wishes, answers)
	}
	for _, id := range l.All() {
		if l.Available(id) != 5 {
			t.Fatalf("tenant %d may start %d", id, l.Available(id))
		}
	}
}

// The rate of a tenant holds its due work back also if each draw grants a few starts: fewer than the work asks for.
func TestWorkThatIsGrantedTooFewStartsWaitsForTheRate(t *testing.T) {
	limit := TenantLimits{Tenant: 1, Name: "a", PerSecond: 5}
	l := newLimits(occupied([]int{10}))
	l.Set([]TenantLimits{limit})
	l.holdBack(l.tenants[1], domain.WorkDue, true)
	wishes := l.Short()
	if len(wishes) != 1 || wishes[0].Starts < 2 || wishes[0].HeldBy != "" {
		t.Fatalf("wishes %+v", wishes)
	}
	l.Take(wishes, []Allowance{{TenantLimits: limit, Starts: 1}})
	if w := l.Idle(false, l.All()); len(w) != 0 {
		t.Fatalf("idle wishes %+v", w)
	}
	var held []Limit
	l.Each(func(_ string, by Limit) { held = append(held, by) })
	if wishes := l.Short(); len(wishes) != 1 || wishes[0].HeldBy != LimitPerSecond || len(held) != 1 {
		t.Errorf("it waits for %q here, and the database is told %+v", held, wishes)
	}
}

// The database may have noted slots for this replica although its answer was lost. The replica gives them back even if
// nothing is due any more.
func TestSlotsWhoseDrawWasNotAnsweredAreGivenBack(t *testing.T) {
	l := limitedTenants(1)
	l.holdBack(l.tenants[1], domain.WorkDue, true)
	if wishes := l.Short(); len(wishes) != 1 || wishes[0].Slots != 5 {
		t.Fatalf("wishes %+v", wishes)
	}
	l.GotAll(1, domain.WorkDue, time.Now()) // other replicas have claimed the due slots
	wishes := l.Idle(false, l.All())
	if len(wishes) != 1 || wishes[0].Slots != 0 || wishes[0].Keep != 0 {
		t.Fatalf("wishes %+v, want to keep none", wishes)
	}
	l.Take(wishes, []Allowance{{TenantLimits: TenantLimits{Tenant: 1, Concurrent: 5}}})
	if wishes := l.Idle(false, l.All()); len(wishes) != 0 {
		t.Errorf("once they are: %+v", wishes)
	}
}
