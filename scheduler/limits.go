package scheduler

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// A Limit is one that a tenant's due work can wait for.
type Limit string

// The limits that due work waits for, by their columns.
const (
	LimitConcurrent Limit = "max_concurrent_runs"
	LimitPerSecond  Limit = "max_runs_per_second"
)

// TenantLimits are what a tenant's runs are held to, over all replicas. Zero: no limit.
type TenantLimits struct {
	Tenant     int32
	Name       string
	Concurrent int  // how many are sent at once
	PerSecond  int  // how many attempts are started
	Frozen     bool // nothing of it is claimed
}

// kept is how long starts that were drawn may be used. The database lets a burst of half a second's starts through, and
// at least one; with those that replicas keep that makes no more than a second's.
func (l TenantLimits) kept() time.Duration {
	burst := max(1, float64(l.PerSecond)/2) / float64(l.PerSecond)
	return max(100*time.Millisecond, time.Duration((1-burst)*float64(time.Second)))
}

// limits is this replica's share of what tenants with limits may do. It never starts more than its share, gets more
// of it where it needs more, and gives back what it does not need: see allowance.go.
//
// A tenant that has more due than may be started is held back: claims leave it out until something may be.
type limits struct {
	slots *workerSlots

	mu      sync.Mutex
	tenants map[int32]*limited
	drawing sync.Mutex // one Draw at a time
}

// limited is one tenant's share.
type limited struct {
	TenantLimits
	slots    int  // how many of its runs may be in flight here
	reserved int  // how many claims under way have taken, beside those in flight
	noted    int  // how many the database has put down for this replica, or more
	wants    bool // the database has put down that it wants more
	peak     int  // most in flight since the last heartbeat
	pace     int  // how many a claim could lately have started

	starts int       // drawn, and not used
	until  time.Time // when they lapse

	waits  [works]bool // there is due work that may not be started yet
	left   time.Time   // when a claim last found such
	since  time.Time   // since when it is held back
	by     Limit       // what it waits for, as the last draw found
	told   time.Time   // when the database was last told so
	drawAt time.Time   // it is no use to draw before
}

func newLimits(slots *workerSlots) *limits {
	return &limits{slots: slots, tenants: map[int32]*limited{}}
}

// set takes the limits that there are now; tenants that are not named have none any more.
func (l *limits) set(now []TenantLimits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	named := make(map[int32]bool, len(now))
	for _, n := range now {
		named[n.Tenant] = true
	}
	for id, t := range l.tenants {
		if named[id] {
			continue
		}
		t.Concurrent, t.PerSecond, t.Frozen, t.waits = 0, 0, false, [works]bool{}
		if t.noted == 0 && t.reserved == 0 {
			delete(l.tenants, id)
		}
	}
	for _, n := range now {
		if l.tenants[n.Tenant] == nil {
			l.tenants[n.Tenant] = &limited{}
		}
		t := l.tenants[n.Tenant]
		if t.TenantLimits = n; n.Frozen {
			t.by = "" // it waits for no limit
		}
	}
}

// forget gives all slots up, as others may have them: they took this replica for lost.
func (l *limits) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tenants {
		t.slots = 0
	}
}

// busy is how many runs of a tenant are in flight here, or about to be.
func (l *limits) busy(t *limited) int { return l.slots.ofTenant(t.Tenant) + t.reserved }

// room is how many more of a tenant's runs may be started.
func (l *limits) room(t *limited) int {
	n := math.MaxInt
	if t.Frozen {
		return 0
	}
	if t.Concurrent > 0 {
		n = t.slots - l.busy(t)
	}
	if t.PerSecond > 0 {
		n = min(n, t.startsLeft())
	}
	return max(n, 0)
}

func (t *limited) startsLeft() int {
	if time.Now().After(t.until) {
		t.starts = 0
	}
	return t.starts
}

// lapsing reports whether starts may lapse between a look at them and a claim.
func (t *limited) lapsing() bool {
	kept := t.kept()
	return t.starts > 0 && time.Until(t.until) < min(100*time.Millisecond, kept/4)
}

func (t *limited) held() bool { return t.waits != [works]bool{} }

// available is room for anybody: all the room there is for a tenant without limits.
func (l *limits) available(tenant int32) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tenants[tenant]; t != nil {
		return l.room(t)
	}
	return math.MaxInt
}

// heldBack returns the tenants that are, sorted. One that may start as much as a tick claims is not, whatever it has
// due: its limits are not what it waits for.
func (l *limits) heldBack() (tenants []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, t := range l.tenants {
		if !t.held() {
			continue
		}
		if l.room(t) >= min(2*BatchSize, l.slots.all()) {
			t.waits = [works]bool{}
			continue
		}
		tenants = append(tenants, id)
	}
	slices.Sort(tenants)
	return tenants
}

// holdBack notes whether a tenant has due work of a kind that may not be started yet.
func (l *limits) holdBack(tenant int32, of Work, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[tenant]
	if t == nil || t.Concurrent == 0 && t.PerSecond == 0 && !t.Frozen {
		return
	}
	if !t.held() && waits {
		t.since, t.by = time.Now(), ""
	}
	t.waits[of] = waits
	if t.held() && !t.Frozen && t.Concurrent > 0 && t.slots >= t.Concurrent {
		t.waitsFor(l.busy(t)) // there is nothing to draw that would tell
	}
}

// freeze notes that a claim found a tenant frozen: it is held back until a heartbeat tells that it is not any more.
func (l *limits) freeze(tenant int32, of Work) {
	l.mu.Lock()
	if l.tenants[tenant] == nil {
		l.tenants[tenant] = &limited{TenantLimits: TenantLimits{Tenant: tenant}}
	}
	l.tenants[tenant].Frozen = true
	l.mu.Unlock()
	l.holdBack(tenant, of, true)
}

// saw takes who was found waiting for a kind of claim: those of the held-back tenants that were not wait for it no more.
func (l *limits) saw(of Work, waiting []Contender) {
	listed := make(map[int32]bool, len(waiting))
	for _, c := range waiting {
		listed[c.Tenant] = true
	}
	l.mu.Lock()
	var waits, not []int32
	for id, t := range l.tenants {
		switch {
		case listed[id] && (t.held() || l.room(t) == 0):
			waits = append(waits, id)
		case !listed[id] && t.waits[of]:
			not = append(not, id)
		}
	}
	l.mu.Unlock()
	for _, id := range waits {
		l.holdBack(id, of, true)
	}
	for _, id := range not {
		l.holdBack(id, of, false)
	}
}

// gotAll notes that a claim found less of a tenant's due work than might have been started, unless it left some: a slot
// that catches up makes many runs.
func (l *limits) gotAll(tenant int32, of Work, began time.Time) {
	l.mu.Lock()
	t := l.tenants[tenant]
	left := t != nil && t.left.After(began)
	l.mu.Unlock()
	if !left {
		l.holdBack(tenant, of, false)
	}
}

// each calls visit with what the held-back tenants wait for, by name.
func (l *limits) each(visit func(name string, by Limit)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(l.tenants)) {
		if t := l.tenants[id]; t.held() && t.by != "" {
			visit(t.Name, t.by)
		}
	}
}
