package scheduler

import (
	"context"
	"time"

	"punctual/scheduler/admit"
)

const (
	// peekEvery is the shortest time between two looks at the waiting tenants.
	peekEvery = 250 * time.Millisecond
	// peekShare makes that time at least so many times as long as a look took: with thousands of tenants a look takes
	// milliseconds.
	peekShare = 10
)

// fairness shares the slots of one kind of work among tenants. While everything due fits in the slots it does
// nothing, and work is claimed in order of due time.
type fairness struct {
	peek       func(ctx context.Context, queues []int16) ([]admit.Contender, error)
	crowded    bool // the last claim took all it could, so there may be more
	recent     bool // the last claim was of recent slots, so the next one is of the whole backlog
	contenders []admit.Contender
	looked     time.Time    // when the last look at the waiting tenants began
	until      time.Time    // when to look again
	dealt      map[turn]int // slots that tenants got since the last look
	atOnce     int          // slots that a tenant has work for in its turn; at most mostAtOnce
}

// turn is a tenant that waits in a queue.
type turn struct {
	queue  int16
	tenant int32
}

// who returns the waiting tenants, while more is due than a claim can take; else nil.
func (f *fairness) who(ctx context.Context, slots *admit.Slots) ([]admit.Contender, error) {
	if !f.crowded {
		return nil, nil
	}
	if _, err := f.look(ctx, slots, peekEvery); err != nil {
		f.crowded = false // a failed look does not delay due work
		return nil, err
	}
	return f.contenders, nil
}

// look looks up the waiting tenants, unless it has done so a moment ago. It reports whether it has looked now.
func (f *fairness) look(ctx context.Context, slots *admit.Slots, soonest time.Duration) (looked bool, err error) {
	began := time.Now()
	if !began.After(f.until) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	waiting, err := f.peek(ctx, slots.Numbers())
	if err != nil {
		return false, err
	}
	f.contenders, f.looked, f.until = waiting, began, began.Add(max(soonest, peekShare*time.Since(began)))
	f.dealt = map[turn]int{}
	return true, nil
}

// forget has the next look made anew.
func (f *fairness) forget() { f.contenders, f.until = nil, time.Time{} }

// share shares out quotas among the waiting tenants.
func (f *fairness) share(quotas []admit.Quota, waiting []admit.Contender, slots *admit.Slots) []admit.Quota {
	turns := func(queue int16, tenants int) int { return admit.TurnOf(tenants, slots.Sizes[queue], f.atOnce) }
	shares := admit.ByTurns(quotas, waiting, turns, func(c admit.Contender) admit.Claimant {
		return admit.Claimant{
			Contender: c, Holds: slots.Held(c.Queue, c.Tenant), Dealt: f.dealt[turn{c.Queue, c.Tenant}],
		}
	})
	for _, q := range shares {
		if q.Tenant != 0 {
			f.dealt[turn{q.Queue, q.Tenant}] += q.Slots
		}
	}
	return shares
}

// learn takes how many runs a claim brought of those that were asked for. While tenants have as much due as they are
// given at once, they are given more.
func (f *fairness) learn(asked, got int) {
	switch {
	case got*10 >= asked*9:
		f.atOnce = min(max(1, f.atOnce)*2, admit.MostAtOnce)
	case got*2 < asked:
		f.atOnce /= 2
	}
}
