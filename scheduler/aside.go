package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

const (
	// mostAside bounds the outcomes that wait for locked rows. At the bound no others are written either, and worker
	// slots stay occupied: nothing is dropped.
	mostAside = finisherQueue
	// soonestAside and longestRetry bound the pause between two tries to write them.
	soonestAside = 50 * time.Millisecond
	// asideSoon is how long outcomes wait before the log mentions them, and asideTold how often it does from then on.
	asideSoon = 5 * time.Second
	asideTold = 30 * time.Second
)

// aside holds outcomes that could not be written because somebody else had locked rows that they change. They are
// tried again in batches of their own, so that no other outcome waits for them. Owned by the finisher.
type aside struct {
	outcomes []domain.Outcome
	tables   map[uuid.UUID]string // the tables whose rows they wait for, by run
	leases   []uuid.UUID          // leases with no run left whose own rows are locked
	since    time.Time            // since when there are any
	left     int                  // how many were left after the last write
	told     time.Time
	pause    time.Duration
	due      <-chan time.Time // delivers when they are to be tried again; nil while there are none
}

func (a *aside) any() bool { return len(a.outcomes)+len(a.leases) > 0 }

// orNot returns the queue, unless it was closed or too many outcomes wait already.
func (a *aside) orNot(queue chan *domain.Outcome, open bool) chan *domain.Outcome {
	if !open || len(a.outcomes) >= mostAside {
		return nil
	}
	return queue
}

// take returns the outcomes that have waited longest, as many as one write takes. Those that are still locked come
// back.
func (a *aside) take() []domain.Outcome {
	a.due = nil
	n, kept := 0, 0
	for n < len(a.outcomes) && n < maxOutcomes && kept < maxKept {
		kept += a.outcomes[n].Kept()
		n++
	}
	some := slices.Clone(a.outcomes[:n])
	for _, o := range some {
		delete(a.tables, o.RunID)
	}
	a.outcomes = slices.Delete(a.outcomes, 0, n)
	return some
}

// putAside puts the left outcomes aside. It returns the outcomes that were written and the leases that were ended.
func (f *finisher) putAside(
	left *LeftOutcomesError, outcomes []domain.Outcome, released []uuid.UUID,
) ([]domain.Outcome, []uuid.UUID) {
	a := &f.aside
	unfinished := map[uuid.UUID]bool{}
	var written []domain.Outcome
	for _, o := range outcomes {
		_, locked := left.Runs[o.RunID]
		if why := left.Failing[o.RunID]; why != nil {
			f.stuck.put(o)
		} else if locked {
			a.outcomes = append(a.outcomes, o)
		} else {
			written = append(written, o)
			continue
		}
		o.Lease.Remaining++ // the outcome has not left its lease
		unfinished[o.Lease.ID] = true
	}
	over := f.stuck.over()
	f.leaveStuck(over)
	a.leases = append(a.leases, leave(over)...)
	giveBack(a.outcomes) // a lock that somebody else holds must not occupy worker slots
	giveBack(f.stuck.outcomes)
	if a.tables == nil {
		a.tables = map[uuid.UUID]string{}
	}
	maps.Copy(a.tables, left.Runs)
	for _, id := range left.Leases {
		if !unfinished[id] {
			a.leases = append(a.leases, id)
		}
	}
	return written, slices.DeleteFunc(released, func(id uuid.UUID) bool { return slices.Contains(left.Leases, id) })
}

// again sets when the waiting outcomes are tried again, and logs them. It is called after each write.
func (f *finisher) again() {
	a := &f.aside
	now := time.Now()
	if !a.any() {
		if !a.told.IsZero() {
			f.s.log.Info("the outcomes that waited for locked rows are written", "waited", now.Sub(a.since))
		}
		*a = aside{}
		return
	}
	if a.since.IsZero() {
		a.since = now
	}
	if now.Sub(a.since) > asideSoon && now.Sub(a.told) > asideTold {
		a.told = now
		f.s.log.Warn(
			"outcomes wait because another transaction has locked rows that they change; all other outcomes are written. Look for a transaction that was left open",
			append([]any{"runs", len(a.outcomes), "claims", len(a.leases), "waited", now.Sub(a.since)}, a.first()...)...)
	}
	if n := len(a.outcomes) + len(a.leases); n < a.left {
		a.left, a.pause = n, 0 // some were written, so more may follow
	} else {
		a.left = n
	}
	if a.due == nil {
		a.pause = min(max(2*a.pause, soonestAside), longestRetry)
		a.due = time.After(a.pause)
	}
}

// first names one of the waiting outcomes, for the log.
func (a *aside) first() []any {
	if len(a.outcomes) == 0 {
		return []any{"locked", "punctual.claims"}
	}
	o := a.outcomes[0]
	return []any{"locked", "punctual." + a.tables[o.RunID], "run", o.RunID, "job", o.Job.Name}
}
