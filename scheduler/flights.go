package scheduler

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
)

// errCancelled is why an attempt is cut off when its run was cancelled.
var errCancelled = errors.New("the run was cancelled")

// flights are the requests in flight, so that those of cancelled runs can be cut off. A run may have several here: one
// that was superseded may still wait for its answer when the next is sent.
type flights struct {
	mu  sync.Mutex
	cut map[attemptKey]context.CancelCauseFunc
}

// attemptKey names one attempt of a run.
type attemptKey struct {
	run   uuid.UUID
	fence int64
}

// begin returns the context of an attempt; done must be called when it is over.
func (f *flights) begin(parent context.Context, run uuid.UUID, fence int64) (ctx context.Context, done func()) {
	ctx, cut := context.WithCancelCause(parent)
	attempt := attemptKey{run, fence}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut == nil {
		f.cut = map[attemptKey]context.CancelCauseFunc{}
	}
	f.cut[attempt] = cut
	return ctx, func() {
		f.mu.Lock()
		delete(f.cut, attempt)
		f.mu.Unlock()
		cut(nil)
	}
}

// cancel cuts off the attempts of runs; those that are not in flight here are none of its business.
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
	for attempt, cut := range f.cut {
		if cancelled[attempt.run] {
			cut(errCancelled)
		}
	}
}
