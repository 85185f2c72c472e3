package scheduler

import (
	"testing"
	"time"

	"punctual/scheduler/domain"
)

// Starts that a claim took and did not use lapse like those that no claim took. A later draw does not make them young.
func TestReturnedStartsLapse(t *testing.T) {
	for name, giveBack := range map[string]func(*Grant){
		"of a claim that is done again": (*Grant).Reset,
		"of a claim that failed":        func(g *Grant) { g.end(nil) },
	} {
		for wait, want := range map[time.Duration]int{time.Millisecond: 5, 3 * time.Second: 0} {
			virtually(t, name+" after "+wait.String(), func(t *testing.T) {
				l := newLimits(occupied([]int{10}))
				l.set([]TenantLimits{{Tenant: 1, PerSecond: 10}})
				draw := func(starts int) {
					l.take([]Wish{{Tenant: 1, Starts: starts}},
						[]Allowance{{TenantLimits: TenantLimits{Tenant: 1, PerSecond: 10}, Starts: starts}})
				}
				draw(5)
				g := l.grant(domain.WorkDue)
				if !g.Take(1, 5) {
					t.Fatal("the starts could not be taken")
				}
				time.Sleep(wait)
				if wait > time.Second {
					draw(0) // as a heartbeat does
				}
				giveBack(g)
				if n := l.available(1); n != want {
					t.Errorf("%d may start, want %d", n, want)
				}
			})
		}
	}
}
