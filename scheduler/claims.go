package scheduler

import (
	"context"
	"errors"
	"math"
	"time"

	"punctual/scheduler/admit"

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
	full    bool        // a claim found as much as it asked for
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
	free := t.s.admission.Slots.Quotas(of, math.MaxInt, nil)
	if len(free) == 0 {
		t.s.admission.Slots.Found(of, nil, nil)
		return nil
	}
	fair, before := &t.fair[of], sum.settled
	waiting, err := fair.who(ctx, t.s.admission.Slots)
	if err != nil {
		return err
	}
	fair.recent = of == domain.WorkLate && fair.crowded && !fair.recent
	var r *round
	for recent := fair.recent; ; recent = false {
		r = t.roundOf(of, waiting)
		settled := sum.settled
		if err := t.claimAll(ctx, of, Claim{Recent: recent}, r, sum); err != nil {
			return err
		}
		fair.learn(admit.Total(r.asked), sum.settled-settled)
		if !recent {
			looked := make([]int16, len(r.asked))
			for i, q := range r.asked {
				looked[i] = q.Queue
			}
			t.s.admission.Slots.Found(of, looked, r.full)
			break
		}
		if len(r.full) > 0 {
			break // it is the recent slots' turn, and they say nothing about the rest
		}
	}
	sum.offered = true
	if of == domain.WorkLate {
		t.upcoming.Older = sum.settled > before
	}
	// Nothing was claimed from queues without a free slot for this kind, and more may be due there.
	fair.crowded = len(r.full) > 0 || fair.crowded && len(free) < len(t.s.admission.Slots.Numbers())
	return nil
}

// claimAll makes the claims of a round, a few of them side by side. None begins once one has failed or ctx has ended.
func (t *ticker) claimAll(ctx context.Context, of domain.Work, what Claim, r *round, sum *claimed) error {
	sides, goOn := errgroup.WithContext(ctx)
	for range min(sideBySide, len(r.claims)) {
		sides.Go(func() error {
			for goOn.Err() == nil {
				own := what
				var ended func(domain.Batch, error)
				if own.Quotas, ended = r.next(of, t.s.admission.Slots); len(own.Quotas) == 0 {
					return nil
				}
				batch, err := t.claimBatch(ctx, of, own) // not goOn: one that fails does not end the other
				ended(batch, err)
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	_ = sides.Wait() // all that failed are in r.failed
	sum.settled += r.settled
	sum.full = sum.full || len(r.full) > 0
	return errors.Join(r.failed...)
}

// worksOff reports whether a tick works off a backlog of a kind of work: whether it makes several claims of it. Where
// there are several replicas each makes one, because a claim has to step over each row that another claim has locked.
func (t *ticker) worksOff(fair *fairness) bool { return fair.crowded && t.s.heart.watch.alone() }

func (t *ticker) claimBatch(ctx context.Context, of domain.Work, c Claim) (batch domain.Batch, err error) {
	from := t.s.store.ClaimDue
	if of == domain.WorkReady || of == domain.WorkOrdered {
		from = t.s.store.ClaimReady
	}
	c.Replica, c.Lease, c.Work, c.Grant = t.s.replica.ID, t.s.heart.leases.ask(), of, t.s.admission.Limits.Grant(of)
	if of == domain.WorkDue && t.took > slowLook && !t.s.heart.watch.alone() {
		c.Behind = yielding // a claim takes several round trips, and locks its slots meanwhile
	}
	defer func() { c.Grant.End(batch.Runs) }()
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
	if len(batch.Runs) == 0 {
		t.s.heart.leases.empty(c.Lease)
	}
	t.s.metrics.dropped.Add(float64(batch.Dropped))
	for _, tenant := range batch.Frozen {
		t.s.admission.Limits.Freeze(tenant, of)
	}
	if t.s.heart.watch.lapsed() != lapses || t.s.heart.watch.expired(time.Now()) {
		return domain.Batch{}, errLateClaim
	}
	if !t.s.dispatch(batch) {
		return domain.Batch{}, errGivenBack
	}
	return batch, nil
}
