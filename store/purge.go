package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// purgeBatch is how many deleted jobs are looked at at once, and purgeBatches how often in one pass.
	purgeBatch   = 500
	purgeBatches = 10
	// purgeEvery is how often all deleted jobs are looked through: each look asks every partition for runs
	// of the job.
	purgeEvery = time.Hour
)

// PurgeJobs removes jobs that were deleted before the retention began and have no run left, with their
// versions, schedules and gates. Until then their runs keep the job's name.
func (s *Store) PurgeJobs(ctx context.Context) error {
	if !s.tidy.busy.TryLock() {
		return nil
	}
	defer s.tidy.busy.Unlock()
	cursor := &s.tidy.purge
	if time.Until(cursor.next) > 0 {
		return nil
	}
	for range purgeBatches {
		seen, runless, err := s.purgeable(ctx, cursor)
		if err == nil && len(runless) > 0 {
			err = s.purgeJobs(ctx, runless)
		}
		if err != nil {
			return fmt.Errorf("purging deleted jobs: %w", err)
		}
		if seen < purgeBatch {
			*cursor = purgeCursor{next: time.Now().Add(purgeEvery)}
			break
		}
	}
	return nil
}

// purgeable moves the cursor over the next deleted jobs, and returns those of them that have no run.
func (s *Store) purgeable(ctx context.Context, cursor *purgeCursor) (seen int, runless []uuid.UUID, err error) {
	rows, err := s.conns(ctx).Query(ctx, `
		SELECT j.id, j.deleted_at, NOT EXISTS (SELECT FROM punctual.runs r WHERE r.job_id = j.id) FROM punctual.jobs j
		WHERE j.state = 'deleted' AND j.deleted_at < now() - $1::interval AND (j.deleted_at, j.id) > ($2::timestamptz, $3::uuid)
		ORDER BY j.deleted_at, j.id LIMIT $4`, s.options.Retention, cursor.deletedAt, cursor.id, purgeBatch)
	if err != nil {
		return 0, nil, err
	}
	var free bool
	_, err = pgx.ForEachRow(rows, []any{&cursor.id, &cursor.deletedAt, &free}, func() error {
		seen++
		if free {
			runless = append(runless, cursor.id)
		}
		return nil
	})
	return seen, runless, err
}

// purgeJobs deletes jobs; what belongs to them goes with them.
func (s *Store) purgeJobs(ctx context.Context, ids []uuid.UUID) error {
	return s.inTx(ctx, everybody, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT job_id FROM punctual.schedules WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR UPDATE SKIP LOCKED`, ids)
		if err != nil {
			return err
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil || len(ids) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM punctual.jobs WHERE id = ANY($1::uuid[]) AND state = 'deleted'`, ids)
		return err
	})
}
