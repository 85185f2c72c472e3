package scheduler

import (
	"context"
	"slices"
	"time"

	"punctual/scheduler/admit"

	"punctual/scheduler/domain"
)

const (
	// longestSleep is how long the tick loop sleeps when it knows of nothing due: an idle replica costs the database one
	// query a second. So it sees within a second what callers write in transactions of their own.
	longestSleep = time.Second
	// olderShare is how many times as long as it took the loop leaves late slots out after it has looked for them, and
	// olderEvery the longest that it does. Such a look takes a millisecond. Beside a snapshot that is held for hours it
	// takes a hundred, because it passes over the dead index entries of slots that have run.
	olderShare = 20
	olderEvery = 2 * time.Second
	// lookEvery is how often the loop looks at what is due next while claims come back full.
	lookEvery = 100 * time.Millisecond
	// shortestPause and longestPause bound the pause after a claim that found only rows others had locked.
	shortestPause = 2 * time.Millisecond
	longestPause  = 100 * time.Millisecond
	// slowLook is how long a look takes when the network to the database, or this machine, is slow.
	slowLook = 100 * time.Millisecond
	// tickTimeout bounds a look or a claim, which take milliseconds. A server that vanished without closing its
	// connections would otherwise block the loop until TCP gives up, after a quarter of an hour.
	tickTimeout = 8 * time.Second
)

// ticker is the tick loop: it claims due work and hands it to the executor. Ticks are serial. After a full batch the
// next tick follows at once; otherwise the loop sleeps until the next thing is due.
type ticker struct {
	s         *Scheduler
	upcoming  Upcoming
	took      time.Duration // how long the last look took
	lookAt    time.Time     // when to look again at the latest
	drawAt    time.Time     // no draw before this time, because the last one failed
	olderAt   time.Time     // when to look for late slots again
	leftOlder bool          // the last look left out late slots
	pause     time.Duration // grows while claims settle nothing
	wantsLook bool
	fair      [domain.WorkKinds]fairness
	order     []domain.Work // order in which kinds of work are claimed: starved kinds first
	others    bool          // the last look left out queues without a free slot for some kind of work
	held      []int32       // tenants that are held back, sorted; see heedLimits
	written   bool          // since the last look, something was written that may be due

	// While tenants are held back: the kinds of work of which something became due after the last look at who waits.
	fresh [domain.WorkKinds]bool
}

func newTicker(s *Scheduler) *ticker {
	t := &ticker{s: s}
	for of := range domain.WorkKinds {
		t.fair[of].peek = func(ctx context.Context, queues []int16) ([]admit.Contender, error) {
			return s.store.Contenders(ctx, of, queues)
		}
		t.order = append(t.order, of)
	}
	return t
}

// run ticks until ctx ends.
func (t *ticker) run(ctx context.Context) {
	t.wantsLook = true
	for ctx.Err() == nil {
		started := time.Now()
		wait, wake, err := t.tick(ctx)
		t.s.metrics.tick.Observe(time.Since(started).Seconds())
		if ctx.Err() == nil {
			t.s.config.Vitals.Note(PathClaims, err, time.Now())
		}
		if err != nil && ctx.Err() == nil {
			t.s.log.Warn("a tick failed; the next one tries again", "error", err)
			t.wantsLook = true
			wait, wake = domain.About(longestSleep), nil
		}
		if wait > 0 {
			t.sleep(ctx, wait, wake)
		}
	}
}

// sleep sleeps until wait has passed, until wake delivers, or until something was written that may be due.
func (t *ticker) sleep(ctx context.Context, wait time.Duration, wake <-chan struct{}) {
	select {
	case <-time.After(wait):
	case <-wake:
	case <-t.s.store.Wake():
		t.wantsLook, t.written = true, true
	case <-ctx.Done():
	}
}

// tick looks and claims once. It returns how long to sleep, and what ends the sleep early.
func (t *ticker) tick(ctx context.Context) (wait time.Duration, wake <-chan struct{}, err error) {
	if !t.upcoming.Halted {
		t.draw(ctx)
	}
	t.heedLimits()
	if t.wantsLook || len(t.held) > 0 || time.Now().After(t.lookAt) {
		if err := t.look(ctx); err != nil {
			return 0, nil, err
		}
	}
	if t.upcoming.Halted { // so an unfreeze is seen within a second, or when this replica has written it
		t.wantsLook = true
		return min(domain.About(longestSleep), longestSleep), nil, nil
	}
	if t.s.heart.watch.expired(time.Now()) {
		return domain.About(longestSleep), nil, nil // other replicas may have taken over: start nothing new
	}
	if err := t.fetchHeld(ctx); err != nil {
		return 0, nil, err
	}
	// One instant for all: what became due between two readings of the clock would be neither due nor still to come.
	now := t.s.clock.now()
	due := t.due(now)
	if due == [domain.WorkKinds]bool{} {
		wait, wake = t.idle(now)
		return wait, wake, nil
	}
	var sum claimed
	for _, of := range t.order {
		if due[of] {
			if err := t.claim(ctx, of, &sum); err != nil {
				return 0, nil, err
			}
		}
	}
	t.takeTurns(sum)
	wait, wake = t.rest(sum, now)
	return wait, wake, nil
}

// idle returns how long to sleep when nothing is due.
func (t *ticker) idle(now time.Time) (wait time.Duration, wake <-chan struct{}) {
	wait = t.untilFetch(t.untilNext(now))
	if t.others {
		t.wantsLook = true
		return wait, t.s.admission.Slots.Released
	}
	if t.s.admission.Holds.Any() {
		return wait, t.s.admission.Slots.Released
	}
	return wait, nil
}

// rest returns how long to sleep after the claims of a tick, which took as due what was due now.
func (t *ticker) rest(sum claimed, now time.Time) (wait time.Duration, wake <-chan struct{}) {
	switch {
	case len(t.held) > 0:
		return t.restAround(sum, now)
	case !sum.offered:
		return t.untilFetch(t.untilNext(now)), t.s.admission.Slots.Released
	}
	t.wantsLook = !sum.full
	if sum.full {
		t.olderAt = time.Time{} // what this replica cannot keep up with becomes late
	}
	if sum.settled > 0 || len(t.s.admission.Limits.HeldBack()) > 0 {
		t.pause = 0
		return 0, nil
	}
	// Others have locked what is due, or it waits for slots of its queue: asking again at full speed is no use.
	t.pause = min(max(2*t.pause, shortestPause), longestPause)
	return t.pause, t.s.admission.Slots.Released
}

// due returns the kinds of work that have something to claim by now, according to the last look. While tenants are
// held back, that may be any: the look ignores what is due already.
func (t *ticker) due(now time.Time) [domain.WorkKinds]bool {
	if len(t.held) > 0 {
		return [domain.WorkKinds]bool{true, true, true, true}
	}
	return t.foreseen(now)
}

// foreseen returns the kinds of work of which the last look saw something that is due by now.
func (t *ticker) foreseen(now time.Time) [domain.WorkKinds]bool {
	u := t.upcoming
	return [domain.WorkKinds]bool{
		domain.WorkDue:     reached(u.Schedule, now),
		domain.WorkReady:   reached(u.Ready, now),
		domain.WorkLate:    u.Older,
		domain.WorkOrdered: reached(u.Ordered, now),
	}
}

// takeTurns orders the kinds of work for the next tick: first the kinds that wait without a worker slot, in rotation,
// then the others in their fixed order. While tenants are held back, the kind comes first that follows the one which
// brought runs first. So no kind starves another within a tenant.
func (t *ticker) takeTurns(sum claimed) {
	if len(t.held) > 0 {
		for i := range domain.WorkKinds {
			t.order[i] = (sum.next + i) % domain.WorkKinds
		}
		return
	}
	slots := t.s.admission.Slots
	starved := slices.DeleteFunc(slices.Clone(t.order), func(of domain.Work) bool { return !slots.Starved(of) })
	t.order = append(t.order[:0], starved...)
	for of := range domain.WorkKinds {
		if !slices.Contains(starved, of) {
			t.order = append(t.order, of)
		}
	}
}

// draw draws on the limits of tenants that need more. If it fails, only these tenants are held back.
func (t *ticker) draw(ctx context.Context) {
	if time.Now().Before(t.drawAt) {
		return
	}
	if err := t.s.draw(ctx); err != nil && ctx.Err() == nil {
		t.s.log.Warn("drawing on tenants' limits failed; retrying in 1 s", "error", err)
		t.drawAt = time.Now().Add(longestSleep)
	}
}

// look asks the database what is due next. While tenants are held back, it asks what becomes due next: what is due
// already may be theirs.
func (t *ticker) look(ctx context.Context) error {
	into, ahead := LookInto{}, len(t.held) > 0
	others := false
	for of := range domain.WorkKinds {
		open, left := t.s.admission.Slots.Open(of)
		into[of], others = open, others || left
		if ahead {
			into[of], others = t.s.admission.Slots.Numbers(), false
		}
	}
	older := !ahead && time.Now().After(t.olderAt)
	if !older {
		into[domain.WorkLate] = nil
	}
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	asked := time.Now()
	upcoming, err := t.s.store.NextDue(ctx, into, ahead)
	if err != nil {
		return err
	}
	t.took = time.Since(asked)
	t.s.clock.set(asked, upcoming.Now)
	t.s.admission.Limits.Thaw(upcoming.Frozen)
	if !upcoming.Halted {
		t.s.metrics.looked.Store(time.Now().UnixNano())
	}
	if older {
		t.olderAt = time.Now().Add(min(olderEvery, max(lookEvery, olderShare*t.took)))
	} else {
		upcoming.Older = t.upcoming.Older
	}
	if ahead {
		t.freshen(upcoming.Now)
	}
	t.written = false
	t.upcoming, t.wantsLook, t.others, t.leftOlder = upcoming, false, others, !older && !ahead
	for of, due := range t.due(upcoming.Now) {
		if !due {
			t.s.admission.Slots.FoundNone(domain.Work(of), into[of])
		}
	}
	t.lookAt = time.Now().Add(lookEvery)
	return nil
}

// untilNext returns how long to sleep until the next thing that is not due now is due, or until the loop is to look for
// late slots, if the last look left them out. It has the loop look again after a full sleep.
func (t *ticker) untilNext(now time.Time) time.Duration {
	wait := min(domain.About(longestSleep), longestSleep)
	t.wantsLook, t.pause = true, 0
	if t.leftOlder {
		wait = min(wait, max(time.Until(t.olderAt), shortestPause))
	}
	for _, next := range []time.Time{t.upcoming.Schedule, t.upcoming.Ready, t.upcoming.Ordered} {
		if !next.After(now) {
			continue
		}
		if d := next.Sub(now); d < wait {
			wait = d
			t.wantsLook = false
			t.lookAt = time.Now().Add(wait + lookEvery)
		}
	}
	return wait
}

func reached(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }
