package history_test

import (
	"testing"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
)

// The alarm that matters most: two runs at once of a job whose runs must not overlap.
func TestJobsWithTwoRunsAreCounted(t *testing.T) {
	c := NewReplica(t)
	is := func(when string, want int) {
		t.Helper()
		n, err := c.History.CountTogether(t.Context())
		if err != nil || n != want {
			t.Errorf("%s: %d jobs have two runs at once, want %d (%v)", when, n, want, err)
		}
	}
	is("nothing runs", 0)
	c.Create("free", Never)
	c.Begun("free")
	c.Begun("free")
	is("a job may overlap itself", 0)
	c.Edit("free", Forbid)
	is("it may not from now on, and its runs are in flight", 0)
	c.Create("flow", Never, Forbid, Steps("a", "b"))
	c.StartWorkflow("flow", "")
	c.ClaimSteps()
	is("two steps of a workflow run", 0)
	c.Create("replaced", Never, Replacing)
	first := c.Begun("replaced")
	c.Trigger("replaced")
	c.ClaimReady(10)
	is("a run waits for the one that it replaces", 0)
	c.FinishAndRelease(Cancelled(first))
	c.One(c.ClaimReady(10))
	is("it has replaced it", 0)

	c.Create("forbids", Never, Forbid)
	old := c.Begun("forbids")
	c.Exec(`UPDATE punctual.exclusive SET active_run = NULL WHERE job_id = $1`, old.Job.ID)
	is("the gate is free, and its run is open", 0)
	c.Begun("forbids")
	is("another has begun", 1)
	c.Create("works", Never, ByCallback, Overlapping(jobspec.PolicyWait))
	a := c.Begun("works")
	c.Accept(a)
	c.Exec(`UPDATE punctual.exclusive SET active_run = NULL WHERE job_id = $1`, a.Job.ID)
	c.Begun("works")
	is("another has begun next to one that its target works on", 2)
	c.FinishAndRelease(Succeeded(old))
	is("one of two has ended", 1)
}
