package scheduler

import (
	"math"
	"time"

	"punctual/scheduler/domain"
)

// Grant is what one claim may start of tenants with limits; nil where no tenant has any. Not for concurrent use.
type Grant struct {
	limits *limits
	work   domain.Work
	took   map[int32]int
	left   map[int32]int // what the claim found and could not take
}

// grant returns what a claim of a kind of work may start.
func (l *limits) grant(of domain.Work) *Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tenants) == 0 {
		return nil
	}
	return &Grant{limits: l, work: of, took: map[int32]int{}, left: map[int32]int{}}
}

// Room is how many runs of a tenant may start.
func (g *Grant) Room(tenant int32) int {
	if g == nil {
		return math.MaxInt
	}
	return g.limits.available(tenant)
}

// Take takes n starts of a tenant, or none. Runs left because of that stay due, and their tenant is held back.
func (g *Grant) Take(tenant int32, n int) bool {
	if g == nil || n == 0 {
		return true
	}
	l := g.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[tenant]
	if t == nil {
		return true
	}
	if l.room(t) < n {
		g.left[tenant] += n
		return false
	}
	g.took[tenant] += n
	t.reserved += n
	t.starts -= min(n, t.starts)
	t.peak = max(t.peak, l.busy(t))
	return true
}

// Reset gives back what was taken, before a claim is done again.
func (g *Grant) Reset() {
	if g == nil {
		return
	}
	l := g.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	for tenant, n := range g.took {
		if t := l.tenants[tenant]; t != nil {
			t.reserved -= n
			t.starts += n
		}
	}
	clear(g.took)
	clear(g.left)
}

// end ends a grant. By now its dispatched runs occupy worker slots, and the others never will.
func (g *Grant) end(dispatched []domain.Assignment) {
	if g == nil {
		return
	}
	unused := g.took
	paces := map[int32]int{}
	for tenant, n := range g.left {
		g.limits.holdBack(tenant, g.work, true)
		paces[tenant] += n
	}
	l := g.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	for tenant, n := range g.took {
		paces[tenant] += n
		if t := l.tenants[tenant]; t != nil {
			t.reserved -= n
		}
	}
	for _, a := range dispatched {
		unused[a.Job.Tenant]--
	}
	for tenant, n := range paces {
		if t := l.tenants[tenant]; t != nil {
			if g.left[tenant] > 0 {
				t.left = time.Now()
			}
			t.pace = max(n, t.pace*3/4) // smooths the alternation between few and many free slots
			t.starts += max(0, unused[tenant])
		}
	}
}

// sentNothing returns the start of a run for which nothing was sent. dispatched is when the run was dispatched. If
// the starts drawn with it have lapsed by now, it returns none: no more may start in a second than the limit allows.
func (l *limits) sentNothing(tenant int32, dispatched time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[tenant]
	if t == nil || t.PerSecond == 0 || dispatched.Before(t.until.Add(-t.kept())) || time.Now().After(t.until) {
		return
	}
	t.starts++
}
