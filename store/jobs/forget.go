package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/claim"
	"punctual/store/names"
	"punctual/store/pg"
)

// walkAgain is how long until rows that a walk has left are looked at again.
const walkAgain = 6 * time.Hour

// walks are what a replica remembers between two passes. Losing it costs only an unneeded look.
type walks struct {
	busy                      sync.Mutex // held during a pass; guards the other fields
	completed, purged, passed walk
}

// walk is how far a chore has come through rows in the order of an instant and an id. It goes on where it ended, so
// that rows that have to stay do not block those that may go. Now and then it starts again.
type walk struct {
	at    time.Time
	id    uuid.UUID
	again time.Time // by this machine's clock
}

// begin continues the walk, or starts it again when it is time.
func (w *walk) begin() {
	if now := time.Now(); now.After(w.again) {
		*w = walk{again: now.Add(walkAgain)}
	}
}

// The search for unfinished runs of a job reads every daily partition that is kept, so it comes after the limit.
const selectCompleted = `
WITH c AS MATERIALIZED (
    SELECT s.job_id AS id, s.completed_at AS at FROM punctual.schedules s
    WHERE s.completed_at < now() - interval '7 days' AND s.completed_at >= $1 AND (s.completed_at, s.job_id) > ($1, $2)
    ORDER BY s.completed_at, s.job_id LIMIT $3)
SELECT c.id, c.at, coalesce(j.state = 'active' AND j.kind IN ('at', 'delay')
       AND (SELECT r.id FROM punctual.runs r WHERE r.job_id = c.id AND r.finished_at IS NULL LIMIT 1) IS NULL, false)
FROM c LEFT JOIN punctual.jobs j ON j.id = c.id ORDER BY c.at, c.id`

// ForgetCompletedJobs deletes one-shots that were completed 7 days ago. Their rows stay, marked as deleted, so that
// their history keeps its name. A one-shot whose run has not ended stays as it is.
func (s *Jobs) ForgetCompletedJobs(ctx context.Context) (forgotten int, left bool, err error) {
	if !s.walks.busy.TryLock() {
		return 0, false, nil
	}
	defer s.walks.busy.Unlock()
	s.walks.completed.begin()
	forgotten, left, err = pg.Repeat(ctx, pg.ForgetBatch, func(ctx context.Context) (found, gone int, err error) {
		found, ids, err := s.walkOn(ctx, &s.walks.completed, selectCompleted)
		if err != nil || len(ids) == 0 {
			return found, 0, err
		}
		gone, err = s.forgetCompleted(ctx, ids)
		return found, gone, err
	})
	if err != nil {
		return forgotten, false, fmt.Errorf("forgetting completed jobs: %w", err)
	}
	return forgotten, left, nil
}

// walkOn reads the next rows of a walk. It returns how many it found and the ids of those that may be deleted. The
// statement selects an id, the instant that the walk is sorted by, and whether the row may be deleted.
func (s *Jobs) walkOn(ctx context.Context, w *walk, sql string, args ...any) (found int, ids []uuid.UUID, err error) {
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(sql, append([]any{w.at, w.id, pg.ForgetBatch}, args...)...).Query(func(rows pgx.Rows) error {
		var free bool
		_, err := pgx.ForEachRow(rows, []any{&w.id, &w.at, &free}, func() error {
			found++
			if free {
				ids = append(ids, w.id)
			}
			return nil
		})
		return err
	})
	err = s.db.Conns(ctx).SendBatch(ctx, &b).Close()
	return found, ids, err
}

// forgetCompleted deletes those of the jobs that still qualify once they are locked.
func (s *Jobs) forgetCompleted(ctx context.Context, ids []uuid.UUID) (forgotten int, err error) {
	err = s.db.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		rows := pg.Query(ctx, tx, `
			SELECT job_id FROM punctual.schedules
			WHERE job_id = ANY($1::uuid[])
			ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED`, ids)
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil {
			return err
		}
		// Checked again under the lock: the job may have been given a new slot since.
		done, err := tx.Exec(ctx, `
			UPDATE punctual.jobs j SET state = 'deleted', named = false, deleted_at = s.completed_at FROM punctual.schedules s
			WHERE j.id = ANY($1::uuid[]) AND s.job_id = j.id AND `+names.JobState+` = 'completed'
			  AND s.completed_at < now() - interval '7 days'`, ids)
		if err != nil {
			return err
		}
		forgotten = int(done.RowsAffected())
		var b pgx.Batch
		claim.QueueForget(&b, ids) // a forgotten job need not be looked at again
		return tx.SendBatch(ctx, &b).Close()
	})
	return forgotten, err
}
