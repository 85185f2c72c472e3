package server

import (
	"context"
	"time"

	"punctual/store/pg"
)

const (
	stepRetry = time.Second
	stepSlow  = 5 * time.Second
)

// insist does a step of the start, and does it again while a failover, or a start of the database, may explain why it
// fails. It fails at once if time does not mend the error, such as a wrong password or an old schema. A step may have
// been done although it failed, because only the answer was lost. A step that takes long is told of, as it may wait for
// a lock.
func (c Config) insist(ctx context.Context, step func() error) error {
	again := c.patience()
	for {
		slow := time.AfterFunc(stepSlow, func() {
			c.Log.Warn("the start waits for the database: another session may hold a lock, see pg_stat_activity")
		})
		err := step()
		slow.Stop()
		if err == nil || !again(ctx, err) {
			return err
		}
	}
}

// patience returns a function that reports whether a step which failed may succeed now. It waits a moment first, and
// says for what. It gives up after DatabaseWait, counted from the first failure: a step that took long to fail is tried
// again all the same.
func (c Config) patience() func(ctx context.Context, err error) bool {
	var deadline time.Time
	return func(ctx context.Context, err error) bool {
		if deadline.IsZero() {
			deadline = time.Now().Add(c.DatabaseWait)
		}
		if !pg.Away(err) || !time.Now().Before(deadline) {
			return false
		}
		why := "the database cannot be used"
		if refused := pg.Refused(err); refused != nil {
			why = refused.Error()
		}
		c.Log.Warn(why+"; trying again", "error", err, "giving_up_in", time.Until(deadline).Round(time.Second))
		select {
		case <-time.After(stepRetry):
		case <-ctx.Done():
		}
		return ctx.Err() == nil
	}
}
