package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/letters"
)

// slot makes one slot of an hourly job due and claims it, and it alone. The job's next slot is not due afterwards.
func (c claimer) slot(job uuid.UUID, hoursAgo int) domain.Batch {
	c.t.Helper()
	c.exec(`UPDATE punctual.schedules
		SET scheduled_for = date_trunc('hour', now()) - $2 * interval '1 h', next_run_at = now()
		WHERE job_id = $1`, job, hoursAgo)
	b := c.claim(1, false)
	c.exec(`UPDATE punctual.schedules
		SET scheduled_for = date_trunc('hour', now()) + interval '3 h',
			next_run_at = date_trunc('hour', now()) + interval '3 h'
		WHERE job_id = $1`, job)
	return b
}

func TestAPolicyHoldsFromTheNextSlotOnWhateverIsInFlight(t *testing.T) {
	t.Run("forbid", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", patient)
		first, second := c.one(c.slot(job.ID, 9)), c.one(c.slot(job.ID, 8))
		c.edit("job", forbid)
		if b := c.slot(job.ID, 7); len(b.Runs) != 0 {
			t.Error("a slot runs beside two runs of before")
		}
		var active *jobs.ActiveRunError
		if _, err := c.tryTrigger("job"); !errors.As(err, &active) {
			t.Errorf("a trigger beside them: error %v", err)
		}
		c.finish(succeeded(second))
		if b := c.slot(job.ID, 6); len(b.Runs) != 0 {
			t.Error("a slot runs beside the older run of before")
		}
		c.finish(succeeded(first))
		third := c.one(c.slot(job.ID, 5))
		if b := c.slot(job.ID, 4); len(b.Runs) != 0 {
			t.Error("a slot runs beside the one that came after")
		}
		c.finish(succeeded(third))
		c.one(c.slot(job.ID, 3))
		c.wantHistory(job.ID,
			"schedule succeeded", "schedule succeeded", "schedule skipped overlap x1", "schedule skipped overlap x1",
			"schedule succeeded", "schedule skipped overlap x1", "schedule running")
	})
	t.Run("a run between two attempts counts", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", patient)
		run := c.one(c.slot(job.ID, 9))
		c.finish(failed(run))
		c.edit("job", forbid)
		if b := c.slot(job.ID, 8); len(b.Runs) != 0 {
			t.Error("a slot runs beside a run that is to be retried")
		}
		again := c.again()
		if again.RunID != run.RunID {
			t.Error("the retry is not the run")
		}
		c.finish(succeeded(again))
		c.one(c.slot(job.ID, 7))
	})
	t.Run("so does one that its target works on", func(t *testing.T) {
		c := newClaimer(t)
		a := c.accepted("job", patient, overlapping(domain.PolicyAllow))
		c.edit("job", forbid)
		if b := c.slot(a.Job.ID, 8); len(b.Runs) != 0 {
			t.Error("a slot runs beside a run that its target works on")
		}
	})
	t.Run("a run that nobody has sent yet goes one at a time", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", never)
		for range 3 {
			c.trigger("job")
		}
		c.edit("job", forbid)
		for range 3 {
			a := c.one(c.claimReady(10))
			c.claimReady(10)
			c.finish(succeeded(a))
			c.exec(`UPDATE punctual.ready SET due_at = now()`)
		}
		c.wantHistory(job.ID, "manual succeeded", "manual succeeded", "manual succeeded")
	})
	t.Run("replace", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", patient)
		first, second := c.one(c.slot(job.ID, 9)), c.one(c.slot(job.ID, 8))
		c.edit("job", overlapping(domain.PolicyReplace))
		if b := c.slot(job.ID, 7); len(b.Runs) != 0 {
			t.Error("the slot does not wait until those that it replaces have ended")
		}
		c.wantCount(2, "runs are to be cancelled",
			`SELECT count(*) FROM punctual.cancels WHERE run_id IN ($1, $2)`, first.RunID, second.RunID)
	})
	t.Run("allow", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", patient, overlapping(domain.PolicyWait))
		first := c.one(c.slot(job.ID, 9))
		if b := c.slot(job.ID, 8); len(b.Runs) != 0 {
			t.Error("the second slot does not wait")
		}
		c.claimReady(10)
		c.edit("job", overlapping(domain.PolicyAllow))
		c.one(c.claimReady(10))
		c.finish(failed(first))
		c.exec(`UPDATE punctual.ready SET due_at = now()`)
		c.trigger("job")
		if b := c.claimReady(10); len(b.Runs) != 2 {
			t.Errorf("%d of a retry and a run by hand go out beside a third run", len(b.Runs))
		}
	})
	t.Run("allow, and forbid again", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", patient, forbid)
		c.one(c.slot(job.ID, 9))
		c.edit("job", overlapping(domain.PolicyAllow))
		c.one(c.slot(job.ID, 8))
		c.edit("job", forbid)
		if b := c.slot(job.ID, 7); len(b.Runs) != 0 {
			t.Error("a slot runs beside two runs of before")
		}
	})
}

func TestAJobThatMayOverlapAgainIsNotHeldUpInOperations(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", patient, forbid)
	dead := c.die("job", 3)
	c.one(c.slot(job.ID, 1))
	c.edit("job", overlapping(domain.PolicyAllow))
	c.backfill(letters.BackfillRequest{Job: "job", From: began.Add(-20 * time.Hour), To: began.Add(-5 * time.Hour)})
	c.nextBatch()
	if n := c.backfilled(job.ID); n < 15 {
		t.Errorf("%d of 15 slots are backfilled at once", n)
	}
	c.start(letters.BulkRequest{Kind: letters.OperationReplay})
	c.nextBatch()
	c.wantCount(3, "dead letters are replayed at once",
		`SELECT count(*) FROM punctual.runs WHERE replay_of = ANY($1)`, dead)
}

func TestTriggersInQuickSuccessionObeyThePolicy(t *testing.T) {
	for _, k := range []struct {
		policy domain.ConcurrencyPolicy
		want   []string
	}{
		{domain.PolicyAllow, []string{"succeeded", "succeeded", "succeeded", "succeeded"}},
		{domain.PolicyForbid, []string{"succeeded", "409", "409", "409"}},
		{domain.PolicyWait, []string{"succeeded", "succeeded", "409", "409"}},
		{domain.PolicyReplace, []string{"cancelled replaced", "cancelled replaced", "cancelled replaced", "succeeded"}},
	} {
		t.Run(string(k.policy), func(t *testing.T) {
			c := newClaimer(t)
			c.create("job", never, overlapping(k.policy))
			runs := make([]uuid.UUID, 4)
			for i := range runs {
				run, err := c.tryTrigger("job")
				if active := (*jobs.ActiveRunError)(nil); err != nil && !errors.As(err, &active) {
					t.Fatal(err)
				}
				runs[i] = run.ID
			}
			for {
				b := c.claimReady(10)
				if len(b.Runs) == 0 {
					break
				}
				if len(b.Runs) > 1 && k.policy != domain.PolicyAllow {
					t.Errorf("%d runs start side by side", len(b.Runs))
				}
				for _, a := range b.Runs {
					c.finish(succeeded(a))
				}
			}
			for i, id := range runs {
				got := "409"
				if id != uuid.Nil {
					run := c.run(id)
					got = string(run.Status)
					if run.Reason != nil {
						got += " " + string(*run.Reason)
					}
				}
				if got != k.want[i] {
					t.Errorf("trigger %d is %s, want %s", i+1, got, k.want[i])
				}
			}
			c.wantCount(0, "runs still wait", `SELECT count(*) FROM punctual.ready`)
		})
	}
}

// Every kind of edit settles the slots that are due.
func TestSlotsThatAnEditSettlesObeyThePolicy(t *testing.T) {
	for policy, want := range map[domain.ConcurrencyPolicy][]string{
		domain.PolicyAllow: {"schedule running", "schedule running", "schedule running", "schedule running"},
		domain.PolicyForbid: {
			"schedule running", "schedule skipped overlap x1", "schedule skipped overlap x1", "schedule skipped overlap x1",
		},
		domain.PolicyWait: {
			"schedule running", "schedule pending", "schedule skipped overlap x1", "schedule skipped overlap x1",
		},
		domain.PolicyReplace: {
			"schedule cancelled replaced", "schedule cancelled replaced", "schedule cancelled replaced", "schedule running",
		},
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := newClaimer(t)
			job := c.create("job", patient, overlapping(policy))
			c.exec(`UPDATE punctual.schedules
				SET scheduled_for = date_trunc('hour', now()) - interval '3 h',
					next_run_at = date_trunc('hour', now()) - interval '3 h'
				WHERE job_id = $1`, job.ID)
			c.edit("job", every(90*time.Minute))
			b := c.claimReady(10)
			c.wantHistory(job.ID, want...)
			for len(b.Runs) > 0 {
				for _, a := range b.Runs {
					c.finish(succeeded(a))
				}
				b = c.claimReady(10)
			}
			if n := c.ready(job.ID); n != 0 {
				t.Errorf("%d runs still wait", n)
			}
		})
	}
}

func TestARunThatHasExpiredWhileItWaitedBlocksNobody(t *testing.T) {
	for _, how := range []string{"a slot", "a trigger", "an edit"} {
		t.Run(how, func(t *testing.T) {
			c := newClaimer(t)
			job := c.create("job", patient, overlapping(domain.PolicyWait), expiring(100*time.Hour))
			active := c.one(c.slot(job.ID, 9))
			if b := c.slot(job.ID, 8); len(b.Runs) != 0 {
				t.Fatal("the second slot does not wait")
			}
			waiting := domain.SlotRunID(job.ID, time.Now().UTC().Truncate(time.Hour).Add(-8*time.Hour))
			c.exec(`UPDATE punctual.runs SET due_at = due_at - interval '100 h' WHERE id = $1`, waiting)
			switch how {
			case "a slot":
				c.slot(job.ID, 7)
			case "a trigger":
				c.trigger("job")
			case "an edit":
				c.exec(`UPDATE punctual.schedules
					SET scheduled_for = date_trunc('hour', now()), next_run_at = date_trunc('hour', now())
					WHERE job_id = $1`, job.ID)
				c.edit("job", every(90*time.Minute))
			}
			c.claimReady(10)
			run := c.run(waiting)
			if run.Status != domain.StatusSkipped || orEmpty(run.Reason) != domain.ReasonExpired || run.FinishedAt == nil {
				t.Errorf("the run that has expired is %s %s", run.Status, orEmpty(run.Reason))
			}
			c.finish(succeeded(active))
			if a := c.one(c.claimReady(10)); a.RunID == waiting {
				t.Error("the run that has expired started")
			}
			if n := c.ready(job.ID); n != 0 {
				t.Errorf("%d runs still wait", n)
			}
		})
	}
}

// A run that waits at a gate is looked at once, and then not before the gate is free.
func TestWaitingAtAGateCostsNothing(t *testing.T) {
	c := newClaimer(t)
	const n = 20
	running := make([]domain.Assignment, n)
	for i := range n {
		name := fmt.Sprintf("job-%d", i)
		c.create(name, never, overlapping(domain.PolicyWait))
		running[i] = c.begun(name)
		c.trigger(name)
	}
	c.claimReady(100)
	if due := c.count(`SELECT count(*) FROM punctual.ready WHERE due_at < now() + interval '1 min'`); due != 0 {
		t.Errorf("%d of %d waiting runs are looked at within a minute", due, n)
	}
	c.finish(succeeded(running[0]))
	if a := c.one(c.claimReady(100)); a.Job.Name != "job-0" {
		t.Errorf("a run of %s starts", a.Job.Name)
	}
}

// No gate names the replays of dead letters. They run one after the other all the same, and no claim looks at them in
// vain.
func TestRunsThatNoGateNamesComeOneAfterTheOther(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", never, forbid)
	for _, dead := range c.die("job", 4) {
		c.replay(dead)
	}
	ran := 0
	for {
		b := c.claimReady(10)
		if len(b.Runs) == 0 {
			break
		}
		ran++
		if due := c.count(`SELECT count(*) FROM punctual.ready WHERE due_at < now() + interval '1 min'`); due != 0 {
			t.Errorf("%d are looked at within a minute", due)
		}
		// The next replay is cancelled as it becomes due. The replay after it must not wait for another run to end.
		if ran == 2 {
			c.finish(succeeded(c.one(b)))
			next := value[uuid.UUID](c.crud, `SELECT run_id FROM punctual.ready WHERE due_at <= now()`)
			c.cancel(next)
			continue
		}
		c.finish(succeeded(c.one(b)))
	}
	if left := c.ready(job.ID); ran != 3 || left != 0 {
		t.Errorf("%d ran, %d are left", ran, left)
	}
}
