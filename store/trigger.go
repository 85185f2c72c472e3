package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/notices"
	"punctual/store/pg"
)

// ActiveRunError says that the job's concurrency policy does not allow a trigger now.
type ActiveRunError struct {
	Run    uuid.UUID // the run that prevents it
	Policy scheduler.ConcurrencyPolicy
}

func (e *ActiveRunError) Error() string {
	return fmt.Sprintf("run %s of this job has not ended, and its concurrency_policy is %s", e.Run, e.Policy)
}

// TriggerJob makes a run of a job that any replica may claim at once, whatever the job's schedule says. It works for
// paused and completed jobs too. Under replace it cancels the active run; under wait the new run waits for the active
// one. The error is *ActiveRunError under forbid while a run is active, and under wait while another run waits. The
// error is ErrNotForSubmitters if a submitter asks and the job does not let submitters trigger it.
func (w Writer) TriggerJob(ctx context.Context, ref string, r TriggerRequest) (RunRecord, error) {
	var run RunRecord
	err := w.inTx(ctx, func(tx *pg.Tx) error {
		job, now, err := w.store.lockToTrigger(ctx, tx, w.tenant, ref)
		if err != nil {
			return err
		}
		if allowed := job.Definition.SubmittersMayTrigger; r.Submitter && (allowed == nil || !*allowed) {
			return fmt.Errorf("job %q: %w", job.Definition.Name, ErrNotForSubmitters)
		}
		id := scheduler.NewRunID(now)
		if err := w.store.passGate(ctx, tx, job, id, now); err != nil {
			return err
		}
		if err := writeManualRun(ctx, tx, job, manualRun{id: id, scheduledFor: now, TriggerRequest: r}, now); err != nil {
			return err
		}
		tx.Wake()
		run, err = readRun(ctx, tx, w.tenant, id)
		return err
	})
	return run, err
}

// lockToTrigger finds a job and keeps it from being deleted until the run is written. It does not lock the job's
// schedule: claims pass over a locked one, so a job that is triggered all the time would never get to its slots. It
// locks the gate before the job's row, as everywhere.
func (s *Store) lockToTrigger(
	ctx context.Context, tx *pg.Tx, tenant int32, ref string,
) (job *jobRow, now time.Time, err error) {
	id, err := findJob(ctx, tx, tenant, ref)
	if err != nil {
		return nil, now, err
	}
	if err := pg.Exec(ctx, tx, `SELECT FROM punctual.exclusive x WHERE x.job_id = $1 AND EXISTS
		(SELECT FROM punctual.jobs j WHERE j.id = $1 AND j.tenant = $2) FOR NO KEY UPDATE OF x`, id, tenant); err != nil {
		return nil, now, fmt.Errorf("locking the gate of job %s: %w", id, err)
	}
	if err := pg.Exec(ctx, tx, `SELECT FROM punctual.jobs WHERE id = $1 AND tenant = $2 FOR SHARE`,
		id, tenant); err != nil {
		return nil, now, fmt.Errorf("locking job %s: %w", id, err)
	}
	var b pgx.Batch
	b.Queue(`
		SELECT `+jobColumns+` FROM `+jobTables+`
		WHERE j.id = $1 AND j.tenant = $2 AND j.state <> 'deleted'`, id, tenant).
		Query(func(rows pgx.Rows) error {
			job, err = pgx.CollectExactlyOneRow(rows, scanJob)
			return err
		})
	f, err := readFacts(ctx, tx, &b, tenant)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, now, fmt.Errorf("job %q: %w", ref, ErrNotFound)
	}
	if err != nil {
		return nil, now, fmt.Errorf("reading job %s: %w", id, err)
	}
	return job, f.now, nil
}

// passGate does for a manual run what Decide does for a slot: according to the job's concurrency policy the run takes
// the gate, waits, replaces the active run, or is refused. The caller has locked the gate, and writes the run.
func (s *Store) passGate(ctx context.Context, tx *pg.Tx, job *jobRow, run uuid.UUID, now time.Time) error {
	policy := job.Definition.WithDefaults().ConcurrencyPolicy
	if policy == scheduler.PolicyAllow {
		return nil
	}
	// The gate is locked already, unless the job got it since. Then this transaction must not wait for the gate, because
	// it holds the job's row, which comes after the gate in the lock order.
	g, held, err := s.gateFacts(ctx, tx, job.ID, claim.PassOver, now)
	if err != nil {
		return err
	}
	if !held {
		return fmt.Errorf("job %s is being changed by another transaction; try again: %w", job.ID, ErrState)
	}
	o := g.Facts().Overlap(policy)
	if policy == scheduler.PolicyForbid && o.Blocker == uuid.Nil { // a replay, for example, has no gate before it starts
		if o.Blocker, err = runInReady(ctx, tx, job.ID); err != nil {
			return err
		}
	}
	if o.Blocker != uuid.Nil {
		return &ActiveRunError{Run: o.Blocker, Policy: policy}
	}
	return s.makeWay(ctx, tx, job, g, o, []uuid.UUID{run}, now)
}

// runInReady returns a run of the job's own that waits in ready, or uuid.Nil if there is none.
func runInReady(ctx context.Context, tx *pg.Tx, job uuid.UUID) (uuid.UUID, error) {
	var waiting uuid.UUID
	err := tx.QueryRow(ctx, `
		SELECT y.run_id FROM punctual.ready y JOIN punctual.runs r ON r.id = y.run_id
		WHERE y.job_id = $1 AND r.status IN ('pending', 'retrying') AND NOT `+notices.IsNotice+`
		ORDER BY y.run_id LIMIT 1`, job).Scan(&waiting)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, fmt.Errorf("looking for waiting runs of job %s: %w", job, err)
	}
	return waiting, nil
}

// manualRun is a run that a user asked for.
type manualRun struct {
	id           uuid.UUID
	scheduledFor time.Time
	rerunOf      *uuid.UUID
	webhookID    *uuid.UUID // the id that receivers see; nil: the run's id
	key          string     // Idempotency-Key; empty: derived from the run
	TriggerRequest
}

// shot is the request as the audit log shows it: of a body it has only the length.
func (r manualRun) shot(version int32) any {
	var bytes *int
	if r.Body != nil {
		bytes = new(len(r.Body))
	}
	return struct {
		JobVersion int32             `json:"job_version"`
		RerunOf    *uuid.UUID        `json:"rerun_of,omitempty"`
		Headers    map[string]string `json:"headers,omitempty"`
		BodyBytes  *int              `json:"body_bytes,omitempty"`
	}{version, r.rerunOf, audit.MaskHeaders(r.Headers), bytes}
}

func writeManualRun(ctx context.Context, tx *pg.Tx, job *jobRow, r manualRun, now time.Time) error {
	var b pgx.Batch
	b.Queue(`
		INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane) VALUES ($1, $2, $3, $4, $5)`,
		r.id, job.ID, now, job.tenant, job.lane)
	b.Queue(`
		INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, created_at, tenant, job_version, lane, status,
			trigger, rerun_of)
		VALUES ($1, $2, $7, $3, $3, $4, $5, $6, 'pending', 'manual', $8)`,
		r.id, job.ID, now, job.tenant, job.Version, job.lane, r.scheduledFor, r.rerunOf)
	if r.Body != nil || r.Headers != nil || r.webhookID != nil {
		var headers *string
		if r.Headers != nil {
			text, err := json.Marshal(r.Headers)
			if err != nil {
				return fmt.Errorf("encoding headers: %w", err)
			}
			headers = new(string(text))
		}
		b.Queue(`
			INSERT INTO punctual.run_data (run_id, headers, body, webhook_id, idempotency_key)
			VALUES ($1, $2::jsonb, $3::bytea, $4, $5)`,
			r.id, headers, []byte(r.Body), r.webhookID, pg.OrNull(r.key))
	}
	if err := audit.Queue(ctx, &b, job.tenant, now, audit.Change{
		Action: audit.RunTrigger, ID: r.id, Job: job.ID, Name: job.Definition.Name, After: r.shot(job.Version),
	}); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("writing a run of job %s: %w", job.ID, err)
	}
	return nil
}
