package claim_test

import (
	"fmt"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// A dated run was accepted long before its claim, so under forbid and wait it waits for its turn, however often another
// run comes first. (A change that came while a run worked was never sent.)
func TestDatedRunsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	for _, policy := range []jobspec.ConcurrencyPolicy{jobspec.PolicyForbid, jobspec.PolicyWait} {
		t.Run(string(policy), func(t *testing.T) {
			c := NewReplica(t)
			job := c.Create("cart", Rarely, Overlapping(policy))
			works := c.Begun("cart")
			for _, key := range []string{"a", "b", "c"} {
				c.Date("cart", jobs.DateRequest{Key: key, Delay: time.Hour})
			}
			c.Exec(`UPDATE punctual.dated SET due_at = now() - interval '2 ms'`)
			free := c.Stranger(`exclusive WHERE job_id = $1`, job.ID)
			c.ClaimReady(10) // it cannot look at the gate
			free()
			c.Exec(`UPDATE punctual.ready SET due_at = now()`)
			for range 3 {
				if b := c.ClaimReady(10); len(b.Runs) > 0 {
					t.Errorf("%d begin next to another run", len(b.Runs))
				}
				c.Finish(Succeeded(works))
				works = c.One(c.ClaimReady(10))
			}
			c.Finish(Succeeded(works))
			c.WantHistory(job.ID, "manual succeeded", "manual succeeded", "manual succeeded", "manual succeeded")
		})
	}
}

// Work that somebody has asked for and that other runs of the job keep from running is told of and counted. Slots are
// no such work. (Of twelve runs of events nine were skipped, and no message said so.)
func TestDroppedWorkIsTold(t *testing.T) {
	t.Parallel()
	told := Notify(Hook, jobspec.EventDropped)
	for name, of := range map[string]struct {
		policy jobspec.ConcurrencyPolicy
		option Option
		reason string
	}{
		"forbid": {jobspec.PolicyForbid, func(*jobspec.Definition) {}, "overlap"},
		"queue":  {jobspec.PolicyQueue, func(d *jobspec.Definition) { d.MaxPendingRuns = 1 }, "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			c.Create("job", On("paid", ""), Overlapping(of.policy), of.option, told)
			for range 4 {
				c.Emit("paid", `{}`)
			}
			c.FanOut()
			b := c.ClaimReady(10)
			want := map[string]int{"overlap": 3, "limit": 2}[of.reason]
			if b.Dropped != want {
				t.Errorf("%d runs are counted as dropped, want %d", b.Dropped, want)
			}
			c.WantCount(want, "notices tell of "+of.reason,
				`SELECT count(*) FROM punctual.notices WHERE event = 'dropped' AND reason = $1`, of.reason)
			c.Tell()
			c.WantHeard(fmt.Sprintf("dropped %d", want))
		})
	}
	t.Run("slots", func(t *testing.T) {
		c := NewReplica(t)
		job, at := c.DueNow("job", Forbid, told)
		c.One(c.Claim(10, false))
		c.SetNext(job.ID, at.Add(-time.Second))
		if b := c.Claim(10, false); b.Dropped != 0 {
			t.Error("a slot counts as dropped")
		}
		c.WantCount(0, "notices", `SELECT count(*) FROM punctual.notices`)
	})
}
