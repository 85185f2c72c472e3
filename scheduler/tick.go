package scheduler

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// longestSleep is how long the tick loop sleeps when nothing is known to be due: an idle replica costs
	// a query a second.
	longestSleep = time.Second
	// olderEvery is how often late slots are looked for.
	olderEvery = 2 * time.Second
	// lookEvery is how often the loop looks at what is due next while claims come back full.
	lookEvery = 100 * time.Millisecond
	// shortest and longest pause after a claim that found only rows others had locked.
	shortestPause = 2 * time.Millisecond
	longestPause  = 100 * time.Millisecond
	// slowLook is how long a look takes that says that the network to the database, or this machine, is slow.
	slowLook = 100 * time.Millisecond
	// yielding is for how long a slow replica leaves a slot to others. They look at least every longestPause for a slot
	// that they know to be due.
	yielding = 250 * time.Millisecond
	// claimGrace is how long a claim may go on when its replica is stopped.
	claimGrace = 2 * time.Second
	// tickTimeout bounds a look or a claim, which take milliseconds. A server that vanished without closing
	// its connections would otherwise hold the loop for as long as TCP has hope: a quarter of an hour.
	tickTimeout = 8 * time.Second
)

// Claims whose answer took so long that others may have their runs.
var (
	errLateClaim = errors.New("a claim was answered after this replica had been without a heartbeat for too long: its runs are not sent, and given back")
	errGivenBack = errors.New("a claim was answered after this replica had given it back, as its commit was in doubt: its runs are not sent")
)

// ticker is the tick loop: it claims what is due and hands it to the executor. Ticks are serial; after a
// full batch the next one follows at once, otherwise the loop sleeps until the next thing is due.
type ticker struct {
	s         *Scheduler
	upcoming  Upcoming
	took      time.Duration // the last look
	lookAt    time.Time     // when to look at the latest
	drawAt    time.Time     // not to draw before, as the last draw failed
	olderAt   time.Time     // when to look for late slots again
	pause     time.Duration // grows while claims find nothing they can have
	wantsLook bool
	fair      [works]fairness
	order     []Work // in which kinds of work are claimed: first those that wait without a slot
	others    bool   // the last look left out queues that have no slot for some kind of work
	around    around
}

func newTicker(s *Scheduler) *ticker {
	t := &ticker{s: s}
	for of := range works {
		t.fair[of].peek = func(ctx context.Context, queues []int16) ([]Contender, error) {
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
		t.s.metrics.ticked(time.Since(started))
		if err != nil && ctx.Err() == nil {
			t.s.log.Warn("a tick failed; the next one tries again", "error", err)
			t.wantsLook = true
			wait, wake = spread(longestSleep), nil
		}
		if wait > 0 {
			sleepEither(ctx, wait, wake, t.s.store.Wake(), func() { t.wantsLook = true })
		}
	}
}

// tick looks and claims once. It returns how long to sleep, and what ends the sleep early.
func (t *ticker) tick(ctx context.Context) (wait time.Duration, wake <-chan struct{}, err error) {
	if t.s.freezing.on() {
		t.wantsLook = true
		return spread(longestSleep), nil, nil
	}
	t.draw(ctx)
	if held := t.s.limits.heldBack(); len(held) > 0 {
		return t.tickAround(ctx, held)
	}
	t.leaveAround()
	if t.wantsLook || time.Now().After(t.lookAt) {
		if err := t.look(ctx); err != nil {
			return 0, nil, err
		}
	}
	if t.s.heart.watch.expired(time.Now()) {
		return spread(longestSleep), nil, nil // others may have taken over: start nothing new
	}
	if err := t.fetchHeld(ctx); err != nil {
		return 0, nil, err
	}
	now := t.s.clock.now()
	due := t.due(now)
	if due == [works]bool{} {
		wait := t.untilFetch(t.untilNext(now))
		if t.others {
			t.wantsLook = true
			return wait, t.s.slots.released, nil
		}
		if t.s.holds.any() {
			return wait, t.s.slots.released, nil
		}
		return wait, nil, nil
	}
	var sum claimed
	for _, of := range t.order {
		if due[of] {
			if err := t.claim(ctx, of, &sum); err != nil {
				return 0, nil, err
			}
		}
	}
	t.takeTurns()
	if !sum.offered {
		return t.untilFetch(t.untilNext(now)), t.s.slots.released, nil
	}
	t.wantsLook = !sum.full
	if sum.full {
		t.olderAt = time.Time{} // what this replica cannot keep up with becomes late
	}
	if sum.settled > 0 || len(t.s.limits.heldBack()) > 0 {
		t.pause = 0
		return 0, nil, nil
	}
	// What is due is locked by others, or waits for slots of its queue: no use in asking at full speed.
	t.pause = min(max(2*t.pause, shortestPause), longestPause)
	return t.pause, t.s.slots.released, nil
}

// due returns the kinds of work of which there is something to claim by now, as far as the last look told.
func (t *ticker) due(now time.Time) [works]bool {
	u := t.upcoming
	return [works]bool{
		WorkDue: reached(u.Schedule, now), WorkReady: reached(u.Ready, now), WorkLate: u.Older, WorkOrdered: reached(u.Ordered, now),
	}
}

// takeTurns has the kinds of work that wait without a slot claimed first the next time, one after the other; then those
// in their order that do not.
func (t *ticker) takeTurns() {
	starved := slices.DeleteFunc(slices.Clone(t.order), func(of Work) bool { return !t.s.slots.starved(of) })
	t.order = append(t.order[:0], starved...)
	for of := range works {
		if !slices.Contains(starved, of) {
			t.order = append(t.order, of)
		}
	}
}

// draw draws on the limits of tenants that are short of something. Should it fail they are held back, and nobody else is.
func (t *ticker) draw(ctx context.Context) {
	if time.Now().Before(t.drawAt) {
		return
	}
	if err := t.s.draw(ctx); err != nil && ctx.Err() == nil {
		t.s.log.Warn("drawing on tenants' limits failed; retrying in 1 s", "error", err)
		t.drawAt = time.Now().Add(longestSleep)
	}
}

// claimed adds up the claims of one tick.
type claimed struct {
	offered bool // there was a slot for some kind of work that was due
	settled int
	full    bool
}

// claim claims one kind of work within its quotas, if there are any, and hands the runs to the executor.
func (t *ticker) claim(ctx context.Context, of Work, sum *claimed) error {
	free := t.s.slots.quotas(of, math.MaxInt, nil)
	if len(free) == 0 {
		t.s.slots.found(of, nil, nil)
		return nil
	}
	fair, before := &t.fair[of], sum.settled
	waiting, err := fair.who(ctx, t.s.slots)
	if err != nil {
		return err
	}
	offered := t.s.slots.quotas(of, t.atATime(fair)*BatchSize, waiting)
	looked := make([]int16, len(offered))
	for i, q := range offered {
		looked[i] = q.Queue
	}
	full, err := t.claimAll(ctx, of, share(offered, waiting, t.s.slots.held), sum)
	if err != nil {
		return err
	}
	t.s.slots.found(of, looked, full)
	sum.offered = true
	if of == WorkLate {
		t.upcoming.Older = sum.settled > before
	}
	// Of a queue without a slot for it nothing was claimed, and more may be due there.
	fair.crowded = len(full) > 0 || fair.crowded && len(free) < len(t.s.slots.numbers())
	return nil
}

// claimAll claims all the quotas, at most a batch at once each. full names the queues of which one was used up.
func (t *ticker) claimAll(ctx context.Context, of Work, quotas []Quota, sum *claimed) (full []int16, err error) {
	claims := inBatches(quotas)
	batches, errs := make([]Batch, len(claims)), make([]error, len(claims))
	var claiming sync.WaitGroup
	for i := range claims {
		claiming.Go(func() { batches[i], errs[i] = t.claimBatch(ctx, of, Claim{Quotas: claims[i]}) })
	}
	claiming.Wait()
	for _, b := range batches {
		sum.settled += b.Settled
		full = append(full, b.Full...)
	}
	sum.full = sum.full || len(full) > 0
	return full, errors.Join(errs...)
}

// atATime is how many full claims go on at a time. Where there is a backlog a replica's workers would wait for one claim
// after the other: while one waits for its commit another locks what comes next. Of several replicas each has one, as
// a claim looks at each row that another has locked.
func (t *ticker) atATime(fair *fairness) int {
	if fair.crowded && t.s.heart.watch.alone() {
		return 2
	}
	return 1
}

func (t *ticker) claimBatch(ctx context.Context, of Work, c Claim) (batch Batch, err error) {
	from := t.s.store.ClaimDue
	if of == WorkReady || of == WorkOrdered {
		from = t.s.store.ClaimReady
	}
	c.Replica, c.Work, c.Grant = t.s.replica.ID, of, t.s.limits.grant(of)
	if of == WorkDue && t.took > slowLook && !t.s.heart.watch.alone() {
		c.Behind = yielding // a claim takes several round trips, and keeps its slots from others meanwhile
	}
	defer func() { c.Grant.end(batch.Runs) }()
	// One that is under way when the replica is stopped is not cut off: it may have been committed.
	ctx, cancel := outlast(ctx, claimGrace)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, tickTimeout)
	defer stop()
	lapses := t.s.heart.watch.lapsed()
	batch, err = from(ctx, c)
	if err != nil {
		return Batch{}, err
	}
	t.heedFreeze(of, batch)
	if t.s.heart.watch.lapsed() != lapses || t.s.heart.watch.expired(time.Now()) {
		return Batch{}, errLateClaim
	}
	if !t.s.dispatch(batch) {
		return Batch{}, errGivenBack
	}
	return batch, nil
}

// heedFreeze takes what a claim found frozen, which the heartbeat has not told yet.
func (t *ticker) heedFreeze(of Work, b Batch) {
	if b.Halted {
		t.s.freezing.halt()
	}
	for _, tenant := range b.Frozen {
		t.s.limits.freeze(tenant, of)
	}
}

// look asks the database what is due next.
func (t *ticker) look(ctx context.Context) error {
	var queues LookInto
	others := false
	for of := range works {
		open, left := t.s.slots.open(of)
		queues[of], others = open, others || left
	}
	older := time.Now().After(t.olderAt)
	if !older {
		queues[WorkLate] = nil
	}
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	asked := time.Now()
	upcoming, err := t.s.store.NextDue(ctx, queues)
	if err != nil {
		return err
	}
	t.took = time.Since(asked)
	t.s.clock.set(upcoming.Now)
	if older {
		t.olderAt = time.Now().Add(olderEvery)
	} else {
		upcoming.Older = t.upcoming.Older
	}
	t.upcoming, t.wantsLook, t.others = upcoming, false, others
	for of, due := range t.due(upcoming.Now) {
		if !due {
			t.s.slots.foundNone(Work(of), queues[of])
		}
	}
	t.lookAt = time.Now().Add(lookEvery)
	return nil
}

// untilNext returns how long to sleep until something else is due than now, and has the loop look again after a full
// sleep.
func (t *ticker) untilNext(now time.Time) time.Duration {
	wait := spread(longestSleep)
	t.wantsLook, t.pause = true, 0
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

// sleepEither sleeps until d has passed, ctx has ended, or one of two channels delivers; woken is called
// when the second one does.
func sleepEither(ctx context.Context, d time.Duration, first, second <-chan struct{}, woken func()) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-first:
	case <-second:
		woken()
	case <-ctx.Done():
	}
}
