package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// errCancelled is the cause when an attempt is cut off because its run was cancelled.
var errCancelled = errors.New("the run was cancelled")

// flights are the requests in flight, so that requests of cancelled runs can be cut off. A run may have several here:
// a superseded attempt may still wait for its answer when the next one is sent.
type flights struct {
	mu   sync.Mutex
	work context.Context // ends when all attempts must end; nil: not known
	all  map[attemptKey]*sending
}

// attemptKey names one attempt of a run.
type attemptKey struct {
	run   uuid.UUID
	fence int64
}

// endWith makes all attempts end with a context.
func (f *flights) endWith(work context.Context) {
	f.work = work
	context.AfterFunc(work, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, s := range f.all {
			s.cut(context.Cause(work))
		}
	})
}

// begin returns the context of an attempt, which ends with its parent; done must be called when it is over.
func (f *flights) begin(parent context.Context, a domain.Assignment) (s *sending, done func()) {
	s = &sending{job: a.Job}
	attempt := attemptKey{a.RunID, a.Fence}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[attemptKey]*sending{}
	}
	f.all[attempt] = s
	leave := func() bool { return true }
	if parent != f.work {
		leave = context.AfterFunc(parent, func() { s.cut(context.Cause(parent)) })
	} else if parent.Err() != nil {
		s.cut(context.Cause(parent))
	}
	return s, func() {
		leave()
		f.mu.Lock()
		delete(f.all, attempt)
		f.mu.Unlock()
		s.cut(context.Canceled)
	}
}

// cancel cuts off the attempts of runs. It ignores runs that are not in flight here.
func (f *flights) cancel(runs []uuid.UUID) {
	if len(runs) == 0 {
		return
	}
	cancelled := make(map[uuid.UUID]bool, len(runs))
	for _, id := range runs {
		cancelled[id] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for attempt, s := range f.all {
		if cancelled[attempt.run] {
			s.cut(errCancelled)
		}
	}
}

// replaceable returns the jobs in flight whose concurrency policy is replace.
func (f *flights) replaceable() (jobs []uuid.UUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.all {
		if s.job.ConcurrencyPolicy == jobspec.PolicyReplace {
			jobs = append(jobs, s.job.ID)
		}
	}
	return jobs
}

// replace claims the due slots and ready runs of jobs whose runs in flight here they are to replace. The tick loop
// claims nothing while no worker slot is free, or while a tenant has as many runs as it may have. So a run that hangs
// in the last of them would block the very slot that is to end it.
func (s *Scheduler) replace(ctx context.Context) (wait time.Duration, left bool, err error) {
	jobs := s.flights.replaceable()
	if len(jobs) == 0 || s.freezing.on() || s.heart.watch.expired(time.Now()) {
		return 0, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	slots, err := s.store.ClaimDue(ctx, Claim{Replica: s.replica.ID, Work: domain.WorkDue, Replacing: jobs})
	if err != nil {
		return 0, false, err
	}
	runs, err := s.store.ClaimReady(ctx, Claim{Replica: s.replica.ID, Work: domain.WorkReady, Replacing: jobs})
	return 0, slots.Settled+runs.Settled > 0, err
}
