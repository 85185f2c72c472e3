package scheduler

import (
	"sync/atomic"
	"time"
)

// dbClock estimates the database's clock between two readings: the instant it told, plus the time that has passed here
// since the answer came. An answer takes time to come, so the estimate is behind. It is never ahead by more than the
// two clocks drift apart. Of all fresh readings the one counts whose estimate is the latest, as its answer came the
// quickest. The date on this machine plays no part.
type dbClock struct{ last atomic.Pointer[reading] }

// fresh is for how long a reading counts: so long, the two clocks drift apart by less than a millisecond.
const fresh = 5 * time.Second

type reading struct {
	database time.Time
	here     time.Time // when the answer came, with a monotonic reading
}

// at returns the estimate for an instant here.
func (r *reading) at(here time.Time) time.Time {
	return r.database.Add(here.Sub(r.here))
}

// set takes an instant that the database has told, in an answer to what was asked at an instant here.
func (c *dbClock) set(asked, database time.Time) { c.take(asked, database, time.Now()) }

// take is set for an answer that came at an instant here. The instant was told between the question and the answer. So
// an estimate that lies further ahead than the whole exchange took is of a clock that was set back, or of another one.
func (c *dbClock) take(asked, database, answered time.Time) {
	if r := c.last.Load(); r != nil {
		ahead := r.at(answered).Sub(database)
		if ahead > 0 && ahead <= answered.Sub(asked) && answered.Sub(r.here) < fresh {
			return
		}
	}
	c.last.Store(&reading{database: database, here: answered})
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
	return r.at(time.Now())
}
