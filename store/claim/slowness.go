package claim

import (
	"strconv"
	"sync/atomic"
	"time"

	"punctual/store/pg"
)

// slowness is how long one statement of a claim or a finish may take. Statements take milliseconds, so one that takes
// seconds hangs at one of its rows, and all others of the batch with it: then the batch is done in parts. If no part of
// it is done in time either, the machine is slow. Then statements get twice the time, until many batches in a row have
// gone well. Safe for concurrent use.
type slowness struct {
	doublings atomic.Int32
	well      atomic.Int32 // batches in a row that went well
}

const (
	leastStatement     = 2 * time.Second
	mostStatementTwice = 3 // 16 s: longer than any claim or finish is waited for
)

// bounded sets the timeout for the statements of a transaction: $1, in milliseconds.
const bounded = pg.ByIndex + `, set_config('statement_timeout', $1, true)`

func (s *slowness) setting() string {
	return strconv.FormatInt((leastStatement << s.doublings.Load()).Milliseconds(), 10)
}

// found notes that no part of a batch was done in time.
func (s *slowness) found() {
	s.well.Store(0)
	if n := s.doublings.Load(); n < mostStatementTwice {
		s.doublings.CompareAndSwap(n, n+1)
	}
}

// wentWell notes that a batch was done at once.
func (s *slowness) wentWell() {
	if n := s.doublings.Load(); n > 0 && s.well.Add(1) >= manyWell {
		s.well.Store(0)
		s.doublings.CompareAndSwap(n, n-1)
	}
}
