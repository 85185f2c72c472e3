package jobs_test

import (
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
)

// What a pause swallowed of events and chains are runs that were skipped, and no slots.
func TestAJobThatSkippedAnEventWhilePausedIsResumed(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("subscriber", On("order.created", ""))
	c.Create("chained", Never)
	c.Create("upstream", Never, Then("chained"))
	c.Pause("subscriber")
	c.Pause("chained")
	c.Emit("order.created", `{"order":1}`)
	c.FanOut()
	c.Finish(Succeeded(c.Begun("upstream")))
	c.WantCount(1, "runs of the event are skipped",
		`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND reason = 'paused' AND trigger = 'event'`, job.ID)
	c.WantCount(1, "runs of the chain are skipped",
		`SELECT count(*) FROM punctual.runs WHERE reason = 'paused' AND trigger = 'chain'`)
	// A day is looked at if it has a run of any job that was made later than it was due.
	c.SkippedAt(c.Create("other").ID, c.Clock().Add(-time.Hour), c.Clock().Add(-time.Hour), 1)
	for _, name := range []string{"subscriber", "chained"} {
		if got := c.Resumed(name); got.State != domain.JobActive {
			t.Errorf("%s is %s", name, got.State)
		}
		if got := swallowed(c.Fixture, name); got != "nothing" {
			t.Errorf("the pause of %s swallowed the slots %s", name, got)
		}
	}
	c.Emit("order.created", `{"order":2}`)
	c.FanOut()
	c.WantCount(1, "runs wait", `SELECT count(*) FROM punctual.ready WHERE job_id = $1`, job.ID)
}
