package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/seal"
)

// GetRun returns a run with its attempts, its result and what it sends. A dated run that is pending is
// shown as its claim would make it now. The error is ErrNotFound if the tenant has no run with this id.
func (s *Runs) GetRun(ctx context.Context, tenant int32, id uuid.UUID) (Run, error) {
	return pg.Past(ctx, s.db.Callers, tenant, func(ctx context.Context, q pg.Source) (Run, error) {
		run, err := s.getRun(ctx, q, tenant, id)
		if err == nil && q.Standby && !run.Status.Final() {
			err = pg.ErrUnfinal
		}
		return run, err
	})
}

func (s *Runs) getRun(ctx context.Context, q pg.Querier, tenant int32, id uuid.UUID) (Run, error) {
	run, data, err := ReadData(ctx, q, tenant, id)
	if err != nil || run.Status == domain.StatusSkipped || run.Taken() {
		return run, err
	}
	run.TraceID = domain.TraceID(id, data.traceParent)
	job, err := s.jobOf(ctx, q, tenant, &run)
	run.findLog(job)
	switch {
	case err != nil || job == nil: // there is nothing to show then, and everything else is
	case job.IsWorkflow():
		err = readSteps(ctx, q, &run, job.Definition)
	case job.Approval != nil: // it sends nothing
	default:
		run.Sent, err = sentBy(ctx, q, tenant, run, job, data)
	}
	return run, err
}

// jobOf returns the definition that a run uses; nil: this binary cannot read it.
func (s *Runs) jobOf(ctx context.Context, q pg.Querier, tenant int32, run *Run) (*domain.Job, error) {
	key := run.version()
	found, err := s.definitions.Read(ctx, q, definitions.One(key, tenant))
	return found.Job(key), pg.Wrap("reading the job of run "+run.ID.String(), err)
}

// findLog finds where people read the log of the run's latest attempt. job is nil if it is not known.
func (r *Run) findLog(job *domain.Job) {
	if len(r.Attempts) > 0 {
		r.LogURL, r.LogNote = domain.AnsweredLog(r.Attempts[len(r.Attempts)-1].Headers)
	}
	if r.LogURL == "" && job != nil && r.Attempt > 0 {
		r.LogURL = domain.Assignment{RunID: r.ID, Job: job, ScheduledFor: r.ScheduledFor, Attempt: r.Attempt}.LogURL()
	}
}

// Data is the data that a run has of its own, besides its row in runs.
type Data struct {
	WebhookID   *uuid.UUID
	Key         string // Idempotency-Key
	Headers     []byte // JSON
	Body        []byte
	Template    bool // the body is made of the job's own, and placeholders in it are filled in
	kept        claim.KeptResponse
	traceParent string // the trace context that the run continues; empty: none
	keptFence   int64  // fencing token of the attempt that got the kept response
}

// ReadDetails completes a run with its attempts, oldest first, and its result. Failed attempts have rows of their own.
// The attempt that succeeded or is in flight is part of the run's row; the kept part of its response is in run_data.
func ReadDetails(ctx context.Context, q pg.Querier, run *Run) (data Data, err error) {
	var b pgx.Batch
	b.Queue(`
		SELECT number, fence, started_at, finished_at, outcome, reason, http_status, error, replica,
			response, response_headers, coalesce(response_truncated, false)
		FROM punctual.attempts WHERE run_id = $1 ORDER BY fence`, run.ID).Query(pg.Into(&run.Attempts, scanAttempt))
	b.Queue(`
		SELECT webhook_id, coalesce(idempotency_key, ''), headers, body, coalesce(template, false),
			result, result_note, progress, progress_at,
			key, CASE WHEN key IS NULL THEN coalesce(traceparent, '') ELSE '' END, coalesce(response_fence, 0),
			coalesce(response, ''), response_headers, coalesce(response_truncated, false)
		FROM punctual.run_data WHERE run_id = $1`, run.ID).QueryRow(func(row pgx.Row) error {
		err := row.Scan(append([]any{
			&data.WebhookID, &data.Key, (*seal.JSON)(&data.Headers), (*seal.Bytes)(&data.Body), &data.Template,
			(*seal.JSON)(&run.Result), &run.ResultNote,
			(*seal.JSON)(&run.Progress), &run.ProgressAt, &run.Key, &data.traceParent, &data.keptFence,
		}, data.kept.Into()...)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // most runs have no such row
		}
		return err
	})
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return data, fmt.Errorf("reading the attempts of run %s: %w", run.ID, err)
	}
	run.Result, run.Progress = jobspec.ShownJSON(run.Result), jobspec.ShownJSON(run.Progress)
	if a, ok := run.presentAttempt(); ok {
		run.Attempts = append(run.Attempts, a)
	}
	for i, a := range run.Attempts {
		if a.fence == data.keptFence && a.Headers == nil {
			run.Attempts[i].Response, run.Attempts[i].Headers, run.Attempts[i].Truncated =
				pg.OrNull(data.kept.Response), claim.HeadersOf(data.kept.Headers), data.kept.Truncated
		}
	}
	return data, nil
}

func scanAttempt(row pgx.CollectableRow) (Attempt, error) {
	var a Attempt
	var headers seal.JSON
	err := row.Scan(&a.Number, &a.fence, &a.StartedAt, &a.FinishedAt, &a.Outcome, &a.Reason, &a.HTTPStatus,
		seal.OrNull(&a.Error), &a.Replica, seal.OrNull(&a.Response), &headers, &a.Truncated)
	a.Headers = claim.HeadersOf(headers)
	return a, err
}

// presentAttempt derives the attempt that is in flight or has succeeded from the run's row. ok is false if there is
// none.
func (r Run) presentAttempt() (a Attempt, ok bool) {
	started := cmp.Or(r.StartedAt, r.ClaimedAt)
	if started == nil {
		return a, false
	}
	a = Attempt{Number: r.Attempt, StartedAt: *started, Replica: r.Replica, fence: r.fence}
	switch {
	case r.Status == domain.StatusRunning:
		a.Outcome = domain.AttemptInFlight
		if r.AcceptedAt != nil {
			a.HTTPStatus = r.HTTPStatus
		}
	case r.Status == domain.StatusSucceeded && r.FinishedAt != nil:
		a.Outcome, a.FinishedAt, a.HTTPStatus = domain.AttemptSucceeded, r.FinishedAt, r.HTTPStatus
	default:
		return a, false
	}
	return a, true
}

// sentBy returns what the latest attempt of a run sent, or what the first one will send. That is not stored: it follows
// from the run, its own data and its version of the job.
func sentBy(
	ctx context.Context, q pg.Querier, tenant int32, run Run, job *domain.Job, data Data,
) (*domain.Assignment, error) {
	a := domain.Assignment{
		RunID: run.ID, Job: job, Trigger: run.Trigger, ScheduledFor: run.ScheduledFor, DueAt: run.DueAt, Late: run.Late,
		Attempt: max(1, run.Attempt), Fence: run.fence, Body: data.Body, Template: data.Template,
		IdempotencyKey: data.Key,
		CausedBy:       pg.OrZero(run.CausedBy), WebhookID: pg.OrZero(data.WebhookID),
		Step: run.Step, Workflow: pg.OrZero(run.Workflow), TraceParent: data.traceParent,
	}
	if data.Headers != nil {
		if err := json.Unmarshal(data.Headers, &a.Headers); err != nil {
			return nil, fmt.Errorf("reading the headers of run %s: %w", run.ID, err)
		}
	}
	if a.Step != "" {
		return &a, claim.ReadGiven(ctx, q, &a)
	}
	if run.CausedBy == nil {
		return &a, nil
	}
	err := q.QueryRow(ctx, `SELECT name, body FROM punctual.events WHERE id = $1 AND tenant = $2`, run.CausedBy, tenant).
		Scan(&a.Event, (*seal.Bytes)(&a.EventBody))
	if err != nil && !errors.Is(err, pgx.ErrNoRows) { // a run may have caused it
		return nil, fmt.Errorf("reading the event of run %s: %w", run.ID, err)
	}
	return &a, nil
}
