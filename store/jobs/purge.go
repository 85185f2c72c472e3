package jobs

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// PurgeJobs removes jobs that were deleted before the retention began and have no run left, with their versions,
// schedules and gates. Until then their runs keep the job's name.
func (s *Jobs) PurgeJobs(ctx context.Context) (purged int, left bool, err error) {
	if !s.walks.busy.TryLock() {
		return 0, false, nil
	}
	defer s.walks.busy.Unlock()
	s.walks.purged.begin()
	purged, left, err = pg.Repeat(ctx, pg.ForgetBatch, func(ctx context.Context) (found, gone int, err error) {
		found, ids, err := s.walkOn(ctx, &s.walks.purged, selectDeleted, s.options.Retention)
		if err != nil || len(ids) == 0 {
			return found, 0, err
		}
		gone, err = s.purgeJobs(ctx, ids)
		return found, gone, err
	})
	if err != nil {
		return purged, false, fmt.Errorf("purging deleted jobs: %w", err)
	}
	return purged, left, nil
}

const selectDeleted = `
SELECT j.id, j.deleted_at, NOT EXISTS (SELECT FROM punctual.runs r WHERE r.job_id = j.id) FROM (
    SELECT j.id, j.deleted_at FROM punctual.jobs j
    WHERE j.state = 'deleted' AND j.deleted_at < now() - $4::interval AND (j.deleted_at, j.id) > ($1, $2)
    ORDER BY j.deleted_at, j.id LIMIT $3) j
ORDER BY j.deleted_at, j.id`

// purgeJobs deletes jobs. The rows that belong to them are deleted with them.
func (s *Jobs) purgeJobs(ctx context.Context, ids []uuid.UUID) (purged int, err error) {
	err = s.db.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		rows := pg.Query(ctx, tx, `
			SELECT job_id FROM punctual.schedules
			WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR UPDATE SKIP LOCKED`, ids)
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil || len(ids) == 0 {
			return err
		}
		done, err := tx.Exec(ctx, `DELETE FROM punctual.jobs WHERE id = ANY($1::uuid[]) AND state = 'deleted'`, ids)
		purged = int(done.RowsAffected())
		return err
	})
	return purged, err
}
