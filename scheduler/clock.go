package scheduler

import (
	"sync/atomic"
	"time"
)

// dbClock estimates the database's clock between two readings: the last instant it told, plus the time that has
// passed here since the answer came. So the estimate runs ahead of the database at most by as much as the two clocks
// drift apart within a second. The date on this machine plays no part.
type dbClock struct{ last atomic.Pointer[reading] }

type reading struct {
	database time.Time
	here     time.Time // with a monotonic reading
}

// set takes an instant that the database has just told.
func (c *dbClock) set(database time.Time) {
	c.last.Store(&reading{database: database, here: time.Now()})
}

// offset is how far the database's clock was ahead of the date on this machine when it was last read; 0 before that.
func (c *dbClock) offset() time.Duration {
	r := c.last.Load()
	if r == nil {
		return 0
	}
	return r.database.Sub(r.here.Round(0)) // without the monotonic reading
}

// now returns the estimate; the zero time before the first set.
func (c *dbClock) now() time.Time {
	r := c.last.Load()
	if r == nil {
		return time.Time{}
	}
	return r.database.Add(time.Since(r.here))
}
