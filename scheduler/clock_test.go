package scheduler

import (
	"testing"
	"time"
)

// The estimate of the database's clock is never ahead of it, and it is behind by as long as the quickest answer of the
// last seconds took. (It was behind by as long as the last one took: a busy machine wrote that runs had ended before
// their targets had answered.)
func TestTheQuickestAnswerTellsTheDatabasesClock(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	began := time.Now()
	type look struct {
		asked, told, came time.Duration // here, since the test began
		ahead             time.Duration // of the database's clock, before this machine's
		behind            time.Duration // of the estimate, when the answer has come
	}
	for name, looks := range map[string][]look{
		"a quick answer": {{1000 * ms, 1001 * ms, 1002 * ms, 0, 1 * ms}},
		"a slow answer after a quick one": {
			{1000 * ms, 1001 * ms, 1002 * ms, 0, 1 * ms}, {1500 * ms, 1500 * ms, 2002 * ms, 0, 1 * ms},
		},
		"a quick answer after a slow one": {
			{1000 * ms, 1001 * ms, 1301 * ms, 0, 300 * ms}, {2000 * ms, 2001 * ms, 2002 * ms, 0, 1 * ms},
		},
		"a clock that is set back": {
			{1000 * ms, 1001 * ms, 1002 * ms, 0, 1 * ms}, {2000 * ms, 2001 * ms, 2005 * ms, -time.Minute, 4 * ms},
		},
		"a clock that is set back during a slow exchange": {
			{1000 * ms, 1001 * ms, 1002 * ms, 0, 1 * ms}, {2000 * ms, 2300 * ms, 2400 * ms, -time.Minute, 100 * ms},
		},
		"a clock that is set forward": {
			{1000 * ms, 1001 * ms, 1002 * ms, 0, 1 * ms}, {2000 * ms, 2001 * ms, 2005 * ms, time.Minute, 4 * ms},
		},
		"a slow answer after a quick one of long ago": {
			{1000 * ms, 1001 * ms, 1002 * ms, 0, 1 * ms}, {11_000 * ms, 11_001 * ms, 11_501 * ms, 0, 500 * ms},
		},
	} {
		var c dbClock
		for i, l := range looks {
			came := began.Add(l.came)
			c.take(began.Add(l.asked), began.Add(l.told+l.ahead), came)
			if behind := came.Add(l.ahead).Sub(c.last.Load().at(came)); behind != l.behind {
				t.Errorf("%s: after look %d the estimate is %s behind, want %s", name, i+1, behind, l.behind)
			}
		}
	}
}
