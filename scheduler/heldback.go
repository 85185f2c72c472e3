package scheduler

import (
	"context"
	"slices"
	"time"
)

const (
	// lookAround is the longest sleep of the tick loop while a tenant is held back.
	lookAround = 250 * time.Millisecond
	// aroundSoonest is the shortest time between two looks at the waiting tenants, and olderAroundSoonest between two
	// looks at the tenants with late slots.
	aroundSoonest      = 20 * time.Millisecond
	olderAroundSoonest = 250 * time.Millisecond
	// overlap is how far before the last look a claim of newly due work reaches back, because the two statements may
	// have taken unlike times to arrive. The next look finds what slips through.
	overlap = 50 * time.Millisecond
)

// around is what the tick loop knows while tenants are held back. Their backlog may be huge, and a claim in due order
// would scan all of it every tick. So the loop claims tenant by tenant, for the tenants that a look found waiting.
// For all other tenants it claims only what became due since that look.
type around struct {
	// turn is the kind of work to claim first: the one after the kind that came first last time. So no kind starves
	// another within a tenant. 0: not in use.
	turn  int
	looks [works]waiters
}

// waiters are the tenants that wait for one kind of claim.
type waiters struct {
	contenders []Contender
	looked     time.Time
	until      time.Time // when to look again
}

// leaveAround forgets what tickAround knew, once no tenant is held back any more.
func (t *ticker) leaveAround() {
	if t.around.turn == 0 {
		return
	}
	t.around = around{}
	t.wantsLook, t.olderAt = true, time.Time{}
}

// tickAround is tick while tenants are held back.
func (t *ticker) tickAround(ctx context.Context, held []int32) (wait time.Duration, wake <-chan struct{}, err error) {
	if t.s.heart.watch.expired(time.Now()) {
		return spread(longestSleep), nil, nil // other replicas may have taken over: start nothing new
	}
	if err := t.fetchHeld(ctx); err != nil {
		return 0, nil, err
	}
	if err := t.lookFresh(ctx); err != nil {
		return 0, nil, err
	}
	first := t.around.turn
	t.around.turn = max(first, 1)
	var sum claimed
	for i := range works {
		of := (Work(first) + i) % works
		before := sum.settled
		if err := t.claimAround(ctx, of, held, &sum); err != nil {
			return 0, nil, err
		}
		if before == 0 && sum.settled > 0 {
			t.around.turn = int(of) + 1
		}
	}
	if sum.settled > 0 && (sum.full || t.moreAround()) {
		return 0, nil, nil
	}
	wait = min(t.untilFetch(t.untilNext(t.s.clock.now())), t.s.limits.drawIn(spread(lookAround)))
	return max(wait, shortestPause), t.s.slots.released, nil
}

// moreAround reports whether a tenant waits that may start something.
func (t *ticker) moreAround() bool {
	return slices.ContainsFunc(t.around.looks[:], func(w waiters) bool { return len(t.able(&w)) > 0 })
}

// lookFresh asks the database what becomes due next.
func (t *ticker) lookFresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	asked := time.Now()
	upcoming, err := t.s.store.NextFresh(ctx, t.s.slots.numbers())
	if err != nil {
		return err
	}
	t.took = time.Since(asked)
	t.s.clock.set(upcoming.Now)
	t.upcoming = upcoming
	return nil
}

// claimAround claims one kind of work.
func (t *ticker) claimAround(ctx context.Context, of Work, held []int32, sum *claimed) error {
	w := &t.around.looks[of]
	fresh := time.Now().After(w.until)
	if fresh {
		if err := t.lookWho(ctx, of, w); err != nil {
			return err
		}
	}
	if err := t.claimOfWaiters(ctx, of, w, t.s.slots.quotas(of, BatchSize, w.contenders), sum); err != nil {
		return err
	}
	more := t.able(w)
	if anybodys := t.s.slots.quotas(of, BatchSize, nil); len(anybodys) > 0 && !fresh && of != WorkLate && !w.others(held) {
		// The last look did not see what has become due since. Of tenants that are not held back, it is claimed here.
		batch, err := t.claimBatch(ctx, of, Claim{Quotas: anybodys, Except: held, Since: time.Since(w.looked) + overlap})
		if err != nil {
			return err
		}
		sum.settled += batch.Settled
		sum.full = sum.full || len(batch.Full) > 0
		more = append(more, batch.Full...)
	}
	t.s.slots.found(of, t.s.slots.numbers(), more)
	return nil
}

// able returns the queues in which a tenant waits that may start something.
func (t *ticker) able(w *waiters) (queues []int16) {
	for _, c := range w.contenders {
		if t.s.limits.available(c.Tenant) > 0 {
			queues = append(queues, c.Queue)
		}
	}
	return queues
}

// lookWho looks up the tenants that wait.
func (t *ticker) lookWho(ctx context.Context, of Work, w *waiters) error {
	soonest := aroundSoonest
	if of == WorkLate {
		soonest = olderAroundSoonest
	}
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	began := time.Now()
	waiting, err := t.fair[of].peek(ctx, t.s.slots.numbers())
	if err != nil {
		return err
	}
	*w = waiters{contenders: waiting, looked: began, until: began.Add(max(soonest, peekShare*time.Since(began)))}
	t.s.limits.saw(of, waiting)
	return nil
}

// claimOfWaiters claims what the waiting tenants may start. A tenant that had less due than that waits no more.
func (t *ticker) claimOfWaiters(ctx context.Context, of Work, w *waiters, quotas []Quota, sum *claimed) error {
	shares := shareAround(quotas, w.contenders, t.s.slots.held, t.s.limits.available)
	began := time.Now()
	full, err := t.claimAll(ctx, of, shares, Claim{}, sum)
	if err != nil || len(full) > 0 {
		return err
	}
	w.contenders = slices.DeleteFunc(w.contenders, func(c Contender) bool {
		return slices.ContainsFunc(shares, func(q Quota) bool { return q.Queue == c.Queue && q.Tenant == c.Tenant })
	})
	for _, q := range shares {
		if !w.waits(q.Tenant) {
			t.s.limits.gotAll(q.Tenant, of, began)
		}
	}
	return nil
}

func (w *waiters) waits(tenant int32) bool {
	return slices.ContainsFunc(w.contenders, func(c Contender) bool { return c.Tenant == tenant })
}

// others reports whether a tenant waits that is not among the held-back ones, which are sorted.
func (w *waiters) others(held []int32) bool {
	return slices.ContainsFunc(w.contenders, func(c Contender) bool {
		_, is := slices.BinarySearch(held, c.Tenant)
		return !is
	})
}

// shareAround shares out the quotas among the waiting tenants, each at most what it may start.
func shareAround(
	quotas []Quota, contenders []Contender,
	held func(queue int16, tenant int32) int, available func(tenant int32) int,
) (shares []Quota) {
	given := map[int32]int{}
	for _, q := range quotas {
		var waiting []claimant
		for _, c := range contenders {
			if room := min(available(c.Tenant)-given[c.Tenant], q.Slots); c.Queue == q.Queue && room > 0 {
				waiting = append(waiting, claimant{Contender: c, holds: held(q.Queue, c.Tenant), room: room})
			}
		}
		for _, s := range among(waiting, q, 1) {
			shares = append(shares, s)
			given[s.Tenant] += s.Slots
		}
	}
	return shares
}
