package scheduler

import (
	"slices"
	"time"

	"punctual/scheduler/domain"
)

// An outcome that cannot be written is tried again after soonestStuck, then after twice as long each time, up to
// longestStuck.
const (
	soonestStuck = 5 * time.Second
	longestStuck = time.Minute
	// mostStuck bounds the outcomes that are kept. The oldest beyond it are left to the recovery.
	mostStuck = 200
)

// stuck holds outcomes that cannot be written although everything else can, such as one whose row is damaged. The store
// has set them aside, and tells of them. They are tried again one by one, so that they hold up nothing for long. What
// is not written when the replica stops is left to the recovery. Owned by the finisher.
type stuck struct {
	outcomes []domain.Outcome
	pause    time.Duration
	timer    <-chan time.Time // delivers when the first one is to be tried again; nil while there are none
}

// put adds an outcome that could not be written.
func (s *stuck) put(o domain.Outcome) { s.outcomes = append(s.outcomes, o) }

// over returns those beyond mostStuck, which are kept no longer.
func (s *stuck) over() []domain.Outcome {
	n := max(len(s.outcomes)-mostStuck, 0)
	over := slices.Clone(s.outcomes[:n])
	s.outcomes = slices.Delete(s.outcomes, 0, n)
	return over
}

// due delivers when an outcome is to be tried again.
func (s *stuck) due() <-chan time.Time {
	switch {
	case len(s.outcomes) == 0:
		s.timer, s.pause = nil, 0
	case s.timer == nil:
		s.pause = min(max(2*s.pause, soonestStuck), longestStuck)
		s.timer = time.After(s.pause)
	}
	return s.timer
}

// take returns the outcome that has waited longest.
func (s *stuck) take() []domain.Outcome {
	first := s.outcomes[0]
	s.outcomes, s.timer = s.outcomes[1:], nil
	return []domain.Outcome{first}
}

// written notes that one was written after all, so that the others are tried at once.
func (s *stuck) written() { s.pause, s.timer = 0, time.After(0) }

// leaveStuck tells of outcomes that this replica leaves to the recovery.
func (f *finisher) leaveStuck(outcomes []domain.Outcome) {
	if n := len(outcomes); n > 0 {
		f.s.log.Error("outcomes could not be written; their runs will be recovered",
			"count", n, "first", outcomes[0].RunID)
	}
}
