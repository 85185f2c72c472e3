package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// forgetBatch is how many rows one pass of a chore takes.
const forgetBatch = 1000

// ForgetCompletedJobs deletes one-shots that were completed 7 days ago, up to 1,000 of them, and returns
// how many. Their rows stay as those of deleted jobs, so that their history keeps its name. One whose run
// is not over yet stays as it is.
func (s *Store) ForgetCompletedJobs(ctx context.Context) (int, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT j.id FROM punctual.jobs j
		WHERE j.state = 'completed' AND j.completed_at < now() - interval '7 days' AND j.kind IN ('at', 'delay')
		  AND NOT EXISTS (SELECT FROM punctual.runs r WHERE r.job_id = j.id AND r.finished_at IS NULL)
		ORDER BY j.completed_at LIMIT $1`, forgetBatch)
	if err != nil {
		return 0, fmt.Errorf("looking for completed jobs: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return 0, fmt.Errorf("looking for completed jobs: %w", err)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	forgotten := 0
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT job_id FROM punctual.schedules WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED`, ids)
		if err != nil {
			return err
		}
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil {
			return err
		}
		// Under the lock: it may have been given a new slot since.
		done, err := tx.Exec(ctx, `
			UPDATE punctual.jobs SET state = 'deleted', deleted_at = now()
			WHERE id = ANY($1::uuid[]) AND state = 'completed' AND completed_at < now() - interval '7 days'`, ids)
		forgotten = int(done.RowsAffected())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("forgetting completed jobs: %w", err)
	}
	return forgotten, nil
}

// ForgetIdempotencyKeys deletes keys older than 24 hours, up to 1,000 of them, and returns how many.
func (s *Store) ForgetIdempotencyKeys(ctx context.Context) (int, error) {
	done, err := s.pool.Exec(ctx, `
		DELETE FROM punctual.idempotency_keys k USING (
			SELECT tenant, key FROM punctual.idempotency_keys WHERE created_at < now() - interval '24 hours'
			ORDER BY created_at LIMIT $1 FOR UPDATE SKIP LOCKED) old
		WHERE k.tenant = old.tenant AND k.key = old.key`, forgetBatch)
	if err != nil {
		return 0, fmt.Errorf("forgetting idempotency keys: %w", err)
	}
	return int(done.RowsAffected()), nil
}
