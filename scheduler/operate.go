package scheduler

import (
	"context"
	"log/slog"
	"time"
)

// operatePause is how long a replica waits when work on operations fails, and at most between two looks.
const operatePause = time.Second

// operator works on operations, such as the replay of many dead letters, while there are any. That there
// are is told by the heartbeat, so an idle replica asks the database nothing for it.
type operator struct {
	store Store
	log   *slog.Logger
	asked chan struct{}
}

// ask starts the work, if it is not under way.
func (o *operator) ask() {
	select {
	case o.asked <- struct{}{}:
	default: // it has been told already
	}
}

// run works whenever it is asked to, until ctx ends.
func (o *operator) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.asked:
			o.work(ctx)
		}
	}
}

// work does batch after batch until no operation is left. Every replica does: the rows tell them apart.
func (o *operator) work(ctx context.Context) {
	for ctx.Err() == nil {
		wait, left, err := o.store.Operate(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			o.log.Warn("work on operations failed; tried again", "error", err)
			wait = operatePause
		case !left:
			return
		}
		if wait > 0 {
			sleep(ctx, min(wait, operatePause))
		}
	}
}
