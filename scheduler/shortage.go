package scheduler

import (
	"math/rand/v2"
	"sync"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

const (
	// shortRetry is the shortest time after which a run is claimed again that was not sent for that reason.
	shortRetry = time.Second
	// tellShort is how often the log tells that something is lacking.
	tellShort = 10 * time.Minute
	// shortFor is how long a replica is said to lack something after it last did. While it lasts, runs come back each
	// second or two.
	shortFor = 10 * time.Second
)

// Shortages remembers what this replica lacked, such as file descriptors. That is not its targets' fault: the run goes
// back unsent, for any replica, and this one claims less for a while. Safe for concurrent use.
type Shortages struct {
	mu     sync.Mutex
	told   map[string]time.Time
	lacks  string
	lastAt time.Time
}

// Add notes that something is lacking.
func (s *Shortages) Add(lacks string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks, s.lastAt = lacks, time.Now()
}

// news reports whether it is time to log that something is lacking.
func (s *Shortages) news(lacks string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.told[lacks]) < tellShort {
		return false
	}
	if s.told == nil {
		s.told = map[string]time.Time{}
	}
	s.told[lacks] = time.Now()
	return true
}

// Lacks returns what the replica lacks now, in words; empty: nothing.
func (s *Shortages) Lacks() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.lastAt) > shortFor {
		return ""
	}
	return s.lacks
}

// fellShort gives a run back whose request was not sent because this replica lacks something. Local ports lack for one
// target only, so nothing less is claimed for the others.
func (s *Scheduler) fellShort(o *domain.Outcome, result wire.Result) {
	o.Verdict = domain.GiveBack
	o.RetryIn = shortRetry + time.Duration(rand.Int64N(int64(shortRetry))) //nolint:gosec // spreads load, guards nothing
	o.Error = "not sent: replica " + s.config.Host + " lacks " + result.Lacks
	s.metrics.short.WithLabelValues(result.Lacks).Inc()
	if result.Lacks != delivery.Ports {
		s.admission.Slots.Cut()
	}
	s.config.Shortages.Add(result.Lacks)
	if s.config.Shortages.news(result.Lacks) {
		s.log.Warn("this replica lacks what requests need: runs go back unsent, and it claims less until they can be sent",
			"lacks", result.Lacks, "error", result.Error, "run", o.RunID)
	}
}
