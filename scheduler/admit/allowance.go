package admit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"punctual/scheduler/domain"
)

const (
	// askEvery is how often a replica asks for slots that others have.
	askEvery = 250 * time.Millisecond
	// askSoonest is the shortest time between two requests for starts.
	askSoonest = 10 * time.Millisecond
	// tellEvery is how often a replica tells the database that, and why, it holds a tenant back.
	tellEvery = time.Second
	// paceOfHeld is how many runs of a held-back tenant a claim is assumed to take, although they may start one at a
	// time now.
	paceOfHeld = BatchSize / 2
	// MostWishes bounds a draw. It locks its rows for a millisecond, and for 20 when so many tenants need more.
	MostWishes = 500
)

// Wish is what a replica would like to have of a tenant's limits.
type Wish struct {
	Tenant int32
	Keep   int           // slots that it goes on using, whatever the answer is
	Slots  int           // slots that it would like to have, Keep included
	Starts int           // starts that it would like to have
	HeldBy Limit         // if set, the limit that the tenant's due work waits for
	Held   time.Duration // for how long it has waited
}

// Allowance answers a wish. A tenant whose rows somebody else has locked gets none.
type Allowance struct {
	TenantLimits               // the limits as they are now
	Slots        int           // how many runs the replica may have in flight
	Noted        int           // how many slots are put down for it: more than Slots while runs have to end first
	Starts       int           // how many runs it may start soon
	Wait         time.Duration // without any starts: how long until there are some
}

// All returns the tenants with limits, sorted.
func (l *Limits) All() []int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.tenants))
}

// Short returns requests for tenants that need more or hold too much; at most mostWishes, the rest next tick.
func (l *Limits) Short() (wishes []Wish) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, t := range l.tenants {
		if t.Frozen || t.pace == 0 && !t.held() && t.noted <= t.slots {
			continue // as most tenants are most of the time
		}
		busy := l.busy(t)
		slots, starts := l.lacks(t, busy)
		tell := t.held() && t.by != "" && now.Sub(t.told) > tellEvery
		if (slots > 0 || starts > 0) && !now.Before(t.drawAt) || tell || t.noted > max(t.slots, busy) {
			w := Wish{Slots: t.slots, Starts: starts}
			if slots > 0 {
				w.Slots = slots
			}
			wishes = append(wishes, t.wish(w, busy, now))
		}
		if len(wishes) == MostWishes {
			break
		}
	}
	// in the order in which rows are locked
	slices.SortFunc(wishes, func(a, b Wish) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return wishes
}

// lacks returns how many slots and starts to ask for, as a tenant's work will soon need more than it has; 0: none.
func (l *Limits) lacks(t *limited, busy int) (slots, starts int) {
	pace := t.pace
	if t.held() {
		pace = max(pace, paceOfHeld)
	}
	wanted := l.bounded(t, busy+4*pace)
	if t.Concurrent > 0 && t.slots < wanted && t.slots-busy < 2*pace {
		slots = wanted
	}
	if t.PerSecond > 0 && (t.startsLeft() < 2*pace || t.lapsing()) && (t.Concurrent == 0 || slots > 0 || t.slots > busy) {
		starts = max(4*pace, t.PerSecond/10)
	}
	return slots, starts
}

// DrawDue reports whether the next tick will ask for more for some tenant.
func (l *Limits) DrawDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, t := range l.tenants {
		if t.Frozen || t.pace == 0 && !t.held() || now.Before(t.drawAt) {
			continue
		}
		if slots, starts := l.lacks(t, l.busy(t)); slots > 0 || starts > 0 {
			return true
		}
	}
	return false
}

// Idle returns, at a heartbeat, the wishes of those of the tenants, which are sorted, that have anything.
func (l *Limits) Idle(draining bool, tenants []int32) (wishes []Wish) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, id := range tenants {
		t := l.tenants[id]
		if t == nil {
			continue
		}
		busy := l.busy(t)
		if t.peak == 0 {
			t.pace = 0
		}
		slots := min(t.slots, 2*t.peak)
		if draining {
			slots = busy
		}
		t.peak = busy
		if t.noted > 0 || t.Concurrent > 0 && busy > 0 || t.wants && !t.held() {
			wishes = append(wishes, t.wish(Wish{Slots: max(slots, min(busy, t.slots))}, busy, now))
		}
	}
	return wishes
}

// bounded keeps a wish within the limit and within what this replica can use.
func (l *Limits) bounded(t *limited, slots int) int {
	return min(slots, t.Concurrent, l.slots.total+2*BatchSize)
}

// wish completes a wish. This replica stops using what the wish gives up, and assumes that what it asks for is put
// down, whatever the answer says.
func (t *limited) wish(w Wish, busy int, now time.Time) Wish {
	w.Tenant = t.Tenant
	w.Slots = max(w.Slots, 0)
	t.slots = min(t.slots, w.Slots)
	w.Keep = max(busy, t.slots)
	t.noted = max(t.noted, w.Slots, w.Keep)
	if t.held() && t.by != "" {
		w.HeldBy, w.Held = t.by, now.Sub(t.since)
		t.told = now
	}
	return w
}

// Take takes the answers to wishes.
func (l *Limits) Take(wishes []Wish, allowances []Allowance) {
	answers := make(map[int32]Allowance, len(allowances))
	for _, a := range allowances {
		answers[a.Tenant] = a
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range wishes {
		t := l.tenants[w.Tenant]
		a, answered := answers[w.Tenant]
		switch {
		case t == nil:
			continue
		case !answered: // somebody else has locked its rows
			t.drawAt = time.Now().Add(domain.About(askEvery))
			continue
		}
		a.Name, a.Frozen = t.Name, t.Frozen
		t.TenantLimits, t.slots, t.noted, t.wants = a.TenantLimits, a.Slots, a.Noted, w.Slots > a.Slots
		t.draw(w, a)
		if t.held() && !t.Frozen {
			t.waitsFor(l.busy(t), w.Starts > a.Starts)
		}
	}
}

// draw takes the granted starts, and records when to ask again for what was not granted.
func (t *limited) draw(w Wish, a Allowance) {
	now := time.Now()
	if t.startsLeft() == 0 || a.Starts > 0 && t.lapsing() {
		t.starts, t.until = 0, now.Add(t.kept())
	}
	t.starts += a.Starts // the lapse time stays: older starts do not get any younger
	if w.Starts > a.Starts {
		t.drawAt = now.Add(max(askSoonest, a.Wait))
	}
	if w.Slots > a.Slots {
		t.drawAt = now.Add(domain.About(askEvery))
	}
}

// waitsFor records which limit a held-back tenant waits for. A draw may have granted fewer starts than it asked for.
func (t *limited) waitsFor(busy int, fewer bool) {
	switch {
	case t.Concurrent > 0 && t.slots <= busy:
		t.by = LimitConcurrent
	case t.PerSecond > 0 && (t.starts == 0 || fewer):
		t.by = LimitPerSecond
	}
}

// DrawIn returns how long until it makes sense to ask for what held-back tenants lack; at most longest.
func (l *Limits) DrawIn(longest time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tenants {
		if t.held() && !t.Frozen && (t.slots < t.Concurrent || t.PerSecond > 0 && t.starts == 0) {
			longest = min(longest, max(time.Until(t.drawAt), askSoonest))
		}
	}
	return longest
}
