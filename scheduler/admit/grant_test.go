package admit

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/domain"
)

// Starts that a claim took and did not use lapse like those that no claim took. A later draw does not make them young.
func TestReturnedStartsLapse(t *testing.T) {
	for name, giveBack := range map[string]func(*Grant){
		"of a claim that is done again": (*Grant).Reset,
		"of a claim that failed":        func(g *Grant) { g.End(nil) },
	} {
		for wait, want := range map[time.Duration]int{time.Millisecond: 5, 3 * time.Second: 0} {
			t.Run(name+" after "+wait.String(), virtually(func(t *testing.T) {
				l := newLimits(occupied([]int{10}))
				l.Set([]TenantLimits{{Tenant: 1, PerSecond: 10}})
				draw := func(starts int) {
					l.Take([]Wish{{Tenant: 1, Starts: starts}},
						[]Allowance{{TenantLimits: TenantLimits{Tenant: 1, PerSecond: 10}, Starts: starts}})
				}
				draw(5)
				g := l.Grant(domain.WorkDue)
				if !g.Take(1, 5) {
					t.Fatal("the starts could not be taken")
				}
				time.Sleep(wait)
				if wait > time.Second {
					draw(0) // as a heartbeat does
				}
				giveBack(g)
				if n := l.Available(1); n != want {
					t.Errorf("%d may start, want %d", n, want)
				}
			}))
		}
	}
}

func TestAGrantTakesAllOrNothing(t *testing.T) {
	l := newLimits(occupied([]int{10}))
	if l.Grant(domain.WorkDue) != nil {
		t.Error("a grant where nobody has limits")
	}
	l.Set([]TenantLimits{{Tenant: 1, Concurrent: 5}})
	l.Take([]Wish{{Tenant: 1, Slots: 5}}, []Allowance{
		{TenantLimits: TenantLimits{Tenant: 1, Concurrent: 5}, Slots: 5, Noted: 5},
	})
	g := l.Grant(domain.WorkDue)
	if !g.Take(1, 5) || g.Take(1, 1) {
		t.Error("not what it may at first")
	}
	g.Reset() // the claim is done again
	if g.Room(1) != 5 || g.Room(2) != math.MaxInt || !g.Take(2, 1000) || !g.Take(1, 4) || g.Take(1, 2) || !g.Take(1, 1) ||
		g.Room(1) != 0 {
		t.Error("not what it may")
	}
	if len(l.HeldBack()) != 0 {
		t.Error("held back before the claim has ended")
	}
	g.End(nil) // no run was dispatched
	if held := l.HeldBack(); len(held) != 1 || held[0] != 1 || l.Available(1) != 5 {
		t.Errorf("held back %v, %d available", held, l.Available(1))
	}
	l.GotAll(1, domain.WorkDue, time.Now())
	if len(l.HeldBack()) != 0 {
		t.Error("held back with nothing due")
	}
}

// virtually runs a test in virtual time.
func virtually(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}
