package admit

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"punctual/scheduler/domain"
)

// A Limit is a limit that a tenant's due work can wait for.
type Limit string

// The limits that due work can wait for, named as their columns.
const (
	LimitConcurrent Limit = "max_concurrent_runs"
	LimitPerSecond  Limit = "max_runs_per_second"
)

// TenantLimits are the limits of a tenant's runs, over all replicas. Zero: no limit.
type TenantLimits struct {
	Tenant     int32
	Name       string
	Concurrent int  // runs in flight at once
	PerSecond  int  // attempts started per second
	Frozen     bool // nothing of it is claimed
}

// kept is how long drawn starts may be used. The database lets a burst of half a second's starts through, and at
// least one. Together with the starts that replicas keep, that makes no more than one second's.
func (l TenantLimits) kept() time.Duration {
	burst := max(1, float64(l.PerSecond)/2) / float64(l.PerSecond)
	return max(100*time.Millisecond, time.Duration((1-burst)*float64(time.Second)))
}

// Limits is this replica's share of the limits of tenants. The replica never starts more than its share, draws more
// when it needs more, and returns what it does not need: see allowance.go.
//
// A tenant that has more due than may start is held back: claims leave it out until some of it may start.
type Limits struct {
	slots *Slots

	mu      sync.Mutex
	tenants map[int32]*limited
}

// limited is this replica's share of one tenant's limits.
type limited struct {
	TenantLimits
	slots    int  // how many of the tenant's runs may be in flight here
	reserved int  // how many slots the claims under way have taken, beside the runs in flight
	noted    int  // how many slots the database has put down for this replica, or more
	wants    bool // the database has put down that this replica wants more
	peak     int  // most runs in flight since the last heartbeat
	pace     int  // how many runs a claim could lately have started

	starts int       // starts drawn and not used
	until  time.Time // when these starts lapse

	waits  [domain.WorkKinds]bool // kinds of work that are due but may not start yet
	left   time.Time              // when a claim last left due work because of the limits
	since  time.Time              // since when the tenant is held back
	by     Limit                  // the limit that it waits for, as of the last draw
	told   time.Time              // when the database was last told of it
	drawAt time.Time              // a draw before this time is of no use
}

func newLimits(slots *Slots) *Limits {
	return &Limits{slots: slots, tenants: map[int32]*limited{}}
}

// Set adopts the current limits. Tenants that are not named have none any more.
func (l *Limits) Set(now []TenantLimits) {
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
		t.Concurrent, t.PerSecond, t.Frozen, t.waits = 0, 0, false, [domain.WorkKinds]bool{}
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
			t.by = "" // a frozen tenant waits for no limit
		}
	}
}

// Forget gives up all slots: the others took this replica for lost and may have given them away.
func (l *Limits) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tenants {
		t.slots = 0
	}
}

// busy is how many runs of a tenant are in flight here, or about to be.
func (l *Limits) busy(t *limited) int { return l.slots.ofTenant(t.Tenant) + t.reserved }

// room is how many more runs of a tenant may start.
func (l *Limits) room(t *limited) int {
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

// lapsing reports whether starts may lapse between this check and a claim.
func (t *limited) lapsing() bool {
	kept := t.kept()
	return t.starts > 0 && time.Until(t.until) < min(100*time.Millisecond, kept/4)
}

func (t *limited) held() bool { return t.waits != [domain.WorkKinds]bool{} }

// Available is room by tenant id; a tenant without limits has no bound.
func (l *Limits) Available(tenant int32) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tenants[tenant]; t != nil {
		return l.room(t)
	}
	return math.MaxInt
}

// HeldBack returns the held-back tenants, sorted. A tenant that may start as much as a tick claims is not held back,
// whatever it has due: it does not wait for its limits.
func (l *Limits) HeldBack() (tenants []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, t := range l.tenants {
		if !t.held() {
			continue
		}
		if l.room(t) >= min(2*BatchSize, l.slots.total) {
			t.waits = [domain.WorkKinds]bool{}
			continue
		}
		tenants = append(tenants, id)
	}
	slices.Sort(tenants)
	return tenants
}

// holdBack records whether a tenant has due work of a kind that may not start yet. l.mu is held.
func (l *Limits) holdBack(t *limited, of domain.Work, waits bool) {
	if t.Concurrent == 0 && t.PerSecond == 0 && !t.Frozen {
		return
	}
	if !t.held() && waits {
		t.since, t.by = time.Now(), ""
	}
	t.waits[of] = waits
	if t.held() && !t.Frozen && t.Concurrent > 0 && t.slots >= t.Concurrent {
		t.waitsFor(l.busy(t), false) // no draw will tell: there is nothing left to draw
	}
}

// Freeze records that a claim found a tenant frozen. The tenant is held back until a look or a heartbeat says that it
// is not frozen any more.
func (l *Limits) Freeze(tenant int32, of domain.Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[tenant]
	if t == nil {
		t = &limited{TenantLimits: TenantLimits{Tenant: tenant}}
		l.tenants[tenant] = t
	}
	t.Frozen = true
	l.holdBack(t, of, true)
}

// Thaw takes the tenants that are frozen now, sorted. Others are so no more.
func (l *Limits) Thaw(frozen []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, t := range l.tenants {
		_, still := slices.BinarySearch(frozen, id)
		t.Frozen = t.Frozen && still
	}
}

// Saw takes the tenants that were found waiting for a kind of claim. Held-back tenants that are not among them wait
// for it no more.
func (l *Limits) Saw(of domain.Work, waiting []Contender) {
	listed := make(map[int32]bool, len(waiting))
	for _, c := range waiting {
		listed[c.Tenant] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, t := range l.tenants {
		switch {
		case listed[id] && (t.held() || l.room(t) == 0):
			l.holdBack(t, of, true)
		case !listed[id] && t.waits[of]:
			l.holdBack(t, of, false)
		}
	}
}

// GotAll records that a claim found less due work of a tenant than it might have started. It does not count when a
// claim left some work of it since: a slot that catches up makes many runs.
func (l *Limits) GotAll(tenant int32, of domain.Work, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tenants[tenant]; t != nil && !t.left.After(began) {
		l.holdBack(t, of, false)
	}
}

// Each calls visit with the name of each held-back tenant and the limit that it waits for.
func (l *Limits) Each(visit func(name string, by Limit)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(l.tenants)) {
		if t := l.tenants[id]; t.held() && t.by != "" {
			visit(t.Name, t.by)
		}
	}
}
