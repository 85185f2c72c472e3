package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/cron"
	"punctual/store/claim"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// settleRounds bounds the plans of one settling: a plan has at most ten runs, so a settling has at most a
// thousand. Slots that are left after that are recorded as missed.
const settleRounds = 100

// settleDue accounts for the slots that are due, under the definition that has been valid until now. So an edit never
// makes a past slot missed and never loses one. With passed it also settles a slot whose time has come but which jitter
// still delays, because the caller is about to move the next slot.
func (s *Store) settleDue(ctx context.Context, tx *pg.Tx, h *held, now time.Time, passed bool) error {
	if h.job == nil || !h.due(now, passed) {
		return nil
	}
	g, err := s.lockGate(ctx, tx, h.job, now)
	if err != nil {
		return err
	}
	gate := g.Facts()
	var through []uuid.UUID
	var memo cron.Memo
	var all scheduler.Plan
	for round := 0; h.due(now, passed); round++ {
		situation := scheduler.Situation{
			Job: h.job, ScheduledFor: *h.scheduledFor, Gate: gate, Now: h.atDue(now), Memo: &memo,
		}
		var plan scheduler.Plan
		if round < settleRounds {
			plan = scheduler.Decide(situation)
			if len(plan.Runs)+len(plan.Skips) == 0 && !plan.Done {
				// A catch-up run that waits for other runs to end: it can wait in ready as well.
				situation.Gate = scheduler.Gate{}
				plan = scheduler.Decide(situation)
			} else {
				through = pass(&gate, through, h.job, plan)
			}
		} else {
			plan = scheduler.SkipPassed(situation, scheduler.ReasonMissed)
		}
		all.Runs, all.Skips = append(all.Runs, plan.Runs...), append(all.Skips, plan.Skips...)
		all.Cancel, all.Expired = append(all.Cancel, plan.Cancel...), append(all.Expired, plan.Expired...)
		h.place(plan.Next, plan.NextRunAt, !plan.Done)
		if round > settleRounds {
			break // Decide and SkipPassed make no progress: a defect, which must not hold locks for ever
		}
	}
	return s.apply(ctx, tx, h, all, g, through, now)
}

// pass lets the runs of a plan through a gate, so that the rounds that follow find the gate changed. It returns the
// runs that have passed the gate, in order, without those that a later run replaces.
func pass(gate *scheduler.Gate, through []uuid.UUID, job *scheduler.Job, plan scheduler.Plan) []uuid.UUID {
	if job.ConcurrencyPolicy == scheduler.PolicyAllow {
		return nil
	}
	if len(plan.Expired) > 0 {
		gate.Waiting, gate.WaitingExpired = uuid.Nil, false
	}
	through = slices.DeleteFunc(through, func(run uuid.UUID) bool { return slices.Contains(plan.Cancel, run) })
	for _, r := range plan.Runs {
		run := scheduler.SlotRunID(job.ID, r.ScheduledFor)
		if r.Waits {
			gate.Waiting = run
		} else {
			gate.Active = []uuid.UUID{run}
		}
		through = append(through, run)
	}
	return through
}

// settlePassed accounts for the slots that passed while the job was paused. Those of a recurring job become one skip. A
// one-shot fires now, late, unless it is about to be moved; then it becomes a skip too.
func (s *Store) settlePassed(ctx context.Context, tx *pg.Tx, h *held, now time.Time, moved bool) error {
	if h.job == nil || !h.due(now, false) {
		return nil
	}
	situation := scheduler.Situation{Job: h.job, ScheduledFor: *h.scheduledFor, Now: now}
	var plan scheduler.Plan
	var g claim.Gate
	var through []uuid.UUID
	if moved || h.job.Schedule.Kind().Recurring() {
		plan = scheduler.SkipPassed(situation, scheduler.ReasonPaused)
	} else {
		plan.Done = true
		plan.Runs = []scheduler.PlannedRun{{
			ScheduledFor: *h.scheduledFor, DueAt: *h.nextRunAt, Trigger: scheduler.TriggerCatchup, Late: true,
		}}
		var err error
		if g, err = s.lockGate(ctx, tx, h.job, now); err != nil {
			return err
		}
		through = pass(new(scheduler.Gate), nil, h.job, plan)
	}
	h.place(plan.Next, plan.NextRunAt, !plan.Done)
	return s.apply(ctx, tx, h, plan, g, through, now)
}

// due reports whether the job's next slot is to be settled.
func (h *held) due(now time.Time, passed bool) bool {
	if h.scheduledFor == nil {
		return false
	}
	// A postponed catch-up run has a next_run_at in the future, and a slot that was due long ago.
	return !h.nextRunAt.After(now) || !h.job.Timetable.Due(*h.scheduledFor, nil).After(now) ||
		passed && !h.scheduledFor.After(now)
}

// atDue returns the instant to decide at: now, or the instant at which the slot is due if jitter still delays it.
func (h *held) atDue(now time.Time) time.Time {
	if due := h.job.Timetable.Due(*h.scheduledFor, nil); due.After(now) && !h.scheduledFor.After(now) {
		return due
	}
	return now
}

// apply writes what a plan says about slots that have passed, and lets some of its runs through the gate, which the
// caller has locked and read.
func (s *Store) apply(
	ctx context.Context, tx *pg.Tx, h *held, plan scheduler.Plan, g claim.Gate, through []uuid.UUID, now time.Time,
) error {
	for _, run := range plan.Runs {
		// A slot's run lies in the partition of its slot, which may have been dropped or never made.
		if run.ScheduledFor.Before(now.Add(-24 * time.Hour)) {
			if _, err := tx.Exec(ctx, `SELECT punctual.create_partition_of($1)`, run.ScheduledFor); err != nil {
				return fmt.Errorf("making the partition of slot %s: %w", run.ScheduledFor.Format(time.RFC3339), err)
			}
		}
	}
	if len(plan.Runs) > 0 {
		tx.Wake()
	}
	// Before the cancels: one slot may replace another.
	if err := s.Settle(ctx, tx.Tx, h.job, h.lane, plan, now); err != nil {
		return err
	}
	return s.makeWay(ctx, tx, h.jobRow, g, scheduler.Overlap{Cancel: plan.Cancel, Expired: plan.Expired}, through, now)
}

// makeWay carries out what was decided about new runs of a job. It ends the runs that have expired and cancels the runs
// that are replaced. The first of the new runs takes the gate if the gate is free by then. The next one waits for the
// gate unless another run waits. The caller has locked the gate.
func (s *Store) makeWay(
	ctx context.Context, tx *pg.Tx, job *jobRow, g claim.Gate, o scheduler.Overlap, runs []uuid.UUID, now time.Time,
) error {
	if len(o.Expired) > 0 {
		if err := claim.ExpireRuns(ctx, tx, o.Expired); err != nil {
			return err
		}
		g.Waiting = uuid.Nil
	}
	cancel, err := mayCancel(ctx, tx, job.tenant, g, o.Cancel)
	if err != nil {
		return err
	}
	if len(cancel) > 0 {
		if _, err := claim.CancelRuns(ctx, tx, cancel, scheduler.ReasonReplaced); err != nil {
			return err
		}
		if g, _, err = s.gateFacts(ctx, tx, job.ID, claim.PassOver, now); err != nil {
			return err
		}
	}
	var b pgx.Batch
	if len(runs) > 0 && len(g.Holders()) == 0 {
		claim.QueueTakeGates(&b, []uuid.UUID{job.ID}, runs[:1])
		runs = runs[1:]
	}
	if len(runs) > 0 && g.Waiting == uuid.Nil {
		claim.QueueWait(&b, []uuid.UUID{job.ID}, runs[:1])
	}
	if b.Len() == 0 {
		return nil
	}
	return pg.Wrap("entering the gate of job "+job.ID.String(), tx.SendBatch(ctx, &b).Close())
}

// mayCancel returns which of the runs that are to be replaced may be cancelled now. During a freeze a run in flight is
// not cancelled for a waiting one: it ends by itself, and its successor starts when the freeze is over.
func mayCancel(ctx context.Context, tx *pg.Tx, tenant int32, g claim.Gate, runs []uuid.UUID) ([]uuid.UUID, error) {
	inFlight := func(run uuid.UUID) bool { return slices.Contains(g.Holders(), run) }
	if !slices.ContainsFunc(runs, inFlight) {
		return runs, nil
	}
	freezes, err := freeze.Read(ctx, tx, tenant)
	if err != nil {
		return nil, err
	}
	if frozen, _ := freezes.Of(tenant); frozen == nil {
		return runs, nil
	}
	return slices.DeleteFunc(slices.Clone(runs), inFlight), nil
}

// lockGate locks and returns the gate of a job whose runs must not overlap. For a job that allows overlap it returns a
// free gate.
func (s *Store) lockGate(ctx context.Context, tx *pg.Tx, job *scheduler.Job, now time.Time) (claim.Gate, error) {
	if job.ConcurrencyPolicy == scheduler.PolicyAllow {
		return claim.Gate{}, nil
	}
	g, _, err := s.gateFacts(ctx, tx, job.ID, claim.Wait, now)
	return g, err
}

// gateFacts locks the gate of a job, unless this transaction has locked it, and returns it. If the job has no gate, or
// its gate is passed over, it returns a free one and held is false.
func (s *Store) gateFacts(
	ctx context.Context, tx *pg.Tx, job uuid.UUID, locked string, now time.Time,
) (g claim.Gate, held bool, err error) {
	gates := map[uuid.UUID]claim.Gate{}
	var b pgx.Batch
	claim.QueueGates(&b, []uuid.UUID{job}, gates, locked)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return g, false, fmt.Errorf("locking the gate of job %s: %w", job, err)
	}
	if err := s.FreeEndedGates(ctx, tx, gates, now); err != nil {
		return g, false, err
	}
	g, held = gates[job]
	return g, held, nil
}
