package scheduler

import (
	"context"
	"time"

	"punctual/scheduler/domain"
)

// chorePause is how long a replica waits after a chore fails, and the longest pause between two batches.
const chorePause = time.Second

// Chore is work beside the claims, such as the replay of many dead letters. The store hands its chores to Run as
// values: the loops need to know nothing else about them. Every replica does them. Locked rows keep two replicas from
// doing the same work twice.
type Chore struct {
	Name string // by which it is asked for: see Pulse.Chores and Store.Asked
	Does string // for the log, such as "ending pauses"
	// Every is how often a replica does the chore without being asked; 0: only when it is asked.
	Every time.Duration
	// Due is the store's own: its condition, in SQL, by which a heartbeat asks for the chore; empty: none does.
	Due string
	// Batch does a part of the work. left is true while there is more to do, once wait has passed.
	Batch func(context.Context) (wait time.Duration, left bool, err error)
}

// chores are the chores of a replica, by name.
type chores map[string]*duty

// duty is a chore that a replica does.
type duty struct {
	Chore
	s       *Scheduler
	asked   chan struct{}   // by this replica's other loops, such as the heartbeat
	written <-chan struct{} // by a write of this process, which has just committed work for it
}

// ask starts chores that are not under way. A chore that is under way begins again when it has ended.
func (c chores) ask(names ...string) {
	for _, name := range names {
		if d := c[name]; d != nil {
			d.ask()
		}
	}
}

func (d *duty) ask() {
	select {
	case d.asked <- struct{}{}:
	default: // it has been asked already
	}
}

// run does the chore whenever it is asked to and each period, until ctx ends.
func (d *duty) run(ctx context.Context) {
	var due <-chan time.Time // never, for a chore without a period
	if d.Every > 0 {
		d.ask() // at once
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.asked:
		case <-d.written:
		case <-due:
		}
		d.work(ctx)
		if d.Every > 0 {
			due = time.After(domain.About(d.Every))
		}
	}
}

// work does batch after batch until nothing is left. After a failure a chore with a period waits for the next one; any
// other chore goes on after a pause, which new work ends.
func (d *duty) work(ctx context.Context) {
	for ctx.Err() == nil {
		wait, left, err := d.Batch(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil && d.Every > 0:
			d.s.metrics.chores.Inc()
			d.s.log.Error(d.Does+" failed; tried again later", "in", d.Every, "error", err)
			return
		case err != nil:
			d.s.log.Warn(d.Does+" failed; tried again", "in", chorePause, "error", err)
			wait = chorePause
		case !left:
			return
		}
		if wait > 0 {
			select {
			case <-time.After(min(wait, chorePause)):
			case <-d.written:
			case <-ctx.Done():
			}
		}
	}
}
