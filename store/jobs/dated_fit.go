package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/aside"
	"punctual/store/pg"
)

// ChoreDated is the name of the chore that makes dated runs fit their jobs again.
const ChoreDated = "dated"

// AnyDatedWork is true if the chore has work.
const AnyDatedWork = `EXISTS (SELECT FROM punctual.dated_work)`

// datedBatch is how many dated runs one transaction moves or removes.
const datedBatch = 1000

// queueDatedWork notes that the dated runs of jobs may not fit the jobs any more. The caller has locked the jobs' rows
// in schedules.
func queueDatedWork(b *pgx.Batch, jobs []uuid.UUID) {
	b.Queue(`
		INSERT INTO punctual.dated_work (job_id, tenant)
		SELECT j.id, j.tenant
		FROM punctual.jobs j
		WHERE j.id = ANY($1::uuid[]) AND EXISTS (SELECT FROM punctual.dated d WHERE d.job_id = j.id)
		ORDER BY j.id
		ON CONFLICT (job_id) DO UPDATE SET after = ''`, jobs)
}

// datedWork are the jobs whose dated runs may not fit them.
var datedWork = aside.Rows{Kind: aside.Dated, Table: "dated_work", ID: "job_id", Are: "true"}

// FitDated makes the dated runs of one job fit the job, a batch of them: those of an active job wait in its queue with
// its priority, and those of a deleted job are removed. When all those are removed, one skip with their number says so.
// It passes over runs that another transaction writes; the claim that meets such a run puts it right.
func (s *Jobs) FitDated(ctx context.Context) (wait time.Duration, left bool, err error) {
	var job uuid.UUID
	err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		var after string
		err := tx.QueryRow(ctx, `
			SELECT job_id, after FROM punctual.dated_work WHERE job_id <> ALL($1::uuid[])
			ORDER BY looked_at LIMIT 1 FOR UPDATE SKIP LOCKED`, s.aside.Resting(aside.Dated)).Scan(&job, &after)
		if left, err = pg.Some(err); !left {
			return err
		}
		var h *jobRow
		var b pgx.Batch
		b.Queue(`SELECT `+jobColumns+` FROM `+jobTables+` WHERE j.id = $1`, job).Query(pg.IntoOne(&h, scanJob))
		f, err := readFacts(ctx, tx, &b, pg.Everybody)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if h == nil || h.State == domain.JobPaused {
			return endDatedWork(ctx, tx, job)
		}
		if h.State == domain.JobDeleted {
			return s.removeDated(ctx, tx, h, after, f.now)
		}
		last, err := pg.One(ctx, tx, pgx.RowTo[*string], `
			WITH batch AS (
			    SELECT key FROM punctual.dated WHERE job_id = $1 AND key > $2
			    ORDER BY key LIMIT $3 FOR UPDATE SKIP LOCKED),
			moved AS (
			    UPDATE punctual.dated d SET lane = $4, waits = 'turn'
			    FROM batch WHERE d.job_id = $1 AND d.key = batch.key
			      AND (d.lane <> $4 OR d.waits = 'aside'))
			SELECT max(key) FROM batch`, job, after, datedBatch, h.lane)
		if err != nil {
			return err
		}
		tx.Wake() // what was set aside may be due
		if last == nil {
			return endDatedWork(ctx, tx, job)
		}
		return pg.Exec(ctx, tx, `
			UPDATE punctual.dated_work SET after = $2, looked_at = clock_timestamp() WHERE job_id = $1`, job, *last)
	})
	if job == uuid.Nil && s.aside.SetUnreadable(ctx, datedWork, err) {
		return 0, true, nil
	}
	if left, err = s.aside.One(ctx, aside.Dated, job, left, err); err != nil {
		return 0, false, fmt.Errorf("fitting dated runs to their jobs: %w", err)
	}
	return 0, left, nil
}

// sweptAfter is how long after the delete of a job the sweep looks for its dated runs. Those that are committed later
// are found when they are due, or when the job is to be purged.
const sweptAfter = "10 minutes"

const sweepDated = `
INSERT INTO punctual.dated_work (job_id, tenant)
SELECT j.id, j.tenant FROM punctual.jobs j
WHERE j.state = 'deleted' AND j.deleted_at > now() - interval '` + sweptAfter + `'
  AND EXISTS (SELECT FROM punctual.dated d WHERE d.job_id = j.id)
UNION
SELECT d.job_id, d.tenant
FROM punctual.queues q CROSS JOIN generate_series(0, 2) p
CROSS JOIN LATERAL (
    SELECT d.job_id, d.tenant, d.lane FROM punctual.dated d
    WHERE d.lane = (q.id * 4 + p)::smallint AND d.waits <> 'aside' AND d.due_at < now() - interval '1 minute'
    ORDER BY d.due_at LIMIT 1000) d
JOIN punctual.schedules s ON s.job_id = d.job_id AND s.lane <> d.lane
ORDER BY 1
ON CONFLICT (job_id) DO NOTHING`

// SweepDated notes the jobs that were deleted lately and have dated runs, and those with overdue ones in a queue that
// the job has left, which nobody may serve: a caller's transaction locks no job, and may commit after the delete or
// the edit.
func (s *Jobs) SweepDated(ctx context.Context) (found int, left bool, err error) {
	found, err = pg.Do(ctx, s.db.Chores.For(pg.Everybody), func(tx *pg.Tx) (int, error) {
		done, err := tx.Exec(ctx, sweepDated)
		return int(done.RowsAffected()), err
	})
	return found, false, pg.Wrap("looking for dated runs of deleted jobs", err)
}

// removeDated removes a batch of the dated runs of a deleted job. When none is left it records how many there were.
func (s *Jobs) removeDated(ctx context.Context, tx *pg.Tx, h *jobRow, after string, now time.Time) error {
	var removed int
	var skip domain.Skip
	var first, last *time.Time
	err := tx.QueryRow(ctx, `
		WITH batch AS (
		    SELECT key FROM punctual.dated WHERE job_id = $1 AND key > $2 ORDER BY key LIMIT $3 FOR UPDATE SKIP LOCKED),
		gone AS (
		    DELETE FROM punctual.dated d USING batch WHERE d.job_id = $1 AND d.key = batch.key RETURNING d.key, d.due_at),
		sum AS (SELECT count(*)::int AS n, max(key) AS key, min(due_at) AS first, max(due_at) AS last FROM gone)
		UPDATE punctual.dated_work w
		SET looked_at = clock_timestamp(), after = coalesce(sum.key, w.after), removed = w.removed + n,
		    first = least(w.first, sum.first), last = greatest(w.last, sum.last)
		FROM sum WHERE w.job_id = $1
		RETURNING n, w.removed, w.first, w.last`, h.ID, after, datedBatch).Scan(&removed, &skip.Count, &first, &last)
	if err != nil || removed > 0 {
		return err
	}
	if after != "" { // rows may have been committed among those that were looked at
		return pg.Exec(ctx, tx, `UPDATE punctual.dated_work SET after = '' WHERE job_id = $1`, h.ID)
	}
	if job := s.compiled(h); job != nil && first != nil {
		skip.Reason, skip.Trigger, skip.First, skip.Last = domain.ReasonJobDeleted, domain.TriggerManual, *first, *last
		if skip.Count > jobspec.MaxCount {
			skip.Count = 0
		}
		if err := s.claims.Settle(ctx, tx, job, h.lane, domain.Plan{Skips: []domain.Skip{skip}}, now); err != nil {
			return err
		}
	}
	return endDatedWork(ctx, tx, h.ID)
}

func endDatedWork(ctx context.Context, tx *pg.Tx, job uuid.UUID) error {
	return pg.Exec(ctx, tx, `DELETE FROM punctual.dated_work WHERE job_id = $1`, job)
}
