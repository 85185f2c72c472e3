package history_test

import (
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// A skip may stand for what no schedule made. It must not be compared with slots.
func TestVerifyExplainsSkipsThatStandForNoSlots(t *testing.T) {
	t.Parallel()
	dated := func(c Replica) {
		c.Date("j", jobs.DateRequest{Key: "a", Delay: time.Hour})
		c.Date("j", jobs.DateRequest{Key: "b", Delay: 2 * time.Hour})
		c.Exec(`UPDATE punctual.dated SET due_at = due_at - interval '3 hours',
			run_id = punctual.run_id_at(due_at - interval '3 hours')`)
	}
	for _, test := range []struct {
		name string
		job  Option
		pass func(c Replica)
	}{
		{"a job without slots is deleted while dated runs of it are pending", Never, func(c Replica) {
			dated(c)
			c.DeleteJob("j")
			c.FitDated()
		}},
		{"a job with slots is deleted while dated runs of it are pending", HalfPast, func(c Replica) {
			dated(c)
			c.DeleteJob("j")
			c.FitDated()
		}},
		{"dated runs of a job that skips what is late are late", Missed(jobspec.MissedSkip), func(c Replica) {
			dated(c)
			c.ClaimReady(10)
		}},
		{"an event comes while its job is paused", On("e", ""), func(c Replica) {
			c.Pause("j")
			c.Emit("e", `{}`)
			c.FanOut()
		}},
		{"a run ends whose job triggers one that is paused", Never, func(c Replica) {
			c.Create("up", Never, Then("j"))
			c.Pause("j")
			c.FinishAndRelease(Succeeded(c.Begun("up")))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewReplica(t)
			c.PartitionsBack(2)
			c.Create("j", test.job)
			test.pass(c)
			c.Until("a skip", `SELECT count(*) > 0 FROM punctual.runs WHERE status = 'skipped'`)
			c.Clean()
		})
	}
}
