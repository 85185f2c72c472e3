package notices_test

import (
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// The last of a job's ended attempts decides whether it is well, whenever its outcome is written. An outcome waits
// while another transaction has locked a row.
func TestAnOutcomeThatIsWrittenLateDoesNotTurnAJob(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (c Replica, first, second domain.Assignment) {
		c = NewReplica(t)
		c.Create("job", Never, Notify(Hook, jobspec.EventFailing, jobspec.EventRecovered))
		return c, c.Begun("job"), c.Begun("job")
	}
	wants := func(c Replica, failing int, told ...jobspec.Event) {
		c.T.Helper()
		c.WantCount(failing, "failing jobs", `SELECT count(failing_since) FROM punctual.notified`)
		for _, e := range []jobspec.Event{jobspec.EventFailing, jobspec.EventRecovered} {
			n := 0
			for _, other := range told {
				if other == e {
					n++
				}
			}
			c.WantCount(n, "notices of "+string(e), `SELECT count(*) FROM punctual.notices WHERE event = $1`, e)
		}
	}
	endedAt := func(o domain.Outcome, at time.Time) domain.Outcome {
		o.StartedAt, o.FinishedAt = at.Add(-time.Second), at
		return o
	}
	t.Run("a failure, after a later success", func(t *testing.T) {
		c, first, second := begin(t)
		c.Finish(endedAt(Succeeded(second), c.Clock()))
		c.Finish(endedAt(Failed(first), c.Clock().Add(-5*time.Second)))
		wants(c, 0)
	})
	t.Run("a failure, after an earlier success", func(t *testing.T) {
		c, first, second := begin(t)
		c.Finish(endedAt(Succeeded(second), c.Clock().Add(-10*time.Second)))
		c.Finish(endedAt(Failed(first), c.Clock().Add(-5*time.Second)))
		wants(c, 1, jobspec.EventFailing)
	})
	t.Run("a success, after a later failure", func(t *testing.T) {
		c, first, second := begin(t)
		c.Finish(endedAt(Failed(second), c.Clock()))
		c.Finish(endedAt(Succeeded(first), c.Clock().Add(-5*time.Second)))
		wants(c, 1, jobspec.EventFailing)
	})
	t.Run("a success, after an earlier failure", func(t *testing.T) {
		c, first, second := begin(t)
		c.Finish(endedAt(Failed(second), c.Clock().Add(-5*time.Second)))
		c.Finish(endedAt(Succeeded(first), c.Clock()))
		wants(c, 0, jobspec.EventFailing, jobspec.EventRecovered)
	})
}
