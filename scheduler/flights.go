package scheduler

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
)

// errCancelled is why an attempt is cut off when its run was cancelled.
var errCancelled = errors.New("the run was cancelled")

// flights are the requests in flight, so that those of cancelled runs can be cut off.
type flights struct {
	mu  sync.Mutex
	cut map[uuid.UUID]context.CancelCauseFunc
}

// begin returns the context of an attempt; done must be called when it is over.
func (f *flights) begin(parent context.Context, run uuid.UUID) (ctx context.Context, done func()) {
	ctx, cut := context.WithCancelCause(parent)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut == nil {
		f.cut = map[uuid.UUID]context.CancelCauseFunc{}
	}
	f.cut[run] = cut
	return ctx, func() {
		f.mu.Lock()
		delete(f.cut, run)
		f.mu.Unlock()
		cut(nil)
	}
}

// cancel cuts off the attempts of runs; those that are not in flight here are none of its business.
func (f *flights) cancel(runs []uuid.UUID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range runs {
		if cut, ok := f.cut[id]; ok {
			cut(errCancelled)
		}
	}
}
