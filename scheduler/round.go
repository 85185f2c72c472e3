package scheduler

import (
	"sync"

	"punctual/scheduler/admit"

	"punctual/scheduler/domain"
)

const (
	// sideBySide is how many claims run side by side. With a backlog and one claim at a time, a replica's workers would
	// wait for each claim in turn. With two, one waits for its commit while the other locks the next rows.
	sideBySide = 2
	// mostInATick is how many claims of one kind of work a tick makes to work off a backlog: so many that both sides
	// seldom wait for each other, and so few that the tick, and with it the other kinds of work, waits for 50 ms at most
	// on a machine that makes a claim in 8 ms.
	mostInATick = 12
)

// round is the claims of one kind of work in a tick.
type round struct {
	claims [][]admit.Quota      // claims that have not begun, of at most BatchSize each
	more   func() []admit.Quota // quotas of a further claim, as one has ended and another is under way; nil: there is none

	mu       sync.Mutex
	begun    int
	underWay int
	dry      bool          // a claim found less than it asked for
	asked    []admit.Quota // of all claims that have begun
	settled  int
	full     []int16 // queues whose quota was used up
	failed   []error
}

// roundOf returns the round of a tick. It begins with one claim, and with one on each side while the tick works off a
// backlog. There, a side whose claim has ended makes further ones while the other is still at its own: it would only
// wait for it.
func (t *ticker) roundOf(of domain.Work, waiting []admit.Contender) *round {
	fair := &t.fair[of]
	quotas := func(most int) []admit.Quota {
		return fair.share(t.s.admission.Slots.Quotas(of, most, waiting), waiting, t.s.admission.Slots)
	}
	if !t.worksOff(fair) {
		return &round{claims: admit.InBatches(quotas(admit.BatchSize))}
	}
	return &round{claims: admit.InBatches(quotas(sideBySide * admit.BatchSize)), more: func() []admit.Quota {
		if t.s.admission.Limits.DrawDue() {
			return nil // the draw comes between two rounds
		}
		return quotas(admit.BatchSize)
	}}
}

// next returns the quotas of the next claim, and what to call with its result. No quotas are left once all have begun,
// or while few slots are free, or after a claim that has found less than it asked for.
func (r *round) next(of domain.Work, slots *admit.Slots) (quotas []admit.Quota, ended func(domain.Batch, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.claims) == 0 && r.more != nil && r.underWay > 0 && !r.dry && r.begun < mostInATick &&
		slots.RoomFor(of, admit.BatchSize) {
		r.claims = admit.InBatches(r.more())
	}
	if len(r.claims) == 0 {
		return nil, nil
	}
	quotas, r.claims = r.claims[0], r.claims[1:]
	r.begun, r.underWay, r.asked = r.begun+1, r.underWay+1, append(r.asked, quotas...)
	slots.Promise(of, quotas, 1)
	return quotas, func(b domain.Batch, err error) {
		slots.Promise(of, quotas, -1)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.underWay--
		r.settled += b.Settled
		r.full = append(r.full, b.Full...)
		r.dry = r.dry || len(b.Full) == 0
		if err != nil {
			r.failed = append(r.failed, err)
		}
	}
}
