package jobs

import (
	"context"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/cron"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// settleRounds bounds the plans of one settling: a plan has at most ten runs, so a settling has at most a
// thousand. Slots that are left after that are recorded as missed.
const settleRounds = 100

// settleDue accounts for the slots that are due, under the definition that has been valid until now. So an edit never
// makes a past slot missed and never loses one. With passed it also settles a slot whose time has come but which jitter
// still delays, because the caller is about to move the next slot.
func (s *Jobs) settleDue(ctx context.Context, tx *pg.Tx, h *held, now time.Time, passed bool) error {
	if h.job == nil || !h.due(now, passed) {
		return nil
	}
	gate, err := s.claims.Facing(ctx, tx, h.ID, h.job.ConcurrencyPolicy, now)
	if err != nil {
		return err
	}
	var memo cron.Memo
	var all domain.Plan
	for round := 0; h.due(now, passed); round++ {
		situation := domain.Situation{
			Job: h.job, ScheduledFor: *h.scheduledFor, Gate: gate, Now: h.atDue(now), Memo: &memo,
		}
		var plan domain.Plan
		if round < settleRounds {
			plan = domain.Decide(situation)
			if len(plan.Runs)+len(plan.Skips) == 0 && !plan.Done {
				// A catch-up run that waits for other runs to end: it can wait in ready as well.
				situation.Gate = domain.Gate{}
				plan = domain.Decide(situation)
			} else {
				pass(&gate, h.job, plan)
			}
		} else {
			plan = domain.SkipPassed(situation, domain.ReasonMissed)
		}
		all.Runs, all.Skips = append(all.Runs, plan.Runs...), append(all.Skips, plan.Skips...)
		h.moveTo(plan.Next, plan.NextRunAt, !plan.Done)
		if round > settleRounds {
			break // Decide and SkipPassed make no progress: a defect, which must not hold locks for ever
		}
	}
	return s.claims.Settle(ctx, tx, h.job, h.lane, all, now)
}

// pass puts the run of a plan, if there is one, in the way of those that the next rounds plan.
func pass(gate *domain.Gate, job *domain.Job, plan domain.Plan) {
	if job.ConcurrencyPolicy == jobspec.PolicyAllow {
		return
	}
	for _, r := range plan.Runs {
		if run := domain.SlotRunID(job.ID, r.ScheduledFor); r.Waits {
			gate.Waiting = run
		} else {
			gate.Active = []uuid.UUID{run}
		}
	}
}

// settlePassed accounts for the slots that passed while the job was paused. Those of a recurring job become one skip. A
// one-shot fires now, late, unless it is about to be moved; then it becomes a skip too.
func (s *Jobs) settlePassed(ctx context.Context, tx *pg.Tx, h *held, now time.Time, moved bool) error {
	if h.job == nil || !h.due(now, false) {
		return nil
	}
	situation := domain.Situation{Job: h.job, ScheduledFor: *h.scheduledFor, Now: now}
	var plan domain.Plan
	if moved || h.job.Schedule.Kind().Recurring() {
		plan = domain.SkipPassed(situation, domain.ReasonPaused)
		h.passed.add(plan)
	} else {
		plan.Done = true
		plan.Runs = []domain.PlannedRun{{
			ScheduledFor: *h.scheduledFor, DueAt: *h.nextRunAt, Trigger: domain.TriggerCatchup, Late: true,
		}}
	}
	h.moveTo(plan.Next, plan.NextRunAt, !plan.Done)
	return s.claims.Settle(ctx, tx, h.job, h.lane, plan, now)
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
