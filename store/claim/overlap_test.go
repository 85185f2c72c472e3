package claim_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/letters"
)

// slot makes one slot of an hourly job due and claims it, and it alone. The job's next slot is not due afterwards.
func slot(c Replica, job uuid.UUID, hoursAgo int) domain.Batch {
	c.T.Helper()
	c.Exec(`UPDATE punctual.schedules
		SET scheduled_for = date_trunc('hour', now()) - $2 * interval '1 h', next_run_at = now()
		WHERE job_id = $1`, job, hoursAgo)
	b := c.Claim(1, false)
	c.Exec(`UPDATE punctual.schedules
		SET scheduled_for = date_trunc('hour', now()) + interval '3 h',
			next_run_at = date_trunc('hour', now()) + interval '3 h'
		WHERE job_id = $1`, job)
	return b
}

func TestAJobThatMayOverlapAgainIsNotHeldUpInOperations(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", patient, Forbid)
	dead := c.Die("job", 3)
	c.One(slot(c, job.ID, 1))
	c.Edit("job", Overlapping(jobspec.PolicyAllow))
	c.Backfill(letters.BackfillRequest{Job: "job", From: Began.Add(-20 * time.Hour), To: Began.Add(-5 * time.Hour)})
	c.NextBatch()
	if n := c.Backfilled(job.ID); n < 15 {
		t.Errorf("%d of 15 slots are backfilled at once", n)
	}
	c.Start(letters.BulkRequest{Kind: letters.OperationReplay})
	c.NextBatch()
	c.WantCount(3, "dead letters are replayed at once",
		`SELECT count(*) FROM punctual.runs WHERE replay_of = ANY($1)`, dead)
}

func TestTriggersInQuickSuccessionObeyThePolicy(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		policy jobspec.ConcurrencyPolicy
		want   []string
	}{
		{jobspec.PolicyAllow, []string{"succeeded", "succeeded", "succeeded", "succeeded"}},
		{jobspec.PolicyForbid, []string{"succeeded", "409", "409", "409"}},
		{jobspec.PolicyWait, []string{"succeeded", "succeeded", "409", "409"}},
		{jobspec.PolicyReplace, []string{"cancelled replaced", "cancelled replaced", "cancelled replaced", "succeeded"}},
	} {
		t.Run(string(k.policy), func(t *testing.T) {
			c := NewReplica(t)
			c.Create("job", Never, Overlapping(k.policy))
			runs := make([]uuid.UUID, 4)
			for i := range runs {
				run, err := c.TryTrigger("job")
				if active := (*jobs.ActiveRunError)(nil); err != nil && !errors.As(err, &active) {
					t.Fatal(err)
				}
				runs[i] = run.ID
			}
			for {
				b := c.ClaimReady(10)
				if len(b.Runs) == 0 {
					break
				}
				if len(b.Runs) > 1 && k.policy != jobspec.PolicyAllow {
					t.Errorf("%d runs start side by side", len(b.Runs))
				}
				for _, a := range b.Runs {
					c.Finish(Succeeded(a))
				}
			}
			for i, id := range runs {
				got := "409"
				if id != uuid.Nil {
					run := c.Run(id)
					got = string(run.Status)
					if run.Reason != nil {
						got += " " + string(*run.Reason)
					}
				}
				if got != k.want[i] {
					t.Errorf("trigger %d is %s, want %s", i+1, got, k.want[i])
				}
			}
			c.WantCount(0, "runs still wait", `SELECT count(*) FROM punctual.ready`)
		})
	}
}

// Every kind of edit settles the slots that are due.
func TestSlotsThatAnEditSettlesObeyThePolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[jobspec.ConcurrencyPolicy][]string{
		jobspec.PolicyAllow: {"schedule running", "schedule running", "schedule running", "schedule running"},
		jobspec.PolicyForbid: {
			"schedule running", "schedule skipped overlap x1", "schedule skipped overlap x1", "schedule skipped overlap x1",
		},
		jobspec.PolicyWait: {
			"schedule running", "schedule pending", "schedule skipped overlap x1", "schedule skipped overlap x1",
		},
		jobspec.PolicyReplace: {
			"schedule cancelled replaced", "schedule cancelled replaced", "schedule cancelled replaced", "schedule running",
		},
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := NewReplica(t)
			job := c.Create("job", patient, Overlapping(policy))
			c.Exec(`UPDATE punctual.schedules
				SET scheduled_for = date_trunc('hour', now()) - interval '3 h',
					next_run_at = date_trunc('hour', now()) - interval '3 h'
				WHERE job_id = $1`, job.ID)
			c.Edit("job", Every(90*time.Minute))
			b := c.ClaimReady(10)
			c.WantHistory(job.ID, want...)
			for len(b.Runs) > 0 {
				for _, a := range b.Runs {
					c.Finish(Succeeded(a))
				}
				b = c.ClaimReady(10)
			}
			if n := c.Ready(job.ID); n != 0 {
				t.Errorf("%d runs still wait", n)
			}
		})
	}
}

func TestARunThatHasExpiredWhileItWaitedBlocksNobody(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", patient, Overlapping(jobspec.PolicyWait), Expiring(100*time.Hour))
	active := c.One(slot(c, job.ID, 9))
	if b := slot(c, job.ID, 8); len(b.Runs) != 0 {
		t.Fatal("the second slot does not wait")
	}
	waiting := domain.SlotRunID(job.ID, time.Now().UTC().Truncate(time.Hour).Add(-8*time.Hour))
	c.Exec(`UPDATE punctual.runs SET due_at = due_at - interval '100 h' WHERE id = $1`, waiting)
	slot(c, job.ID, 7)
	run := c.Run(waiting)
	if run.Status != domain.StatusSkipped || OrEmpty(run.Reason) != domain.ReasonExpired || run.FinishedAt == nil {
		t.Errorf("the run that has expired is %s %s", run.Status, OrEmpty(run.Reason))
	}
	c.Finish(Succeeded(active))
	if a := c.One(c.ClaimReady(10)); a.RunID == waiting {
		t.Error("the run that has expired started")
	}
	if n := c.Ready(job.ID); n != 0 {
		t.Errorf("%d runs still wait", n)
	}
}

// A run that waits at a gate is looked at once, and then not before the gate is free.
func TestWaitingAtAGateCostsNothing(t *testing.T) {
	c := NewReplica(t)
	const n = 20
	running := make([]domain.Assignment, n)
	for i := range n {
		name := fmt.Sprintf("job-%d", i)
		c.Create(name, Never, Overlapping(jobspec.PolicyWait))
		running[i] = c.Begun(name)
		c.Trigger(name)
	}
	c.ClaimReady(100)
	if due := c.Count(`SELECT count(*) FROM punctual.ready
				WHERE waits = 'turn' AND due_at < now() + interval '1 min'`); due != 0 {
		t.Errorf("%d of %d waiting runs are looked at within a minute", due, n)
	}
	c.Finish(Succeeded(running[0]))
	if a := c.One(c.ClaimReady(100)); a.Job.Name != "job-0" {
		t.Errorf("a run of %s starts", a.Job.Name)
	}
}
