package letters

import (
	"sync/atomic"
	"time"
)

const (
	// firstBatch is how many jobs the first batch of a replica changes, and mostBatch how many a batch changes at most.
	firstBatch, mostBatch = 25, 100
	// quickBatch and slowBatch say how long a batch may take before the next one is as large or smaller. Callers give up
	// on a locked job after 3 s.
	quickBatch, slowBatch = 250 * time.Millisecond, 750 * time.Millisecond
)

// pace is how many jobs this replica's next batch changes. A batch locks its jobs until it is committed, so batches
// get smaller while the database is slow. Safe for concurrent use.
type pace struct{ size atomic.Int32 }

func (p *pace) next() int {
	p.size.CompareAndSwap(0, firstBatch)
	return int(p.size.Load())
}

// note learns from a batch of n jobs that held them for a time.
func (p *pace) note(n int, held time.Duration) {
	switch {
	case held > slowBatch:
		p.size.Store(int32(max(n/2, 1)))
	case held < quickBatch && n >= p.next():
		p.size.Store(int32(min(2*n, mostBatch)))
	}
}
