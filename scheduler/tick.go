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
	// longestSleep is how long the tick loop sleeps when it knows of nothing due: an idle replica costs the database one
	// query a second.
	longestSleep = time.Second
	// olderEvery is how often the loop looks for late slots.
	olderEvery = 2 * time.Second
	// lookEvery is how often the loop looks at what is due next while claims come back full.
	lookEvery = 100 * time.Millisecond
	// shortestPause and longestPause bound the pause after a claim that found only rows others had locked.
	shortestPause = 2 * time.Millisecond
	longestPause  = 100 * time.Millisecond
	// slowLook is how long a look takes when the network to the database, or this machine, is slow.
	slowLook = 100 * time.Millisecond
	// yielding is how long a slow replica leaves a due slot to the others. That is enough for them: they look at least
	// every longestPause for a slot that they know to be due.
	yielding = 250 * time.Millisecond
	// claimGrace is how long a claim may go on after its replica was told to stop.
	claimGrace = 2 * time.Second
	// tickTimeout bounds a look or a claim, which take milliseconds. A server that vanished without closing its
	// connections would otherwise block the loop until TCP gives up, after a quarter of an hour.
	tickTimeout = 8 * time.Second
)

// Answers to claims that came so late that other replicas may have the runs.
var (
	errLateClaim = errors.New(
		"a claim was answered after this replica had had no heartbeat for too long: its runs are given back unsent")
	errGivenBack = errors.New(
		"a claim was answered after this replica had given it back because its commit was in doubt: its runs are not sent")
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
	pause     time.Duration // grows while claims settle nothing
	wantsLook bool
	fair      [works]fairness
	order     []Work // order in which kinds of work are claimed: starved kinds first
	others    bool   // the last look left out queues without a free slot for some kind of work
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
		return spread(longestSleep), nil, nil // other replicas may have taken over: start nothing new
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
	// Others have locked what is due, or it waits for slots of its queue: asking again at full speed is no use.
	t.pause = min(max(2*t.pause, shortestPause), longestPause)
	return t.pause, t.s.slots.released, nil
}

// due returns the kinds of work that have something to claim by now, according to the last look.
func (t *ticker) due(now time.Time) [works]bool {
	u := t.upcoming
	return [works]bool{
		WorkDue:     reached(u.Schedule, now),
		WorkReady:   reached(u.Ready, now),
		WorkLate:    u.Older,
		WorkOrdered: reached(u.Ordered, now),
	}
}

// takeTurns orders the kinds of work for the next tick: first the kinds that wait without a worker slot, in rotation,
// then the others in their fixed order.
func (t *ticker) takeTurns() {
	starved := slices.DeleteFunc(slices.Clone(t.order), func(of Work) bool { return !t.s.slots.starved(of) })
	t.order = append(t.order[:0], starved...)
	for of := range works {
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

// claimed adds up the claims of one tick.
type claimed struct {
	offered bool // there was a slot for some kind of work that was due
	settled int
	full    bool
}

// claim claims one kind of work within its quotas, if it has any, and hands the runs to the executor.
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
	fair.recent = of == WorkLate && fair.crowded && !fair.recent
	var offered []Quota
	var full []int16
	for recent := fair.recent; ; recent = false {
		offered = t.s.slots.quotas(of, t.atATime(fair)*BatchSize, waiting)
		shares := fair.share(offered, waiting, t.s.slots)
		settled := sum.settled
		full, err = t.claimAll(ctx, of, shares, Claim{Recent: recent}, sum)
		if err != nil {
			return err
		}
		fair.learn(total(shares), sum.settled-settled)
		if !recent {
			looked := make([]int16, len(offered))
			for i, q := range offered {
				looked[i] = q.Queue
			}
			t.s.slots.found(of, looked, full)
			break
		}
		if len(full) > 0 {
			break // it is the recent slots' turn, and they say nothing about the rest
		}
	}
	sum.offered = true
	if of == WorkLate {
		t.upcoming.Older = sum.settled > before
	}
	// Nothing was claimed from queues without a free slot for this kind, and more may be due there.
	fair.crowded = len(full) > 0 || fair.crowded && len(free) < len(t.s.slots.numbers())
	return nil
}

// total is how many slots quotas have together.
func total(quotas []Quota) (slots int) {
	for _, q := range quotas {
		slots += q.Slots
	}
	return slots
}

// claimAll claims all the quotas in claims of at most BatchSize, side by side. full lists the queues whose quota was
// used up.
func (t *ticker) claimAll(
	ctx context.Context, of Work, quotas []Quota, what Claim, sum *claimed,
) (full []int16, err error) {
	claims := inBatches(quotas)
	batches, errs := make([]Batch, len(claims)), make([]error, len(claims))
	var claiming sync.WaitGroup
	for i := range claims {
		claiming.Go(func() {
			own := what
			own.Quotas = claims[i]
			batches[i], errs[i] = t.claimBatch(ctx, of, own)
		})
	}
	claiming.Wait()
	for _, b := range batches {
		sum.settled += b.Settled
		full = append(full, b.Full...)
	}
	sum.full = sum.full || len(full) > 0
	return full, errors.Join(errs...)
}

// atATime is how many full claims run at a time. With a backlog and one claim at a time, a replica's workers would
// wait for each claim in turn. With two, one waits for its commit while the other locks the next rows. Where there
// are several replicas each runs one, because a claim has to step over each row that another claim has locked.
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
		c.Behind = yielding // a claim takes several round trips, and locks its slots meanwhile
	}
	defer func() { c.Grant.end(batch.Runs) }()
	// A claim under way is not cut off when the replica is stopped: it may have been committed.
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

// heedFreeze heeds what a claim found frozen before a heartbeat has told of it.
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

// untilNext returns how long to sleep until the next thing is due, and has the loop look again after a full sleep.
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

// sleepEither sleeps until d has passed, ctx has ended, or one of two channels delivers. It calls woken when the
// second one does.
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
