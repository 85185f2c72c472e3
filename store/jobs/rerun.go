package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/runs"
)

// RerunRun repeats a run that has ended, or the slot of a recorded skip: it makes a manual run for the same slot, under
// the job's current definition or that of the run, and its concurrency policy, as TriggerJob does. Steps that are kept
// or set become runs that have succeeded, in the same transaction. The error is ErrState if the run has not ended,
// stands for several slots, or if its job was deleted. It is *ActiveRunError as with TriggerJob.
func (w Writer) RerunRun(ctx context.Context, id uuid.UUID, r RerunRequest) (runs.Run, error) {
	return pg.Do(ctx, w.Writes, func(tx *pg.Tx) (run runs.Run, err error) {
		a, err := w.prepareRerun(ctx, tx, id, r)
		if err != nil {
			return run, err
		}
		if err := a.plan.refuse(); err != nil {
			return run, err
		}
		m := again(a.run, a.own, r)
		m.id, m.steps = domain.NewRunID(a.now), shotOf(r)
		if r.Original {
			m.version = a.run.JobVersion
			if err := a.keepVersion(ctx, tx); err != nil {
				return run, err
			}
		}
		if err := w.store.enterManual(ctx, tx, a.job, m, a.now); err != nil {
			return run, err
		}
		if err := a.enterSteps(ctx, tx, m.id, r); err != nil {
			return run, err
		}
		return runs.ReadRow(ctx, tx, w.Tenant, m.id)
	})
}

// PlanRerun returns what RerunRun would do with the steps of a workflow, and writes nothing.
func (w Writer) PlanRerun(ctx context.Context, id uuid.UUID, r RerunRequest) (domain.RerunPlan, error) {
	r.dry = true
	return pg.Do(ctx, w.Writes, func(tx *pg.Tx) (domain.RerunPlan, error) {
		a, err := w.prepareRerun(ctx, tx, id, r)
		return a.plan.RerunPlan, err
	})
}

// rerun is a rerun that is about to be made.
type rerun struct {
	run  runs.Run // the run that it repeats
	own  runs.Data
	job  *jobRow // with the definition of the rerun
	now  time.Time
	plan stepPlan
}

// prepareRerun reads what a rerun needs, keeps the job from being changed, and checks the request.
func (w Writer) prepareRerun(ctx context.Context, tx *pg.Tx, id uuid.UUID, r RerunRequest) (a rerun, err error) {
	if a.run, a.own, err = readRerun(ctx, tx, w.Tenant, id); err != nil {
		return a, err
	}
	a.job, a.now, err = w.store.lockToTrigger(ctx, tx, w.Tenant, a.run.JobID.String(), false)
	if errors.Is(err, pg.ErrNotFound) {
		return a, fmt.Errorf("the job of run %s was deleted, so the run cannot be made again: %w", id, pg.ErrState)
	}
	if err != nil {
		return a, err
	}
	if err := a.planSteps(ctx, tx, r); err != nil {
		return a, err
	}
	return a, a.job.takes(r.Headers, r.SameKey)
}

// readRerun reads a run that may be repeated, and the data that it sent in place of its job's. A run that has ended
// never changes, so nothing of it need be locked.
func readRerun(
	ctx context.Context, q pg.Querier, tenant int32, id uuid.UUID,
) (run runs.Run, own runs.Data, err error) {
	run, own, err = runs.ReadData(ctx, q, tenant, id)
	if err != nil {
		return run, own, err
	}
	switch {
	case run.Step != "":
		return run, own, fmt.Errorf("run %s is of step %q: rerun the run of its workflow, %s, from this step: %w",
			id, run.Step, run.Workflow, pg.ErrState)
	case !run.Status.Final():
		return run, own, fmt.Errorf("run %s is %s: only a run that has ended can be made again: %w",
			id, run.Status, pg.ErrState)
	case run.Skipped != nil && !run.Skipped.First.Equal(run.Skipped.Last):
		return run, own, fmt.Errorf("run %s is a recorded skip of several slots; use a backfill for them: %w",
			id, pg.ErrState)
	}
	return run, own, nil
}

// again is the run that repeats run r: for the same slot, and with the same data of its own unless edit replaces it.
func again(r runs.Run, own runs.Data, edit RerunRequest) manualRun {
	m := manualRun{
		scheduledFor: r.ScheduledFor, rerunOf: &r.ID, causedBy: r.CausedBy, chains: edit.Chain,
		TriggerRequest: edit.TriggerRequest,
	}
	if m.Body == nil {
		m.Body, m.template = own.Body, own.Template
	}
	if m.Headers == nil && own.Headers != nil {
		_ = json.Unmarshal(own.Headers, &m.Headers) // as they were written here
	}
	if !edit.SameKey {
		return m
	}
	m.webhookID, m.key = own.WebhookID, own.Key
	if m.webhookID == nil {
		m.webhookID = &r.ID
	}
	if m.key == "" {
		m.key = domain.IdempotencyKey(r.Trigger, r.ID, r.JobID, r.ScheduledFor)
	}
	return m
}
