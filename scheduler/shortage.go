package scheduler

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

const (
	// cutEvery is how often this replica claims less, at most, because it lacks something. For so long it claims nothing,
	// and requests in flight come back.
	cutEvery = time.Second
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
		s.slots.cut()
	}
	s.config.Shortages.Add(result.Lacks)
	if s.config.Shortages.news(result.Lacks) {
		s.log.Warn("this replica lacks what requests need: runs go back unsent, and it claims less until they can be sent",
			"lacks", result.Lacks, "error", result.Error, "run", o.RunID)
	}
}

// cut stops claims for a moment. Afterwards the replica may have three quarters of what it has in flight now.
func (w *workerSlots) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.cutAt) >= cutEvery {
		w.most, w.cutAt = max(1, w.busy()*3/4), now
	}
}

// grow lets the replica have more in flight again, unless something has been lacking since the last call. It is called
// once a second, so the most in flight doubles in 9 s.
func (w *workerSlots) grow(context.Context) {
	w.mu.Lock()
	if w.most > 0 && time.Since(w.cutAt) >= cutEvery {
		if w.most += 1 + w.most/12; w.most >= min(w.total, cmp.Or(w.ceiling, w.total)) {
			w.most = 0
		}
	}
	w.mu.Unlock()
	w.wake()
}

// spare is how many more runs the replica may have in flight, whatever queues have slots. The lock must be held.
func (w *workerSlots) spare() int {
	if w.most > 0 && time.Since(w.cutAt) < cutEvery {
		return 0
	}
	return max(0, cmp.Or(w.most, w.ceiling, math.MaxInt)-w.busy())
}

// busy counts the slots of all queues that are taken, promised or lent. The lock must be held.
func (w *workerSlots) busy() (n int) {
	for i := range w.queues {
		q := &w.queues[i]
		n += q.lent
		for of := range domain.WorkKinds {
			n += q.inFlight[of] + q.promised[of]
		}
	}
	return n
}
