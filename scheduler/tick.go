package scheduler

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"
)

const (
	// longestSleep is how long the tick loop sleeps when nothing is known to be due: an idle replica costs
	// a query a second.
	longestSleep = time.Second
	// olderEvery is how often backlog is looked for.
	olderEvery = 2 * time.Second
	// lookEvery is how often the loop looks at what is due next while claims come back full.
	lookEvery = 100 * time.Millisecond
	// shortest and longest pause after a claim that found only rows others had locked.
	shortestPause = 2 * time.Millisecond
	longestPause  = 100 * time.Millisecond
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
	lookAt    time.Time     // when to look at the latest
	drawAt    time.Time     // not to draw before, as the last draw failed
	olderAt   time.Time     // when to look for backlog again
	pause     time.Duration // grows while claims find nothing they can have
	wantsLook bool
	current   fairness // of each kind of claim
	backlog   fairness
	ready     fairness
	others    bool // the last look left out queues whose slots were all taken
	around    around
}

func newTicker(s *Scheduler) *ticker {
	t := &ticker{s: s}
	t.current.peek = func(ctx context.Context, queues []int16) ([]Contender, error) {
		return s.store.DueTenants(ctx, queues, false)
	}
	t.backlog.peek = func(ctx context.Context, queues []int16) ([]Contender, error) {
		return s.store.DueTenants(ctx, queues, true)
	}
	t.ready.peek = s.store.ReadyTenants
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
	due, waiting := reached(t.upcoming.Schedule, now), reached(t.upcoming.Ready, now)
	if !due && !waiting && !t.upcoming.Older {
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
	if len(t.s.slots.quotas(math.MaxInt, nil)) == 0 {
		return spread(longestSleep), t.s.slots.released, nil
	}
	var sum claimed
	if due {
		if err := t.claim(ctx, current, t.s.slots.quotas, &t.current, &sum); err != nil {
			return 0, nil, err
		}
	}
	if waiting {
		if err := t.claim(ctx, ready, t.s.slots.quotas, &t.ready, &sum); err != nil {
			return 0, nil, err
		}
	}
	if t.upcoming.Older {
		before := sum.settled
		if err := t.claim(ctx, backlog, t.s.slots.olderQuotas, &t.backlog, &sum); err != nil {
			return 0, nil, err
		}
		t.upcoming.Older = sum.settled > before || len(t.s.slots.olderQuotas(math.MaxInt, nil)) == 0
	}
	t.wantsLook = !sum.full
	if sum.full {
		t.olderAt = time.Time{} // what this replica cannot keep up with becomes backlog
	}
	if sum.settled > 0 || len(t.s.limits.heldBack()) > 0 {
		t.pause = 0
		return 0, nil, nil
	}
	// What is due is locked by others, or waits for slots of its queue: no use in asking at full speed.
	t.pause = min(max(2*t.pause, shortestPause), longestPause)
	return t.pause, t.s.slots.released, nil
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
	settled int
	full    bool
}

// claim claims within the quotas, if there are any, and hands the runs to the executor.
func (t *ticker) claim(ctx context.Context, k kind, quotas func(most int, waiting []Contender) []Quota, fair *fairness, sum *claimed) error {
	free := quotas(math.MaxInt, nil)
	if len(free) == 0 {
		return nil
	}
	waiting, err := fair.who(ctx, t.s.slots)
	if err != nil {
		return err
	}
	shares := share(quotas(t.atATime(fair)*BatchSize, waiting), waiting, t.s.slots.held)
	full, err := t.claimAll(ctx, k, shares, sum)
	// Of a queue whose slots are all taken nothing was claimed, and more may be due there.
	fair.crowded = full || fair.crowded && len(free) < len(t.s.slots.numbers())
	return err
}

// claimAll claims all the quotas, at most a batch at once each. full is true when one of them was used up.
func (t *ticker) claimAll(ctx context.Context, k kind, quotas []Quota, sum *claimed) (full bool, err error) {
	claims := inBatches(quotas)
	batches, errs := make([]Batch, len(claims)), make([]error, len(claims))
	var claiming sync.WaitGroup
	for i := range claims {
		claiming.Go(func() { batches[i], errs[i] = t.claimBatch(ctx, k, Claim{Quotas: claims[i]}) })
	}
	claiming.Wait()
	for _, b := range batches {
		sum.settled += b.Settled
		full = full || b.Full
	}
	sum.full = sum.full || full
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

func (t *ticker) claimBatch(ctx context.Context, k kind, c Claim) (batch Batch, err error) {
	from := t.s.store.ClaimDue
	if k == ready {
		from = t.s.store.ClaimReady
	}
	c.Replica, c.Older, c.Grant = t.s.replica.ID, k == backlog, t.s.limits.grant(k)
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
	t.heedFreeze(k, batch)
	if t.s.heart.watch.lapsed() != lapses || t.s.heart.watch.expired(time.Now()) {
		return Batch{}, errLateClaim
	}
	if !t.s.dispatch(batch) {
		return Batch{}, errGivenBack
	}
	return batch, nil
}

// heedFreeze takes what a claim found frozen, which the heartbeat has not told yet.
func (t *ticker) heedFreeze(k kind, b Batch) {
	if b.Halted {
		t.s.freezing.halt()
	}
	for _, tenant := range b.Frozen {
		t.s.limits.freeze(tenant, k)
	}
}

// look asks the database what is due next.
func (t *ticker) look(ctx context.Context) error {
	older := time.Now().After(t.olderAt)
	queues, others := t.s.slots.open()
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	upcoming, err := t.s.store.NextDue(ctx, queues, older)
	if err != nil {
		return err
	}
	t.s.clock.set(upcoming.Now)
	if older {
		t.olderAt = time.Now().Add(olderEvery)
	} else {
		upcoming.Older = t.upcoming.Older
	}
	t.upcoming, t.wantsLook, t.others = upcoming, false, others
	t.lookAt = time.Now().Add(lookEvery)
	return nil
}

// untilNext returns how long to sleep when nothing is due, and has the loop look again after a full sleep.
func (t *ticker) untilNext(now time.Time) time.Duration {
	wait := spread(longestSleep)
	t.wantsLook, t.pause = true, 0
	for _, next := range []time.Time{t.upcoming.Schedule, t.upcoming.Ready} {
		if next.IsZero() {
			continue
		}
		if d := next.Sub(now); d < wait {
			wait = max(d, 0)
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
