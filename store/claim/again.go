package claim

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A run comes again in soonest, or twice that, if another transaction has locked its job's gate: claims and finishes
// hold a gate for milliseconds. Each time that it is locked still, that takes twice as long, and gateRetry at most.
const (
	soonest   = 10 * time.Millisecond
	mostLater = 1000 // jobs that are remembered
)

// later says in how long the runs of jobs come again whose gates were locked, job by job.
type later struct {
	mu sync.Mutex
	of map[uuid.UUID]time.Duration
}

// learn takes which gates are locked.
func (l *later) learn(gates map[uuid.UUID]Gate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil || len(l.of) > mostLater {
		l.of = map[uuid.UUID]time.Duration{}
	}
	for job, g := range gates {
		if !g.busy {
			delete(l.of, job)
			continue
		}
		l.of[job] = min(max(2*l.of[job], soonest), gateRetry/2)
	}
}

// in returns in how long a run of a job comes again. It varies, so that two replicas do not march in step.
func (l *later) in(job uuid.UUID) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := max(l.of[job], soonest)
	return d + rand.N(d) //nolint:gosec // no secret
}
