package claim

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/pg"
)

// left collects what the parts of a finish have left out.
type left struct{ scheduler.LeftOutcomesError }

func newLeft() *left {
	return &left{scheduler.LeftOutcomesError{Runs: map[uuid.UUID]string{}, Failing: map[uuid.UUID]error{}}}
}

func (l *left) any() bool { return len(l.Runs)+len(l.Failing)+len(l.Leases) > 0 }

// add adds what a part has left out.
func (l *left) add(part *scheduler.LeftOutcomesError) {
	for run, table := range part.Runs {
		l.Runs[run] = table
	}
	l.Leases = append(l.Leases, part.Leases...)
}

// has reports whether an outcome was left out.
func (l *left) has(o domain.Outcome) bool {
	_, locked := l.Runs[o.RunID]
	return locked || l.Failing[o.RunID] != nil
}

// free returns the leases that may end: those of which no outcome was left out. It notes the others.
func (l *left) free(released []uuid.UUID, outcomes []domain.Outcome) (free []uuid.UUID) {
	for _, lease := range released {
		if slices.ContainsFunc(outcomes, func(o domain.Outcome) bool { return o.Lease.ID == lease && l.has(o) }) {
			l.Leases = append(l.Leases, lease)
			continue
		}
		free = append(free, lease)
	}
	return free
}

// written returns the outcomes that were not left out.
func (l *left) written(outcomes []domain.Outcome) []domain.Outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), l.has)
}

// leaveOut leaves an outcome out that cannot be written, and sets it aside. Even if too many are set aside, it keeps no
// other from being written.
func (s *Claims) leaveOut(ctx context.Context, left *left, o domain.Outcome, err error) {
	left.Failing[o.RunID] = err
	s.aside.Put(ctx, aside.Item{Kind: aside.Outcome, ID: o.RunID, Job: o.Job.ID, Tenant: o.Job.Tenant}, err)
}

func runOf(o domain.Outcome) uuid.UUID { return o.RunID }

// forgetAside forgets that outcomes were set aside that are written now.
func (s *Claims) forgetAside(ctx context.Context, outcomes []domain.Outcome, left *left) {
	if len(s.aside.Of(aside.Outcome)) == 0 {
		return
	}
	written := left.written(outcomes)
	s.suspects.clear(written)
	s.aside.Done(ctx, aside.Outcome, pg.Column(written, runOf)...)
}
