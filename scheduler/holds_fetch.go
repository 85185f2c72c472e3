package scheduler

import (
	"context"
	"maps"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// HeldClaim asks for runs that wait for a host to which some may be sent now; the run that has waited longest goes
// first.
type HeldClaim struct {
	Tenant int32
	By     string // what holds them back
	Lanes  []int16
	Most   int
	Not    []uuid.UUID // jobs that have had their turn already
}

// mostFetched is for how many hosts one tick fetches runs.
const mostFetched = 16

// fetchHeld claims runs that wait for their hosts and may be sent now.
func (t *ticker) fetchHeld(ctx context.Context) error {
	h := t.s.admission.Holds
	for _, w := range h.Breakers.Wanted(mostFetched) {
		lanes, most, all := t.s.admission.Slots.ForHeld(0)
		if most == 0 {
			return nil
		}
		claim := HeldClaim{Tenant: w.Tenant, By: w.By(), Lanes: lanes, Most: min(w.Most, most, admit.BatchSize), Not: w.Not}
		batch, err := t.claimBatch(ctx, domain.WorkReady, Claim{Held: &claim})
		if err != nil {
			return err
		}
		if h.Breakers.Fetched(w, jobsOf(batch.Runs), !all || moreWait(batch)) {
			h.Changed()
		}
	}
	if !h.Hangs.Any() {
		return nil
	}
	slots := t.s.admission.Slots
	sizes := maps.Clone(slots.Sizes)
	maps.DeleteFunc(sizes, func(queue int16, _ int) bool { _, most, _ := slots.ForHeld(queue); return most == 0 })
	for _, w := range h.Hangs.Wanted(sizes, mostFetched) {
		lanes, most, all := t.s.admission.Slots.ForHeld(w.Queue)
		w.Most = min(w.Most, most, admit.BatchSize)
		claim := HeldClaim{Tenant: w.Tenant, By: w.By(), Lanes: lanes, Most: w.Most}
		batch, err := t.claimBatch(ctx, domain.WorkReady, Claim{Held: &claim})
		if err != nil {
			return err
		}
		h.Hangs.Fetched(w, len(batch.Runs), !all || moreWait(batch))
	}
	return nil
}

// moreWait reports whether more runs may wait where a claim looked for runs that wait for their hosts.
func moreWait(b domain.Batch) bool { return len(b.Full) > 0 || b.Halted || len(b.Frozen) > 0 }

func jobsOf(runs []domain.Assignment) []uuid.UUID {
	jobs := make([]uuid.UUID, len(runs))
	for i, a := range runs {
		jobs[i] = a.Job.ID
	}
	return jobs
}

// untilFetch returns how long to sleep until a waiting run may be sent: at most most, and never so short that the
// loop spins. Without a free worker slot it returns most, because fetching would be of no use.
func (t *ticker) untilFetch(most time.Duration) time.Duration {
	wait := t.s.admission.Holds.Breakers.Until(most)
	if wait == most {
		return most
	}
	if _, free, _ := t.s.admission.Slots.ForHeld(0); free == 0 {
		return most
	}
	return max(wait, shortestPause)
}
