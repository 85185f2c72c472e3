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
	// Those that a binary of schema 2 has completed have it only in jobs.
	var ids []uuid.UUID
	var b pgx.Batch
	b.Queue(byIndex)
	b.Queue(`
		SELECT c.id FROM (
			SELECT j.id, s.completed_at FROM punctual.schedules s JOIN punctual.jobs j ON j.id = s.job_id
			WHERE s.completed_at < now() - interval '7 days' AND s.scheduled_for IS NULL AND j.state IN ('active', 'completed') AND j.kind IN ('at', 'delay')
			UNION
			SELECT j.id, j.completed_at FROM punctual.jobs j
			WHERE j.state = 'completed' AND j.completed_at < now() - interval '7 days' AND j.kind IN ('at', 'delay')) c
		WHERE (SELECT r.id FROM punctual.runs r WHERE r.job_id = c.id AND r.finished_at IS NULL LIMIT 1) IS NULL
		ORDER BY c.completed_at LIMIT $1`, forgetBatch).Query(func(rows pgx.Rows) (err error) {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		return err
	})
	if err := s.conns(ctx).SendBatch(ctx, &b).Close(); err != nil {
		return 0, fmt.Errorf("looking for completed jobs: %w", err)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	forgotten := 0
	err := s.inTx(ctx, everybody, func(tx pgx.Tx) error {
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
			UPDATE punctual.jobs j SET state = 'deleted', deleted_at = now(), completed_at = `+completedAt+` FROM punctual.schedules s
			WHERE j.id = ANY($1::uuid[]) AND s.job_id = j.id AND `+jobState+` = 'completed' AND `+completedAt+` < now() - interval '7 days'`, ids)
		if err != nil {
			return err
		}
		forgotten = int(done.RowsAffected())
		// What is forgotten need not be looked at again.
		_, err = tx.Exec(ctx, `
			UPDATE punctual.schedules s SET completed_at = NULL FROM punctual.jobs j
			WHERE s.job_id = ANY($1::uuid[]) AND j.id = s.job_id AND j.state = 'deleted'`, ids)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("forgetting completed jobs: %w", err)
	}
	return forgotten, nil
}

// ForgetIdempotencyKeys deletes keys older than 24 hours, up to 1,000 of them, and returns how many.
func (s *Store) ForgetIdempotencyKeys(ctx context.Context) (int, error) {
	done, err := s.conns(ctx).Exec(ctx, `
		DELETE FROM punctual.idempotency_keys k USING (
			SELECT tenant, key FROM punctual.idempotency_keys WHERE created_at < now() - interval '24 hours'
			ORDER BY created_at LIMIT $1 FOR UPDATE SKIP LOCKED) old
		WHERE k.tenant = old.tenant AND k.key = old.key`, forgetBatch)
	if err != nil {
		return 0, fmt.Errorf("forgetting idempotency keys: %w", err)
	}
	return int(done.RowsAffected()), nil
}
