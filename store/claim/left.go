package claim

import (
	"context"
	"slices"
	"sync"

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

// leaveOut leaves outcomes out that cannot be written, and sets them aside. Even if too many are set aside, they keep
// no other from being written. From then on their jobs are suspects.
func (s *Claims) leaveOut(ctx context.Context, left *left, failed []aside.Failed[domain.Outcome]) {
	for _, f := range failed {
		o := f.Item
		left.Failing[o.RunID] = f.Err
		s.aside.Put(ctx, aside.Item{Kind: aside.Outcome, ID: o.RunID, Job: o.Job.ID, Tenant: o.Job.Tenant}, f.Err)
		s.suspects.add(o.Job.ID, f.Err)
	}
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

// suspects are jobs of which an outcome could not be written, each with the reason. Most likely the next ones cannot be
// written either, so they are set aside before they hold up others: each is then tried by itself. Safe for concurrent
// use.
type suspects struct {
	mu   sync.Mutex
	jobs map[uuid.UUID]error
}

// among splits outcomes into those of suspects, with the reasons, and others. One alone is tried.
func (s *suspects) among(outcomes []domain.Outcome) (suspect []aside.Failed[domain.Outcome], others []domain.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 || len(outcomes) == 1 {
		return nil, outcomes
	}
	for _, o := range outcomes {
		if why := s.jobs[o.Job.ID]; why != nil {
			suspect = append(suspect, aside.Failed[domain.Outcome]{Item: o, Err: why})
		} else {
			others = append(others, o)
		}
	}
	return suspect, others
}

func (s *suspects) add(job uuid.UUID, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs == nil {
		s.jobs = map[uuid.UUID]error{}
	}
	s.jobs[job] = why
}

// clear clears the jobs of outcomes that were written.
func (s *suspects) clear(written []domain.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) == 0 {
		return
	}
	for _, o := range written {
		delete(s.jobs, o.Job.ID)
	}
}
