package scheduler

import (
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"punctual/scheduler/domain"
)

// Answers to claims that came so late that other replicas may have the runs.
var (
	errLateClaim = errors.New(
		"a claim was answered after this replica had had no heartbeat for too long: its runs are given back unsent")
	errGivenBack = errors.New(
		"a claim was answered after this replica had given it back because its commit was in doubt: its runs are not sent")
)

const (
	// yielding is how long a slow replica leaves a due slot to the others. That is enough for them: they look at least
	// every longestPause for a slot that they know to be due.
	yielding = 250 * time.Millisecond
	// claimGrace is how long a claim may go on after its replica was told to stop.
	claimGrace = 2 * time.Second
)

// claimed adds up the claims of one tick.
type claimed struct {
	offered bool // there was a slot for some kind of work that was due
	settled int
	full    bool
	next    domain.Work // the kind after the one that brought runs first
}

// claim claims one kind of work and hands the runs to the executor.
func (t *ticker) claim(ctx context.Context, of domain.Work, sum *claimed) (err error) {
	before := sum.settled
	if len(t.held) > 0 {
		err = t.claimAround(ctx, of, sum)
	} else {
		err = t.claimInOrder(ctx, of, sum)
	}
	if before == 0 && sum.settled > 0 {
		sum.next = of + 1
	}
	return err
}

// claimInOrder claims one kind of work in order of due time within its quotas, if it has any.
func (t *ticker) claimInOrder(ctx context.Context, of domain.Work, sum *claimed) error {
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
	fair.recent = of == domain.WorkLate && fair.crowded && !fair.recent
	var offered []Quota
	var full []int16
	for recent := fair.recent; ; recent = false {
		offered = t.s.slots.quotas(of, t.inATick(fair)*BatchSize, waiting)
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
	if of == domain.WorkLate {
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

// claimAll claims all the quotas in claims of at most BatchSize, a few of them at a time. None begins once one has
// failed or ctx has ended. full lists the queues whose quota was used up.
func (t *ticker) claimAll(
	ctx context.Context, of domain.Work, quotas []Quota, what Claim, sum *claimed,
) (full []int16, err error) {
	claims := inBatches(quotas)
	batches, errs := make([]domain.Batch, len(claims)), make([]error, len(claims))
	claiming, goOn := errgroup.WithContext(ctx)
	claiming.SetLimit(sideBySide)
	for i := range claims {
		claiming.Go(func() error {
			if err := goOn.Err(); err != nil {
				return err
			}
			own := what
			own.Quotas = claims[i]
			batches[i], errs[i] = t.claimBatch(ctx, of, own) // not goOn: one that fails does not end the other
			return errs[i]
		})
	}
	_ = claiming.Wait() // all that failed are in errs
	for _, b := range batches {
		sum.settled += b.Settled
		full = append(full, b.Full...)
	}
	sum.full = sum.full || len(full) > 0
	return full, errors.Join(errs...)
}

// sideBySide is how many claims run side by side. With a backlog and one claim at a time, a replica's workers would
// wait for each claim in turn. With two, one waits for its commit while the other locks the next rows.
const sideBySide = 2

// inATick is how many full claims a tick makes. With a backlog two follow each other on each side: at the end of a tick
// both sides wait for the slower one. Where there are several replicas each makes one, because a claim has to step over
// each row that another claim has locked.
func (t *ticker) inATick(fair *fairness) int {
	if fair.crowded && t.s.heart.watch.alone() {
		return 2 * sideBySide
	}
	return 1
}

func (t *ticker) claimBatch(ctx context.Context, of domain.Work, c Claim) (batch domain.Batch, err error) {
	from := t.s.store.ClaimDue
	if of == domain.WorkReady || of == domain.WorkOrdered {
		from = t.s.store.ClaimReady
	}
	c.Replica, c.Work, c.Grant = t.s.replica.ID, of, t.s.limits.grant(of)
	if of == domain.WorkDue && t.took > slowLook && !t.s.heart.watch.alone() {
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
		return domain.Batch{}, err
	}
	t.heedFreeze(of, batch)
	if t.s.heart.watch.lapsed() != lapses || t.s.heart.watch.expired(time.Now()) {
		return domain.Batch{}, errLateClaim
	}
	if !t.s.dispatch(batch) {
		return domain.Batch{}, errGivenBack
	}
	return batch, nil
}

// heedFreeze heeds what a claim found frozen before a heartbeat has told of it.
func (t *ticker) heedFreeze(of domain.Work, b domain.Batch) {
	if b.Halted {
		t.s.freezing.halt()
	}
	for _, tenant := range b.Frozen {
		t.s.limits.freeze(tenant, of)
	}
}
