package store

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/domain"
)

// replace claims, without a worker slot, the slots and the ready runs that replace the runs in flight of these jobs.
func (c claimer) replace(jobs ...uuid.UUID) domain.Batch {
	c.t.Helper()
	claim := scheduler.Claim{Replica: c.replica, Work: domain.WorkDue, Replacing: jobs}
	slots, err := c.Claims.ClaimDue(c.t.Context(), claim)
	must(c.t, err)
	claim.Work = domain.WorkReady
	runs, err := c.Claims.ClaimReady(c.t.Context(), claim)
	must(c.t, err)
	return domain.Batch{Runs: append(slots.Runs, runs.Runs...), Settled: slots.Settled + runs.Settled}
}

func TestADueSlotReplacesTheRunInFlightThoughNoWorkerSlotIsFree(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", rarely, replacing)
	other := c.create("other", rarely, replacing)
	for _, id := range []uuid.UUID{job.ID, other.ID} {
		c.slotAgo(id, 3*time.Second)
	}
	first := c.claim(10, false)
	if len(first.Runs) != 2 {
		t.Fatalf("%d runs were claimed, want 2", len(first.Runs))
	}
	ours := first.Runs[0]
	if ours.Job.ID != job.ID {
		ours = first.Runs[1]
	}
	if b := c.replace(job.ID, other.ID); b.Settled != 0 {
		t.Errorf("%d slots are settled, and none is due", b.Settled)
	}
	c.slotAgo(job.ID, time.Second)
	if b := c.replace(job.ID, other.ID); b.Settled != 2 || len(b.Runs) != 0 { // its slot, and then its run at the gate
		t.Errorf("%d settled, %d runs started; want the one slot and its run, without a start", b.Settled, len(b.Runs))
	}
	if n := c.count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'running' AND reason = 'replaced'`,
		ours.RunID); n != 1 {
		t.Errorf("the run in flight is %s", c.state(ours.RunID))
	}
	if b := c.claimReady(10); len(b.Runs) != 0 {
		t.Errorf("%d runs started before the one that they replace had ended", len(b.Runs))
	}
	c.finish(cancelled(ours))
	if a := c.one(c.claimReady(10)); a.Job.ID != job.ID {
		t.Errorf("job %s starts, want %s", a.Job.ID, job.ID)
	}
}

// A slot whose run would start at once is left to a claim that has a worker slot for the run.
func TestASlotThatReplacesNothingIsNotStartedWithoutAWorkerSlot(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", rarely, replacing)
	slot := c.slotAgo(job.ID, time.Second)
	if b := c.replace(job.ID); b.Settled != 0 || len(b.Runs) != 0 {
		t.Errorf("%d slots settled, %d runs started", b.Settled, len(b.Runs))
	}
	if next, _ := c.next(job.ID); !next.Equal(slot) {
		t.Errorf("the next slot is %s, want %s", next, slot)
	}
}

// A claim without a worker slot does not touch runs that have nothing to replace any more: the claim that has a slot
// for the successor would pass over it, or it would be put off, because another transaction has locked its gate.
func TestASuccessorIsLeftToTheClaimThatHasAWorkerSlot(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("job", replacing)
	c.trigger("job")
	c.replace(a.Job.ID)
	c.finish(cancelled(a))
	free := c.stranger(`exclusive WHERE job_id = $1`, a.Job.ID)
	before := c.text(`SELECT due_at::text FROM punctual.ready`)
	c.replace(a.Job.ID)
	free()
	if after := c.text(`SELECT due_at::text FROM punctual.ready`); after != before {
		t.Errorf("the successor is due at %s, and was at %s", after, before)
	}
}

// The worker slot that a replaced run leaves goes to its successor, not to a run that has waited longer.
func TestASuccessorComesBeforeWhatElseOfItsTenantWaits(t *testing.T) {
	c := newClaimer(t)
	a := c.manual("job", replacing)
	b := c.manual("waits", overlapping(domain.PolicyWait))
	c.create("other", never)
	c.trigger("other")
	c.exec(`UPDATE punctual.ready SET due_at = now() - interval '1 hour'`)
	c.trigger("job")
	c.replace(a.Job.ID)
	c.finish(cancelled(a))
	if next := c.one(c.claimReady(1)); next.Job.ID != a.Job.ID {
		t.Error("the run of another job has the place")
	}
	// A run that waited for another run, which ended by itself, comes after runs that have waited longer.
	c.trigger("waits")
	c.finish(succeeded(b))
	if next := c.one(c.claimReady(1)); next.Job.Name != "other" {
		t.Errorf("%s comes before what has waited for an hour", next.Job.Name)
	}
}

// While frozen, neither a trigger replaces the run in flight, nor an edit that settles a slot which came meanwhile. Of
// their runs the newest starts after that.
func TestWhileFrozenNoRunInFlightIsReplaced(t *testing.T) {
	for whose, freeze := range map[string]string{
		"deployment": `UPDATE punctual.deployment SET frozen_at = now(), frozen_by = 'test', frozen_reason = 'asked'`,
		"tenant":     `UPDATE punctual.tenants SET frozen_at = now(), frozen_by = 'test'`,
	} {
		t.Run(whose, func(t *testing.T) {
			c := newClaimer(t)
			a := c.manual("job", rarely, replacing)
			c.exec(freeze)
			c.trigger("job")
			newest := c.trigger("job")
			c.slotAgo(a.Job.ID, time.Second)
			c.edit("job", described("settles the slot"))
			c.claimReady(10)
			c.replace(a.Job.ID)
			if n := c.count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'running' AND reason IS NULL`,
				a.RunID); n != 1 {
				t.Errorf("the run in flight is %s", c.state(a.RunID))
			}
			c.wantCount(3, "runs wait", `SELECT count(*) FROM punctual.runs WHERE status = 'pending'`)
			c.exec(`UPDATE punctual.deployment SET frozen_at = NULL, frozen_by = NULL, frozen_reason = NULL`)
			c.exec(`UPDATE punctual.tenants SET frozen_at = NULL, frozen_by = NULL`)
			c.finish(succeeded(a))
			if next := c.one(c.claimReady(10)); next.RunID != newest.ID {
				t.Errorf("run %s starts, want %s", next.RunID, newest.ID)
			}
			c.wantCount(2, "runs were replaced", `SELECT count(*) FROM punctual.runs WHERE reason = 'replaced'`)
		})
	}
}
