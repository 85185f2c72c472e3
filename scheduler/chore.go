package scheduler

import (
	"context"
	"log/slog"
	"time"
)

// chorePause is how long a replica waits after a chore fails, and the longest pause between two batches.
const chorePause = time.Second

// chore is work that comes up now and then, such as the replay of many dead letters. It is done while there is any.
// The heartbeat says when there is some, so an idle replica sends the database no query for it.
type chore struct {
	what  string // for the log
	log   *slog.Logger
	batch func(context.Context) (wait time.Duration, left bool, err error)
	asked chan struct{}
}

func newChore(what string, log *slog.Logger, batch func(context.Context) (time.Duration, bool, error)) chore {
	return chore{what: what, log: log, batch: batch, asked: make(chan struct{}, 1)}
}

// ask starts the work, if it is not under way.
func (c *chore) ask() {
	select {
	case c.asked <- struct{}{}:
	default: // it has been asked already
	}
}

// run works whenever it is asked to, until ctx ends.
func (c *chore) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.asked:
			c.work(ctx)
		}
	}
}

// work does batch after batch until nothing is left. Every replica does so: locked rows keep them from doing the same
// work twice.
func (c *chore) work(ctx context.Context) {
	for ctx.Err() == nil {
		wait, left, err := c.batch(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			c.log.Warn(c.what+" failed; tried again", "error", err)
			wait = chorePause
		case !left:
			return
		}
		if wait > 0 {
			sleep(ctx, min(wait, chorePause))
		}
	}
}
