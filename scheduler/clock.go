package scheduler

import (
	"sync/atomic"
	"time"
)

// dbClock estimates the database's clock between two looks at it: the instant it last told, plus the time
// that has passed here since the answer came. So it never runs ahead of the database by more than the
// two clocks drift apart within a second, and this machine's own date plays no part.
type dbClock struct{ last atomic.Pointer[reading] }

type reading struct {
	database time.Time
	here     time.Time // with a monotonic reading
}

// set takes an instant the database has just told.
func (c *dbClock) set(database time.Time) {
	c.last.Store(&reading{database: database, here: time.Now()})
}

// now returns the estimate; the zero time before the first set.
func (c *dbClock) now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Time{}
	}
	return r.database.Add(time.Since(r.here))
}
