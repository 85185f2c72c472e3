package admit

import (
	"math"
	"time"

	"punctual/scheduler/domain"
)

// Grant is what one claim may start of tenants with limits; nil where no tenant has any. Not for concurrent use.
type Grant struct {
	limits  *Limits
	work    domain.Work
	tenants map[int32]*granted
}

// granted is how many starts of a tenant a claim took, and since when. It is also how many of the tenant's runs it
// found and could not take.
type granted struct {
	took, left int
	since      time.Time
}

// Grant returns what a claim of a kind of work may start.
func (l *Limits) Grant(of domain.Work) *Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tenants) == 0 {
		return nil
	}
	return &Grant{limits: l, work: of, tenants: map[int32]*granted{}}
}

// Room is how many runs of a tenant may start.
func (g *Grant) Room(tenant int32) int {
	if g == nil {
		return math.MaxInt
	}
	return g.limits.Available(tenant)
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
	got := g.tenants[tenant]
	if got == nil {
		got = &granted{since: time.Now()}
		g.tenants[tenant] = got
	}
	if l.room(t) < n {
		got.left += n
		return false
	}
	got.took += n
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
	for tenant, got := range g.tenants {
		if t := l.tenants[tenant]; t != nil {
			t.reserved -= got.took
			t.restore(got.took, got.since)
		}
	}
	clear(g.tenants)
}

// End ends a grant. By now its dispatched runs occupy worker slots, and the others never will.
func (g *Grant) End(dispatched []domain.Assignment) {
	if g == nil {
		return
	}
	sent := map[int32]int{}
	for _, a := range dispatched {
		sent[a.Job.Tenant]++
	}
	l := g.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	for tenant, got := range g.tenants {
		t := l.tenants[tenant]
		if t == nil {
			continue
		}
		if got.left > 0 {
			l.holdBack(t, g.work, true)
			t.left = time.Now()
		}
		t.reserved -= got.took
		t.restore(max(0, got.took-sent[tenant]), got.since)
		t.pace = max(got.took+got.left, t.pace*3/4) // smooths the alternation between few and many free slots
	}
}

// sentNothing returns the start of a run for which nothing was sent. dispatched is when the run was dispatched.
func (l *Limits) sentNothing(tenant int32, dispatched time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tenants[tenant]; t != nil {
		t.restore(1, dispatched)
	}
}

// restore returns starts that were taken and not used. If the starts drawn with them have lapsed since, it returns
// none: no more may start in a second than the limit allows.
func (t *limited) restore(starts int, taken time.Time) {
	if t.PerSecond > 0 && !taken.Before(t.until.Add(-t.kept())) && !time.Now().After(t.until) {
		t.starts += starts
	}
}
