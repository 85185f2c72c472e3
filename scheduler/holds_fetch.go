package scheduler

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// HeldClaim asks for runs that wait for a host that may be sent some now: the longest unsent first.
type HeldClaim struct {
	Tenant int32
	By     string // what holds them back
	Queues []int16
	Most   int
	Not    []uuid.UUID // jobs that had their turn already
}

// mostFetched is how many hosts' runs one tick fetches.
const mostFetched = 16

// fetchHeld claims runs that wait for their hosts and may be sent now.
func (t *ticker) fetchHeld(ctx context.Context) error {
	h := t.s.holds
	for _, w := range h.breakers.Wanted(mostFetched) {
		claim := HeldClaim{Tenant: w.Tenant, By: w.By(), Queues: t.s.slots.free(), Most: min(w.Most, BatchSize), Not: w.Not}
		if len(claim.Queues) == 0 {
			return nil
		}
		batch, err := t.claimBatch(ctx, ready, Claim{Held: &claim})
		if err != nil {
			return err
		}
		if h.breakers.Fetched(w, jobsOf(batch.Runs), batch.Full || batch.Halted || len(batch.Frozen) > 0) {
			h.changed()
		}
	}
	for _, w := range h.hangs.Wanted(t.s.slots.room(), mostFetched) {
		claim := HeldClaim{Tenant: w.Tenant, By: w.By(), Queues: []int16{w.Queue}, Most: min(w.Most, BatchSize)}
		batch, err := t.claimBatch(ctx, ready, Claim{Held: &claim})
		if err != nil {
			return err
		}
		h.hangs.Fetched(w, len(batch.Runs))
	}
	return nil
}

func jobsOf(runs []Assignment) []uuid.UUID {
	jobs := make([]uuid.UUID, len(runs))
	for i, a := range runs {
		jobs[i] = a.Job.ID
	}
	return jobs
}

// untilFetch returns how long to sleep until a run that waits may be sent, at most so long; never so short that the
// loop spins. Without a free worker slot there is no use in it.
func (t *ticker) untilFetch(most time.Duration) time.Duration {
	wait := t.s.holds.breakers.Until(most)
	if wait < most && len(t.s.slots.free()) > 0 {
		return max(wait, shortestPause)
	}
	return most
}
