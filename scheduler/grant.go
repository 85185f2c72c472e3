package scheduler

import (
	"math"
	"time"
)

// Grant is what one claim may start of tenants with limits; nil where there are none. Not for concurrent use.
type Grant struct {
	limits *limits
	kind   kind
	took   map[int32]int
	left   map[int32]int // what it found and could not take
}

// grant returns what a claim of the kind may start.
func (l *limits) grant(k kind) *Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tenants) == 0 {
		return nil
	}
	return &Grant{limits: l, kind: k, took: map[int32]int{}, left: map[int32]int{}}
}

// Room is how many runs of a tenant may be started.
func (g *Grant) Room(tenant int32) int {
	if g == nil {
		return math.MaxInt
	}
	return g.limits.available(tenant)
}

// Take takes n starts of a tenant's, or none. What is left because of that stays due, and its tenant is held back.
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

// end ends a grant: those of its runs that were dispatched occupy worker slots by now, the others never will.
func (g *Grant) end(dispatched []Assignment) {
	if g == nil {
		return
	}
	unused := g.took
	paces := map[int32]int{}
	for tenant, n := range g.left {
		g.limits.holdBack(tenant, g.kind, true)
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
			t.pace = max(n, t.pace*3/4) // by turns there are few free slots and many
			t.starts += max(0, unused[tenant])
		}
	}
}
