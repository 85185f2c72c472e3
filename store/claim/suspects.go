package claim

import (
	"sync"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/aside"
)

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
