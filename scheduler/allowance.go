package scheduler

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// askEvery is how often a replica asks for slots that others have.
	askEvery = 250 * time.Millisecond
	// askSoonest is how often at most it asks for starts.
	askSoonest = 10 * time.Millisecond
	// tellEvery is how often it tells that, and why, it holds a tenant back.
	tellEvery = time.Second
	// paceOfHeld is how many runs of a held-back tenant a claim would take, which now may start one at a time.
	paceOfHeld = BatchSize / 2
	// mostWishes bounds a draw: its rows are locked for a millisecond, and for 20 where so many tenants are short of something.
	mostWishes = 500
	// drawTimeout bounds a draw and the wait for those of other replicas.
	drawTimeout = 3 * time.Second
)

// Wish is what a replica would like of a tenant's limits.
type Wish struct {
	Tenant int32
	Keep   int           // slots that it goes on to use, whatever the answer is
	Slots  int           // slots that it would like to have, with those
	Starts int           // starts that it would like to have
	HeldBy Limit         // if set, this is what the tenant's due work waits for
	Held   time.Duration // for how long it has
}

// Allowance answers a wish. There is none while somebody else has locked what the tenant has.
type Allowance struct {
	TenantLimits               // as they are now
	Slots        int           // how many runs it may have in flight
	Noted        int           // how many are put down for it: more than that while runs have to end first
	Starts       int           // how many it may start soon
	Wait         time.Duration // when there are no such starts: how long until there are some
}

// draw asks for what is short, and for nothing as long as there is enough.
func (s *Scheduler) draw(ctx context.Context) error {
	s.limits.drawing.Lock()
	defer s.limits.drawing.Unlock()
	return s.ask(ctx, s.limits.short())
}

// settle gives back what was not used since the last heartbeat, and hears what others want. A draw under way is
// not waited for: it does that as well, but for the idle slots.
func (s *Scheduler) settle(ctx context.Context, draining bool) error {
	for some := range slices.Chunk(s.limits.all(), mostWishes) {
		if err := s.settleSome(ctx, draining, some); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scheduler) settleSome(ctx context.Context, draining bool, tenants []int32) error {
	if !s.limits.drawing.TryLock() {
		return nil
	}
	defer s.limits.drawing.Unlock()
	return s.ask(ctx, s.limits.idle(draining, tenants))
}

// all returns the tenants with limits, sorted.
func (l *limits) all() []int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.tenants))
}

func (s *Scheduler) ask(ctx context.Context, wishes []Wish) error {
	if len(wishes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drawTimeout)
	defer cancel()
	allowances, err := s.store.Draw(ctx, s.replica.ID, wishes)
	if err != nil {
		return err
	}
	s.limits.take(wishes, allowances)
	return nil
}

// short returns requests for tenants that need more or hold too much; at most mostWishes, the rest next tick.
func (l *limits) short() (wishes []Wish) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, t := range l.tenants {
		if t.Frozen || t.pace == 0 && !t.held() && t.noted <= t.slots {
			continue // as most are most of the time
		}
		busy, pace := l.busy(t), t.pace
		if t.held() {
			pace = max(pace, paceOfHeld)
		}
		wanted := l.bounded(t, busy+4*pace)
		slots := t.Concurrent > 0 && t.slots < wanted && t.slots-busy < 2*pace
		starts := t.PerSecond > 0 && (t.startsLeft() < 2*pace || t.lapsing()) && (t.Concurrent == 0 || slots || t.slots > busy)
		tell := t.held() && t.by != "" && now.Sub(t.told) > tellEvery
		if (slots || starts) && !now.Before(t.drawAt) || tell || t.noted > max(t.slots, busy) {
			w := Wish{Slots: t.slots}
			if slots {
				w.Slots = wanted
			}
			if starts {
				w.Starts = max(4*pace, t.PerSecond/10)
			}
			wishes = append(wishes, t.wish(w, busy, now))
		}
		if len(wishes) == mostWishes {
			break
		}
	}
	return inTenantOrder(wishes)
}

// idle returns the wishes of those of the tenants that have anything, at a heartbeat.
func (l *limits) idle(draining bool, tenants []int32) (wishes []Wish) {
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
	return inTenantOrder(wishes)
}

// bounded keeps a wish within the limit and within what this replica can use.
func (l *limits) bounded(t *limited, slots int) int {
	return min(slots, t.Concurrent, l.slots.all()+2*BatchSize)
}

// wish completes a wish. What it gives up is not used from now on, and what it asks for may be put down, whatever becomes
// of the answer.
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

// take takes the answers to wishes, which are sorted.
func (l *limits) take(wishes []Wish, allowances []Allowance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answered := make(map[int32]bool, len(allowances))
	for _, a := range allowances {
		answered[a.Tenant] = true
		t := l.tenants[a.Tenant]
		i, asked := slices.BinarySearchFunc(wishes, a.Tenant, func(w Wish, tenant int32) int { return cmp.Compare(w.Tenant, tenant) })
		if t == nil || !asked {
			continue
		}
		a.Name, a.Frozen = t.Name, t.Frozen
		t.TenantLimits, t.slots, t.noted, t.wants = a.TenantLimits, a.Slots, a.Noted, wishes[i].Slots > a.Slots
		t.draw(wishes[i], a)
		if t.held() && !t.Frozen {
			t.waitsFor(l.busy(t))
		}
	}
	for _, w := range wishes { // of whose tenants somebody else has locked what they have
		if t := l.tenants[w.Tenant]; t != nil && !answered[w.Tenant] {
			t.drawAt = time.Now().Add(spread(askEvery))
		}
	}
}

// draw takes the starts, and notes when to ask again for what was not to be had.
func (t *limited) draw(w Wish, a Allowance) {
	now := time.Now()
	if t.startsLeft() == 0 || a.Starts > 0 && t.lapsing() {
		t.starts, t.until = 0, now.Add(t.kept())
	}
	t.starts += a.Starts // those that it has had for longer do not get any younger
	if w.Starts > a.Starts {
		t.drawAt = now.Add(max(askSoonest, a.Wait))
	}
	if w.Slots > a.Slots {
		t.drawAt = now.Add(spread(askEvery))
	}
}

// waitsFor notes what a held-back tenant waits for.
func (t *limited) waitsFor(busy int) {
	switch {
	case t.Concurrent > 0 && t.slots <= busy:
		t.by = LimitConcurrent
	case t.PerSecond > 0 && t.starts == 0:
		t.by = LimitPerSecond
	}
}

// drawIn returns how long until it is of use to ask for what held-back tenants lack; at most longest.
func (l *limits) drawIn(longest time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tenants {
		if t.held() && !t.Frozen && (t.slots < t.Concurrent || t.PerSecond > 0 && t.starts == 0) {
			longest = min(longest, max(time.Until(t.drawAt), askSoonest))
		}
	}
	return longest
}

// inTenantOrder is the order in which rows are locked.
func inTenantOrder(wishes []Wish) []Wish {
	slices.SortFunc(wishes, func(a, b Wish) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return wishes
}
