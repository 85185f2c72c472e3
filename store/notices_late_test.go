package store

import (
	"testing"
	"time"

	"punctual/scheduler/domain"
)

// The last of a job's ended attempts decides whether it is well, whenever its outcome is written. An outcome waits
// while another transaction has locked a row.
func TestAnOutcomeThatIsWrittenLateDoesNotTurnAJob(t *testing.T) {
	begin := func(t *testing.T) (c claimer, first, second domain.Assignment) {
		c = newClaimer(t)
		c.create("job", never, notify(hook, domain.EventFailing, domain.EventRecovered))
		return c, c.begun("job"), c.begun("job")
	}
	wants := func(c claimer, failing int, told ...domain.Event) {
		c.t.Helper()
		c.wantCount(failing, "failing jobs", `SELECT count(failing_since) FROM punctual.notified`)
		for _, e := range []domain.Event{domain.EventFailing, domain.EventRecovered} {
			n := 0
			for _, other := range told {
				if other == e {
					n++
				}
			}
			c.wantCount(n, "notices of "+string(e), `SELECT count(*) FROM punctual.notices WHERE event = $1`, e)
		}
	}
	endedAt := func(o domain.Outcome, at time.Time) domain.Outcome { o.FinishedAt = at; return o }
	t.Run("a failure, after a later success", func(t *testing.T) {
		c, first, second := begin(t)
		c.finish(endedAt(succeeded(second), c.now()))
		c.finish(endedAt(failed(first), c.now().Add(-5*time.Second)))
		wants(c, 0)
	})
	t.Run("a failure, after an earlier success", func(t *testing.T) {
		c, first, second := begin(t)
		c.finish(endedAt(succeeded(second), c.now().Add(-10*time.Second)))
		c.finish(endedAt(failed(first), c.now().Add(-5*time.Second)))
		wants(c, 1, domain.EventFailing)
	})
	t.Run("a success, after a later failure", func(t *testing.T) {
		c, first, second := begin(t)
		c.finish(endedAt(failed(second), c.now()))
		c.finish(endedAt(succeeded(first), c.now().Add(-5*time.Second)))
		wants(c, 1, domain.EventFailing)
	})
	t.Run("a success, after an earlier failure", func(t *testing.T) {
		c, first, second := begin(t)
		c.finish(endedAt(failed(second), c.now().Add(-5*time.Second)))
		c.finish(endedAt(succeeded(first), c.now()))
		wants(c, 0, domain.EventFailing, domain.EventRecovered)
	})
}
