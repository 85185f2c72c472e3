package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/pg"
	"punctual/store/seal"
	"punctual/store/tenants"
)

// insertMany writes the jobs of a batch. Nearly always all names are free. Then plain statements write the jobs, which
// cost Postgres less than insertJobs does. Otherwise these statements have written nothing, and insertFree finds out
// which names are taken.
func (s *Jobs) insertMany(
	ctx context.Context, tx *pg.Tx, tenant int32, jobs []*fresh, f facts,
) (taken []*fresh, due bool, err error) {
	if err := countIn(ctx, tx, tenant, unfinished(jobs), f); err != nil {
		return nil, false, err
	}
	if len(jobs) > 1 {
		written, err := insertPlainly(ctx, tx, tenant, jobs, f.now)
		if written || err != nil {
			return nil, slices.ContainsFunc(jobs, func(j *fresh) bool { return j.dueSoon(f.now) }), err
		}
	}
	return insertReleasing(ctx, tx, tenant, jobs, f.now)
}

// insertPlainly writes all of the jobs. If a name is taken it writes none, and reports false.
func insertPlainly(
	ctx context.Context, tx *pg.Tx, tenant int32, jobs []*fresh, now time.Time,
) (written bool, err error) {
	// Sorted, so that two batches with the same names wait for each other and do not deadlock.
	slices.SortFunc(jobs, compareNames)
	var b pgx.Batch
	b.Queue(`SAVEPOINT new_jobs`)
	tenants.QueueKeep(&b, tenant)
	if err := queueRows(ctx, &b, tenant, jobs, now); err != nil {
		return false, err
	}
	b.Queue(`RELEASE SAVEPOINT new_jobs`)
	err = tx.SendBatch(ctx, &b).Close()
	switch {
	case isNameTaken(err):
		return false, pg.Exec(ctx, tx, `ROLLBACK TO SAVEPOINT new_jobs`)
	case err != nil:
		return false, fmt.Errorf("writing new jobs: %w", err)
	}
	return true, nil
}

// Each array is expanded in the list of results. In FROM it would be stored once more before its first row is used.
const (
	insertJobRows = `
		INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue, labels, named,
			created_at, updated_at, paused_at, paused_by)
		SELECT unnest($3::uuid[]), $1::integer, 1, unnest($4::text[]), unnest($5::text[]), unnest($6::text[]),
			unnest($7::smallint[]), unnest($8::jsonb[]), unnest($9::boolean[]),
			$2::timestamptz, $2::timestamptz, unnest($10::timestamptz[]), unnest($11::text[])`
	insertVersionRows = `
		INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition, tenant, event)
		SELECT unnest($2::uuid[]), 1, $1::timestamptz, unnest($3::text[]), unnest($4::json[]), unnest($5::integer[]),
			unnest($6::text[])`
)

// queueRows queues the statements that write everything of new jobs.
func queueRows(ctx context.Context, b *pgx.Batch, tenant int32, jobs []*fresh, now time.Time) error {
	ids := pg.Column(jobs, func(j *fresh) uuid.UUID { return j.ID })
	b.Queue(insertJobRows, pg.Prepared{}, tenant, now, ids,
		jobNames(jobs),
		pg.Column(jobs, func(j *fresh) string { return j.State.Stored() }),
		pg.Column(jobs, func(j *fresh) string { return string(j.Definition.Schedule.Kind()) }),
		pg.Column(jobs, func(j *fresh) int16 { return j.lane / 4 }),
		pg.Column(jobs, func(j *fresh) string { return j.labels }),
		pg.Column(jobs, func(j *fresh) bool { return j.State != domain.JobCompleted }),
		pg.Column(jobs, func(j *fresh) *time.Time { return j.PausedAt }),
		pg.Column(jobs, func(j *fresh) *string { return pg.OrNull(j.PausedBy) }))
	b.Queue(insertVersionRows, pg.Prepared{}, now, ids,
		pg.Column(jobs, func(j *fresh) string { return string(j.State) }),
		pg.Column(jobs, func(j *fresh) seal.Document { return seal.Document(j.definition) }),
		pg.Column(jobs, func(j *fresh) *int32 { return j.subscriber() }),
		pg.Column(jobs, func(j *fresh) *string { return j.event() }))
	b.Queue(insertScheduleRows, pg.Prepared{}, tenant, ids,
		pg.Column(jobs, func(j *fresh) *time.Time { return j.scheduledFor }),
		pg.Column(jobs, func(j *fresh) *time.Time { return j.nextRunAt }),
		pg.Column(jobs, func(j *fresh) int16 { return j.lane }),
		pg.Column(jobs, func(j *fresh) bool { return j.enabled }),
		pg.Column(jobs, func(j *fresh) *time.Time { return j.CompletedAt }))
	var gated []uuid.UUID
	var audited audit.Rows
	for _, j := range jobs {
		if claim.Gated(j.Definition) {
			gated = append(gated, j.ID)
		}
		if err := audited.Add(tenant, now, j.creation()); err != nil {
			return err
		}
		j.hidden.Queue(b)
		claim.QueueLimits(b, tenant, j.ID, j.Definition.AllLimits())
	}
	if len(gated) > 0 {
		b.Queue(insertGateRows, pg.Prepared{}, gated)
	}
	audited.Queue(ctx, b)
	return nil
}

// creation returns the entry of the audit log for a new job. The definition stands in it byte for byte.
func (n *fresh) creation() audit.Change {
	after := fmt.Sprintf(`{"version":%d,"state":%q,"definition":%s}`, n.Version, n.State,
		audit.MaskDefinition(n.definition))
	return audit.Change{
		Action: audit.JobCreate, ID: n.ID, Job: n.ID, Name: n.Definition.Name, After: json.RawMessage(after),
	}
}
