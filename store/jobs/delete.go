package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/pg"
)

// DeleteJob ends a job. Slots that are due are recorded as skipped, and runs that wait are cancelled. A running one
// ends with the attempt that is in flight, whatever its outcome. The job's row stays for its history; its name is free
// at once. The error is ErrVersion if the job is not at version ifMatch (nil: any), and ErrState if runs of other jobs
// trigger it, unless force is set.
func (s *Jobs) DeleteJob(ctx context.Context, tenant int32, ref string, ifMatch *int32, force bool) error {
	return s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		h, f, err := s.holdOne(ctx, tx, tenant, ref)
		if err != nil {
			return err
		}
		if err := h.match(ifMatch); err != nil {
			return err
		}
		if err := claim.LockGate(ctx, tx, tenant, h.ID); err != nil {
			return err
		}
		if err := release(ctx, tx, h, force); err != nil {
			return err
		}
		if err := s.end(ctx, tx, h, f.now); err != nil {
			return err
		}
		if err := h.saveNow(ctx, tx, f.now, ""); err != nil {
			return err
		}
		return s.cancelWaiting(ctx, tx, []uuid.UUID{h.ID})
	})
}

// end deletes a held job, whose gate the caller has locked. The caller then saves the job, and cancels its waiting
// runs.
func (s *Jobs) end(ctx context.Context, tx *pg.Tx, h *held, now time.Time) error {
	if err := s.skipRest(ctx, tx, h, now); err != nil {
		return err
	}
	h.moveTo(time.Time{}, time.Time{}, false)
	h.enter(ctx, domain.JobDeleted, now)
	return nil
}

// skipRest records the slots whose time has come as skipped. The reason is paused if that is why they did not run.
func (s *Jobs) skipRest(ctx context.Context, tx *pg.Tx, h *held, now time.Time) error {
	if h.job == nil || h.State == domain.JobCompleted || !h.due(now, true) {
		return nil
	}
	reason := domain.ReasonJobDeleted
	if h.State == domain.JobPaused && h.job.Schedule.Kind().Recurring() {
		reason = domain.ReasonPaused
	}
	plan := domain.SkipPassed(domain.Situation{Job: h.job, ScheduledFor: *h.scheduledFor, Now: h.atDue(now)}, reason)
	return s.claims.Settle(ctx, tx, h.job, h.lane, plan, now)
}

// cancelWaiting cancels the runs of deleted jobs that wait in ready, for approval or for their turn. A run that a claim
// takes at this moment goes on. So does a run that its target works on. The jobs are saved before: a trigger locks its
// job's row, so no trigger that saw the job alive comes later.
func (s *Jobs) cancelWaiting(ctx context.Context, tx *pg.Tx, jobs []uuid.UUID) error {
	if len(jobs) == 0 {
		return nil
	}
	runs, err := pg.All(ctx, tx, pgx.RowTo[uuid.UUID], `
		SELECT y.run_id FROM punctual.ready y JOIN punctual.runs_of(ARRAY(
		    SELECT w.run_id FROM punctual.ready w WHERE w.job_id = ANY($1::uuid[]))) r ON r.id = y.run_id
		WHERE y.job_id = ANY($1::uuid[]) AND (r.status <> 'running' OR y.waits = 'person')
		ORDER BY y.run_id FOR UPDATE OF y`, jobs)
	if err != nil {
		return fmt.Errorf("locking waiting runs: %w", err)
	}
	if len(runs) == 0 {
		return nil
	}
	tx.Ask(claim.Freed...)
	tx.After(func() { s.claims.Over(runs...) })
	_, err = claim.CancelRuns(ctx, tx, runs, domain.ReasonJobDeleted)
	return err
}
