package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/runs"
)

// RerunRun repeats a run that has ended, or the slot of a recorded skip: it makes a manual run for the same slot, under
// the job's current definition and its concurrency policy, as TriggerJob does. The error is ErrState if the run has not
// ended, stands for several slots, or if its job was deleted. It is *ActiveRunError as with TriggerJob.
func (w Writer) RerunRun(ctx context.Context, id uuid.UUID, r RerunRequest) (runs.Run, error) {
	var run runs.Run
	err := w.InTx(ctx, func(tx *pg.Tx) error {
		original, own, err := readRerun(ctx, tx, w.Tenant, id)
		if err != nil {
			return err
		}
		job, now, err := w.store.lockToTrigger(ctx, tx, w.Tenant, original.JobID.String())
		if errors.Is(err, pg.ErrNotFound) {
			return fmt.Errorf("the job of run %s was deleted, so the run cannot be made again: %w", id, pg.ErrState)
		}
		if err != nil {
			return err
		}
		if err := job.takes(r.Headers, r.SameKey); err != nil {
			return err
		}
		m := again(original, own, r)
		m.id = domain.NewRunID(now)
		if err := w.store.enterManual(ctx, tx, job, m, now); err != nil {
			return err
		}
		run, err = runs.ReadRow(ctx, tx, w.Tenant, m.id)
		return err
	})
	return run, err
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
		return run, own, fmt.Errorf("run %s is of step %q: rerun the run of its workflow, %s: %w",
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
		m.Body = own.Body
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
