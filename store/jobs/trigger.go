package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/runs"
)

// ActiveRunError says that the job's concurrency policy does not allow a trigger now.
type ActiveRunError struct {
	Run    uuid.UUID // the run that prevents it
	Policy jobspec.ConcurrencyPolicy
}

func (e *ActiveRunError) Error() string {
	return fmt.Sprintf("run %s of this job has not ended, and its concurrency_policy is %s", e.Run, e.Policy)
}

// Unwrap returns how a caller is refused.
func (e *ActiveRunError) Unwrap() error {
	return &jobspec.Refusal{Code: "active_run", Reason: e.Error(), Run: &e.Run}
}

// TriggerJob makes a run of a job that any replica may claim at once, whatever the job's schedule says. It works for
// paused and completed jobs too. The claim decides about the run by the job's concurrency policy: it may replace the
// active run, wait for it, or be skipped. The error is *ActiveRunError if it would be skipped now: under forbid while a
// run is active, and under wait while another run waits. The error is ErrNotForSubmitters if a submitter asks and the
// job does not let submitters trigger it.
func (w Writer) TriggerJob(ctx context.Context, ref string, r TriggerRequest) (runs.Run, error) {
	return pg.Do(ctx, w.Writes, func(tx *pg.Tx) (run runs.Run, err error) {
		job, now, err := w.store.lockToTrigger(ctx, tx, w.Tenant, ref, r.Submitter)
		if err != nil {
			return run, err
		}
		if err := job.takes(r.Headers, false); err != nil {
			return run, err
		}
		m := manualRun{id: domain.NewRunID(now), scheduledFor: now, TriggerRequest: r}
		if err := w.store.enterManual(ctx, tx, job, m, now); err != nil {
			return run, err
		}
		return runs.ReadRow(ctx, tx, w.Tenant, m.id)
	})
}

// takes refuses what a run of a job with steps cannot be given, as it sends nothing itself.
func (j *jobRow) takes(headers map[string]string, sameKey bool) error {
	var blames []jobspec.Problem
	if headers != nil && j.Definition.IsWorkflow() {
		blames = append(blames, jobspec.Blame("headers", "the job has steps, which have headers of their own; leave it out"))
	}
	if sameKey && j.Definition.IsWorkflow() {
		blames = append(blames, jobspec.Blame("same_key", "the job has steps, which have keys of their own; leave it out"))
	}
	return jobspec.Invalid(blames)
}

// lockToTrigger finds a job and keeps it from being deleted until the run is written. It does not lock the job's
// schedule: claims pass over a locked one, so a job that is triggered all the time would never get to its slots. A
// submitter may trigger only jobs that allow it.
func (s *Jobs) lockToTrigger(
	ctx context.Context, tx *pg.Tx, tenant int32, ref string, submitter bool,
) (job *jobRow, now time.Time, err error) {
	id, err := names.Find(ctx, tx, tenant, ref)
	if err != nil {
		return nil, now, err
	}
	if err := pg.Exec(ctx, tx, `SELECT FROM punctual.jobs WHERE id = $1 AND tenant = $2 FOR SHARE`,
		id, tenant); err != nil {
		return nil, now, fmt.Errorf("locking job %s: %w", id, err)
	}
	var b pgx.Batch
	b.Queue(selectJob, id, tenant).Query(pg.IntoOne(&job, scanJob))
	f, err := readFacts(ctx, tx, &b, tenant)
	if err != nil {
		return nil, now, pg.Found(err, "job %q", ref)
	}
	if allowed := job.Definition.SubmittersMayTrigger; submitter && (allowed == nil || !*allowed) {
		return nil, now, fmt.Errorf("job %q: %w", job.Definition.Name, ErrNotForSubmitters)
	}
	return job, f.now, nil
}

// manualRun is a run that a user asked for.
type manualRun struct {
	id           uuid.UUID
	scheduledFor time.Time
	rerunOf      *uuid.UUID
	causedBy     *uuid.UUID // what caused the run that it repeats
	webhookID    *uuid.UUID // the id that receivers see; nil: the run's id
	key          string     // Idempotency-Key; empty: derived from the run
	chains       bool       // of a rerun: its end triggers other jobs
	version      int32      // of a rerun: the version of its job that it uses; 0: the current one
	template     bool       // its body is made of the job's own, and placeholders in it are filled in
	steps        stepsShot
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
		stepsShot
	}{version, r.rerunOf, audit.MaskHeaders(r.Headers), bytes, r.steps}
}

// mayWait refuses a run of a job with the policy queue while as many wait as may.
func (s *Jobs) mayWait(ctx context.Context, tx *pg.Tx, job *jobRow, policy jobspec.ConcurrencyPolicy) error {
	if policy != jobspec.PolicyQueue {
		return nil
	}
	pending, err := claim.Pending(ctx, tx, &domain.Job{ID: job.ID, Definition: job.Definition})
	if most := job.Definition.WithDefaults().MaxPendingRuns; err == nil && pending[job.ID] >= most {
		return &jobspec.Refusal{Code: "limit", Reason: fmt.Sprintf(
			"%d runs of job %q wait, and no more may (max_pending_runs)", most, job.Definition.Name)}
	}
	return err
}

// enterManual makes a run that a user asked for, unless its claim would skip it now. Another run may come first all the
// same, so the claim decides again.
func (s *Jobs) enterManual(ctx context.Context, tx *pg.Tx, job *jobRow, r manualRun, now time.Time) error {
	policy := job.Definition.WithDefaults().ConcurrencyPolicy
	g, err := s.claims.Facing(ctx, tx, job.ID, policy, now)
	if err != nil {
		return err
	}
	if blocker := g.Overlap(policy).Blocker; blocker != uuid.Nil {
		return &ActiveRunError{Run: blocker, Policy: policy}
	}
	if err := s.mayWait(ctx, tx, job, policy); err != nil {
		return err
	}
	e := claim.Entry{
		ID: r.id, Job: job.ID, Trigger: domain.TriggerManual, ScheduledFor: r.scheduledFor, DueAt: now, RerunOf: r.rerunOf,
		CausedBy: r.causedBy, By: audit.ActorOf(ctx).Words(), Version: r.version,
	}
	if r.Body != nil || r.Headers != nil || r.webhookID != nil || r.chains || r.TraceParent != "" {
		e.Sends = &claim.Sends{
			WebhookID: r.webhookID, Key: r.key, Body: r.Body, Template: r.template, Chains: r.chains,
			TraceParent: r.TraceParent,
		}
		if e.Sends.Headers, err = encodeHeaders(r.Headers); err != nil {
			return err
		}
	}
	var b pgx.Batch
	claim.QueueEntries(&b, now, e)
	if err := audit.Queue(ctx, &b, job.tenant, now, audit.Change{
		Action: audit.RunTrigger, ID: r.id, Job: job.ID, Name: job.Definition.Name, After: r.shot(job.Version),
	}); err != nil {
		return err
	}
	tx.Wake()
	return pg.Wrap("writing a run of job "+job.ID.String(), tx.SendBatch(ctx, &b).Close())
}
