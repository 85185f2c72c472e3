package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/seal"
)

const (
	runFields = `r.id, r.job_id, coalesce(j.name, ''), t.name` + ownFields
	ownFields = `,
	coalesce((SELECT q.name FROM punctual.queues q WHERE q.id = r.lane / 4), ''), r.trigger, r.scheduled_for, r.status,
	r.reason, r.late, r.attempt, r.replica, r.job_version, r.due_at,
	r.created_at, r.claimed_at, r.started_at, r.accepted_at, r.finished_at, r.next_attempt_at,
	r.http_status, r.error, r.blocked_by, r.skipped_first, r.skipped_last, r.skipped_count,
	r.replay_of, r.rerun_of, r.caused_by, r.triggered_by, coalesce(r.step, ''), r.parent_run, coalesce(r.fence, 0)`
)

// runColumns leaves it to fillMaxAttempts to find how many attempts a run may have.
const runColumns = runFields + `, 0`

const runTables = `punctual.runs r
	JOIN punctual.tenants t ON t.id = r.tenant
	LEFT JOIN punctual.jobs j ON j.id = r.job_id`

const selectRuns = `SELECT ` + runColumns + ` FROM ` + runTables

func scanRun(row pgx.CollectableRow) (Run, error) {
	var r Run
	var skipped SkippedRange
	var first, last *time.Time
	err := row.Scan(&r.ID, &r.JobID, &r.Job, &r.Tenant, &r.Queue, &r.Trigger, &r.ScheduledFor, &r.Status, &r.Reason,
		&r.Late, &r.Attempt, &r.Replica, &r.JobVersion, &r.DueAt, &r.CreatedAt, &r.ClaimedAt, &r.StartedAt,
		&r.AcceptedAt, &r.FinishedAt,
		&r.NextAttemptAt, &r.HTTPStatus, seal.OrNull(&r.Error), &r.BlockedBy, &first, &last, &skipped.Count,
		&r.ReplayOf, &r.RerunOf, &r.CausedBy, &r.TriggeredBy, &r.Step, &r.Workflow, &r.fence,
		&r.MaxAttempts)
	if err != nil {
		return Run{}, err
	}
	if first != nil && last != nil {
		skipped.First, skipped.Last = *first, *last
		r.Skipped = &skipped
	}
	return r, nil
}

// Read returns a run with its attempts and its result. The error is pg.ErrNotFound if the tenant has no run with this
// id.
func Read(ctx context.Context, q pg.Querier, tenant int32, id uuid.UUID) (Run, error) {
	run, _, err := ReadData(ctx, q, tenant, id)
	return run, err
}

// ReadRow is Read without the attempts and the result, as for a run that was only just made.
func ReadRow(ctx context.Context, q pg.Querier, tenant int32, id uuid.UUID) (Run, error) {
	found, err := Query(ctx, q, ` WHERE r.id = $1 AND r.tenant = $2`, id, tenant)
	if err != nil {
		return Run{}, err
	}
	if len(found) == 0 {
		return Run{}, fmt.Errorf("run %s: %w", id, pg.ErrNotFound)
	}
	return found[0], nil
}

// ReadData is Read, and returns the run's own data too. It also finds a dated run that is pending.
func ReadData(ctx context.Context, q pg.Querier, tenant int32, id uuid.UUID) (run Run, own Data, err error) {
	run, err = ReadRow(ctx, q, tenant, id)
	if errors.Is(err, pg.ErrNotFound) {
		if run, own, err = readDated(ctx, q, tenant, id); err == nil {
			return run, own, nil
		}
		if errors.Is(err, pg.ErrNotFound) { // it may have been claimed in between
			run, err = ReadRow(ctx, q, tenant, id)
		}
	}
	if err != nil {
		return run, own, err
	}
	own, err = ReadDetails(ctx, q, &run)
	return run, own, err
}

// Query returns the runs that rest, the rest of the statement, selects. It leaves out their attempts.
func Query(ctx context.Context, q pg.Querier, rest string, args ...any) ([]Run, error) {
	runs, err := pg.All(ctx, q, scanRun, selectRuns+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("reading runs: %w", err)
	}
	return runs, fillMaxAttempts(ctx, q, runs)
}

// version names the definition that the run uses.
func (r *Run) version() definitions.Version {
	return definitions.Version{Job: r.JobID, Version: r.JobVersion, Step: r.Step}
}

// maxAttempts is how many attempts version v of a job allows to the run of a step; to the workflow's own run and those
// of other jobs if that is empty. Steps leave it to their job, and a workflow's own run has one.
func maxAttempts(step string) string {
	return fmt.Sprintf(`
		CASE WHEN %[1]s = '' AND v.definition -> 'steps' IS NOT NULL THEN 1
		     ELSE coalesce(
		         CASE WHEN %[1]s <> '' THEN (
		             SELECT CASE WHEN s -> 'approval' IS NOT NULL THEN 1
		                         ELSE nullif((s #>> '{retry,max_attempts}')::integer, 0) END
		             FROM json_array_elements(v.definition -> 'steps') s WHERE s ->> 'name' = %[1]s) END,
		         nullif((v.definition #>> '{retry,max_attempts}')::integer, 0), %[2]d) END`, step, jobspec.DefaultMaxAttempts)
}

// fillMaxAttempts reads how many attempts the runs' versions allow. It reads once per version and not per run, because
// a definition may be large.
func fillMaxAttempts(ctx context.Context, q pg.Querier, runs []Run) error {
	most := map[definitions.Version]int{}
	for _, r := range runs {
		most[r.version()] = 0
	}
	if len(most) == 0 {
		return nil
	}
	versions := slices.Collect(maps.Keys(most))
	rows := pg.Query(ctx, q, `
		SELECT v.job_id, v.version, w.step, `+maxAttempts(`w.step`)+`
		FROM unnest($1::uuid[], $2::integer[], $3::text[]) w(job_id, version, step)
		JOIN punctual.job_versions v ON v.job_id = w.job_id AND v.version = w.version`,
		pg.Column(versions, func(v definitions.Version) uuid.UUID { return v.Job }),
		pg.Column(versions, func(v definitions.Version) int32 { return v.Version }),
		pg.Column(versions, func(v definitions.Version) string { return v.Step }))
	err := pg.Each4(rows, func(job uuid.UUID, version int32, step string, n int) {
		most[definitions.Version{Job: job, Version: version, Step: step}] = n
	})
	if err != nil {
		return fmt.Errorf("reading the versions of runs: %w", err)
	}
	for i, r := range runs {
		runs[i].MaxAttempts = most[r.version()]
	}
	return nil
}
