package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

const (
	// gather is how long outcomes gather before they are written together, and gatherBusy how long after a write of
	// busyOutcomes or more. Each write is a commit, and the number of commits is what costs the database.
	gather       = 3 * time.Millisecond
	gatherBusy   = 10 * time.Millisecond
	busyOutcomes = 10
	// maxOutcomes is how many outcomes one write takes.
	maxOutcomes = 500
	// maxKept is the number of bytes of responses and results after which one write takes no further outcome.
	maxKept = 4 << 20
	// finisherQueue bounds the outcomes that wait for the database. When it is full, worker slots stay occupied and so
	// claims stop: nothing is dropped.
	finisherQueue = 2000
	// finishTimeout bounds one try to write. If it committed all the same, the next try finds the attempts superseded.
	finishTimeout = 15 * time.Second
	// longestRetry bounds the pause between two tries to write the same outcomes.
	longestRetry = 2 * time.Second
)

// finisher writes outcomes in batches, and keeps those that it cannot write until it can.
type finisher struct {
	s     *Scheduler
	queue chan *domain.Outcome
	gone  chan struct{} // closed when nothing is written any more
	aside aside         // outcomes that wait for locked rows
	stuck stuck         // outcomes that cannot be written
}

// put hands an outcome over. It waits while the queue is full, unless nothing will be written any more.
func (f *finisher) put(o *domain.Outcome) {
	select {
	case f.queue <- o:
	case <-f.gone:
	}
}

// run writes until the queue is closed and empty, or ctx ends. What is not written then stays with its claims, for
// other replicas to recover.
func (f *finisher) run(ctx context.Context) {
	defer close(f.gone)
	defer func() { f.leaveStuck(f.stuck.outcomes) }()
	var outcomes []domain.Outcome // its memory serves all batches
	for open := true; open || f.aside.any(); {
		var first *domain.Outcome
		var over <-chan struct{} // nothing can be written any more
		if !open {
			over = ctx.Done()
		}
		select {
		case <-over:
			f.s.log.Error(
				"outcomes could not be written because another transaction has locked their rows; the runs will be recovered",
				append([]any{"count", len(f.aside.outcomes)}, f.aside.first()...)...)
			return
		case first, open = <-f.aside.orNot(f.queue, open):
		case <-f.aside.due:
			if !f.write(ctx, f.aside.take()) {
				return
			}
			continue
		case <-f.stuck.due():
			one, others := f.stuck.take(), len(f.stuck.outcomes)
			if !f.write(ctx, one) {
				return
			}
			if len(f.stuck.outcomes) == others {
				f.stuck.written()
			}
			continue
		}
		if !open {
			continue
		}
		wait := gather
		if len(outcomes) >= busyOutcomes {
			wait = gatherBusy
		}
		outcomes, open = f.collect(append(outcomes[:0], *first), wait)
		if !f.write(ctx, outcomes) {
			return
		}
		clear(outcomes) // nothing that the outcomes refer to has to live until the next batch
	}
}

// collect adds what arrives within wait, a few milliseconds. open is false when the queue was closed.
func (f *finisher) collect(outcomes []domain.Outcome, wait time.Duration) (_ []domain.Outcome, open bool) {
	over := time.After(wait)
	kept := 0
	for _, o := range outcomes {
		kept += o.Kept()
	}
	for len(outcomes) < maxOutcomes && kept < maxKept {
		select {
		case o, ok := <-f.queue:
			if !ok {
				return outcomes, false
			}
			outcomes = append(outcomes, *o)
			kept += o.Kept()
		case <-over:
			return outcomes, true
		}
	}
	return outcomes, true
}

// write tries until it succeeds. It returns false when ctx ended first.
func (f *finisher) write(ctx context.Context, outcomes []domain.Outcome) bool {
	released := append(leave(outcomes), f.aside.leases...)
	f.aside.leases = nil
	earlier := f.s.heart.leases.earlier(released)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, longestRetry) {
		started := time.Now()
		superseded, err := f.finish(ctx, outcomes, released, earlier)
		if left, is := errors.AsType[*LeftOutcomesError](err); is {
			outcomes, released = f.putAside(left, outcomes, released)
			err = nil
		}
		if err == nil {
			f.s.metrics.finished(outcomes, superseded, time.Since(started))
			f.s.heart.leases.acknowledge(outcomes, released)
			giveBack(outcomes)
			if f.s.config.Finished != nil {
				f.s.config.Finished(outcomes)
			}
			f.again()
			if superseded > 0 {
				f.s.log.Warn("attempts had been superseded; their outcomes changed nothing", "count", superseded)
			}
			return true
		}
		if ctx.Err() != nil {
			f.s.log.Error("outcomes could not be written; their runs will be recovered",
				"count", len(outcomes)+len(f.aside.outcomes), "error", err)
			return false
		}
		f.s.log.Warn("outcomes cannot be written; they are kept and tried again",
			"count", len(outcomes), "again_in", pause, "error", err)
		sleep(ctx, pause)
	}
}

// giveBack gives back the worker slots that outcomes have kept.
func giveBack(outcomes []domain.Outcome) {
	for i := range outcomes {
		if release := outcomes[i].Release; release != nil {
			outcomes[i].Release = nil
			release()
		}
	}
}

func (f *finisher) finish(
	ctx context.Context, outcomes []domain.Outcome, released, earlier []uuid.UUID,
) (superseded int, err error) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	return f.s.store.Finish(ctx, outcomes, released, earlier...)
}

// leave counts the outcomes down on their leases, and returns the leases that have no run left.
func leave(outcomes []domain.Outcome) []uuid.UUID {
	var released []uuid.UUID
	for _, o := range outcomes {
		if o.Lease.Remaining--; o.Lease.Remaining == 0 {
			released = append(released, o.Lease.ID)
		}
	}
	return released
}
