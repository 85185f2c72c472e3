package claim_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// replace claims, without a worker slot, the slots and the ready runs that replace the runs in flight of these jobs.
func replace(c Replica, jobs ...uuid.UUID) domain.Batch {
	c.T.Helper()
	claim := scheduler.Claim{Replica: c.ReplicaID, Work: domain.WorkDue, Replacing: jobs}
	slots, err := c.Claims.ClaimDue(c.T.Context(), claim)
	Must(c.T, err)
	claim.Work = domain.WorkReady
	runs, err := c.Claims.ClaimReady(c.T.Context(), claim)
	Must(c.T, err)
	return domain.Batch{Runs: append(slots.Runs, runs.Runs...), Settled: slots.Settled + runs.Settled}
}

func TestADueSlotReplacesTheRunInFlightThoughNoWorkerSlotIsFree(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Rarely, Replacing)
	other := c.Create("other", Rarely, Replacing)
	for _, id := range []uuid.UUID{job.ID, other.ID} {
		c.SlotAgo(id, 3*time.Second)
	}
	first := c.Claim(10, false)
	if len(first.Runs) != 2 {
		t.Fatalf("%d runs were claimed, want 2", len(first.Runs))
	}
	ours := first.Runs[0]
	if ours.Job.ID != job.ID {
		ours = first.Runs[1]
	}
	if b := replace(c, job.ID, other.ID); b.Settled != 0 {
		t.Errorf("%d slots are settled, and none is due", b.Settled)
	}
	c.SlotAgo(job.ID, time.Second)
	if b := replace(c, job.ID, other.ID); b.Settled != 2 || len(b.Runs) != 0 { // its slot, and then its run at the gate
		t.Errorf("%d settled, %d runs started; want the one slot and its run, without a start", b.Settled, len(b.Runs))
	}
	if n := c.Count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'running' AND reason = 'replaced'`,
		ours.RunID); n != 1 {
		t.Errorf("the run in flight is %s", c.State(ours.RunID))
	}
	if b := c.ClaimReady(10); len(b.Runs) != 0 {
		t.Errorf("%d runs started before the one that they replace had ended", len(b.Runs))
	}
	c.Finish(Cancelled(ours))
	if a := c.One(c.ClaimReady(10)); a.Job.ID != job.ID {
		t.Errorf("job %s starts, want %s", a.Job.ID, job.ID)
	}
}

// A slot whose run would start at once is left to a claim that has a worker slot for the run.
func TestASlotThatReplacesNothingIsNotStartedWithoutAWorkerSlot(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Rarely, Replacing)
	slot := c.SlotAgo(job.ID, time.Second)
	if b := replace(c, job.ID); b.Settled != 0 || len(b.Runs) != 0 {
		t.Errorf("%d slots settled, %d runs started", b.Settled, len(b.Runs))
	}
	if next, _ := c.Next(job.ID); !next.Equal(slot) {
		t.Errorf("the next slot is %s, want %s", next, slot)
	}
}

// A claim without a worker slot does not touch runs that have nothing to replace any more: the claim that has a slot
// for the successor would pass over it, or it would be put off, because another transaction has locked its gate.
func TestASuccessorIsLeftToTheClaimThatHasAWorkerSlot(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job", Replacing)
	c.Trigger("job")
	replace(c, a.Job.ID)
	c.Finish(Cancelled(a))
	free := c.Stranger(`exclusive WHERE job_id = $1`, a.Job.ID)
	before := c.Text(`SELECT due_at::text FROM punctual.ready`)
	replace(c, a.Job.ID)
	free()
	if after := c.Text(`SELECT due_at::text FROM punctual.ready`); after != before {
		t.Errorf("the successor is due at %s, and was at %s", after, before)
	}
}

// The worker slot that a replaced run leaves goes to its successor, not to a run that has waited longer.
func TestASuccessorComesBeforeWhatElseOfItsTenantWaits(t *testing.T) {
	c := NewReplica(t)
	a := c.Manual("job", Replacing)
	b := c.Manual("waits", Overlapping(jobspec.PolicyWait))
	c.Create("other", Never)
	c.Trigger("other")
	c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '1 hour'`)
	c.Trigger("job")
	replace(c, a.Job.ID)
	c.Finish(Cancelled(a))
	if next := c.One(c.ClaimReady(1)); next.Job.ID != a.Job.ID {
		t.Error("the run of another job has the place")
	}
	// A run that waited for another run, which ended by itself, comes after runs that have waited longer.
	c.Trigger("waits")
	c.Finish(Succeeded(b))
	if next := c.One(c.ClaimReady(1)); next.Job.Name != "other" {
		t.Errorf("%s comes before what has waited for an hour", next.Job.Name)
	}
}

// While frozen, neither a trigger replaces the run in flight, nor an edit that settles a slot which came meanwhile. Of
// their runs the newest starts after that.
func TestWhileFrozenNoRunInFlightIsReplaced(t *testing.T) {
	t.Parallel()
	for whose, freeze := range map[string]string{
		"deployment": `UPDATE punctual.deployment SET frozen_at = now(), frozen_by = 'test', frozen_reason = 'asked'`,
		"tenant":     `UPDATE punctual.tenants SET frozen_at = now(), frozen_by = 'test'`,
	} {
		t.Run(whose, func(t *testing.T) {
			c := NewReplica(t)
			a := c.Manual("job", Rarely, Replacing)
			c.Exec(freeze)
			c.Trigger("job")
			newest := c.Trigger("job")
			c.SlotAgo(a.Job.ID, time.Second)
			c.Edit("job", Described("settles the slot"))
			c.ClaimReady(10)
			replace(c, a.Job.ID)
			if n := c.Count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'running' AND reason IS NULL`,
				a.RunID); n != 1 {
				t.Errorf("the run in flight is %s", c.State(a.RunID))
			}
			c.WantCount(3, "runs wait", `SELECT count(*) FROM punctual.runs WHERE status = 'pending'`)
			c.Exec(`UPDATE punctual.deployment SET frozen_at = NULL, frozen_by = NULL, frozen_reason = NULL`)
			c.Exec(`UPDATE punctual.tenants SET frozen_at = NULL, frozen_by = NULL`)
			c.Finish(Succeeded(a))
			if next := c.One(c.ClaimReady(10)); next.RunID != newest.ID {
				t.Errorf("run %s starts, want %s", next.RunID, newest.ID)
			}
			c.WantCount(2, "runs were replaced", `SELECT count(*) FROM punctual.runs WHERE reason = 'replaced'`)
		})
	}
}
