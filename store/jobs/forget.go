package jobs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/store/claim"
	"punctual/store/days"
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

// unended selects the jobs of a list w(id) that have runs that have not ended, and maybe others. Each such run waits in
// ready, or is in flight under a claim.
func unended(jobs string) string {
	return `unended AS MATERIALIZED (
    SELECT r.job_id FROM punctual.runs_of(ARRAY(
        SELECT unnest(run_ids) FROM punctual.claims
        UNION ALL SELECT y.run_id FROM ` + jobs + ` JOIN punctual.ready y ON y.job_id = w.id)) r
    WHERE r.finished_at IS NULL)`
}

var selectCompleted = `
WITH c AS MATERIALIZED (
    SELECT s.job_id AS id, s.completed_at AS at FROM punctual.schedules s
    WHERE s.completed_at < now() - interval '7 days' AND s.completed_at >= $1 AND (s.completed_at, s.job_id) > ($1, $2)
    ORDER BY s.completed_at, s.job_id LIMIT $3),
` + unended(`c w`) + `
SELECT c.id, c.at, coalesce(j.state = 'active' AND j.kind IN ('at', 'delay')
       AND c.id NOT IN (SELECT job_id FROM unended), false)
FROM c LEFT JOIN punctual.jobs j ON j.id = c.id ORDER BY c.at, c.id`

// ForgetCompletedJobs deletes one-shots that were completed 7 days ago. Their rows stay, marked as deleted, so that
// their history keeps its name. A one-shot whose run has not ended stays as it is. Most have no row in schedules since
// their claim. Those that were completed or changed otherwise have one.
func (s *Jobs) ForgetCompletedJobs(ctx context.Context) (forgotten int, left bool, err error) {
	claimed, leftClaimed, err := pg.Repeat(ctx, completionsBatch, s.forgetClaimed)
	if err != nil {
		return claimed, leftClaimed, pg.Wrap("forgetting completed jobs", err)
	}
	w := &s.walks.completed
	walk := func(ctx context.Context) (found, gone int, err error) {
		return s.walkOn(ctx, w, s.forgetCompleted, selectCompleted)
	}
	others, left, err := s.pass(ctx, w, "forgetting completed jobs", walk)
	return claimed + others, leftClaimed || left, err
}

// completionsBatch is how many completions one transaction looks at. Each has up to admit.BatchSize jobs.
const completionsBatch = 20

// lockBare locks one-shots ($1) that had no row in schedules and are still at the versions ($2) that they had then. An
// edit that is under way shares the job's row, and keeps it from being locked here.
const lockBare = `
SELECT j.id FROM punctual.jobs j JOIN unnest($1::uuid[], $2::int[]) AS u(id, version)
  ON j.id = u.id AND j.version = u.version
WHERE j.state = 'active' ORDER BY j.id FOR UPDATE OF j SKIP LOCKED`

// forgetLocked deletes those of the locked jobs ($1) that have no run that has not ended. It comes in a statement after
// the locks, as a job may have been given a row in schedules before it was locked.
var forgetLocked = `
WITH ` + unended(`unnest($1::uuid[]) w(id)`) + `
UPDATE punctual.jobs j SET state = 'deleted', named = false, deleted_at = c.completed_at
FROM punctual.completions c, unnest(c.job_ids, c.versions) u(id, version)
WHERE c.id = ANY($2::bigint[]) AND j.id = u.id AND j.version = u.version AND j.id = ANY($1::uuid[])
  AND NOT EXISTS (SELECT FROM punctual.schedules s WHERE s.job_id = j.id)
  AND NOT EXISTS (SELECT FROM punctual.dated d WHERE d.job_id = j.id)
  AND j.id NOT IN (SELECT job_id FROM unended)`

// forgetClaimed deletes the one-shots of a few completions. It returns how many completions it found, and how many jobs
// it has deleted.
func (s *Jobs) forgetClaimed(ctx context.Context) (found, gone int, err error) {
	err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := pg.Exec(ctx, tx, pg.ByIndex); err != nil {
			return err
		}
		completions, err := claim.LockCompletions(ctx, tx, completionsBatch)
		if found = len(completions); err != nil || found == 0 {
			return err
		}
		var seen []int64
		var jobs []uuid.UUID
		var versions []int32
		for _, c := range completions {
			seen = append(seen, c.ID)
			jobs, versions = append(jobs, c.Jobs...), append(versions, c.Versions...)
		}
		if jobs, err = pg.All(ctx, tx, pgx.RowTo[uuid.UUID], lockBare, jobs, versions); err != nil {
			return err
		}
		var b pgx.Batch
		b.Queue(forgetLocked, jobs, seen).Exec(func(done pgconn.CommandTag) error {
			gone = int(done.RowsAffected())
			return nil
		})
		claim.QueueCompletionsSeen(&b, seen, walkAgain)
		return tx.SendBatch(ctx, &b).Close()
	})
	return found, gone, err
}

// pass is one pass of a walk, batch by batch. It does nothing while another pass is under way.
func (s *Jobs) pass(
	ctx context.Context, w *walk, doing string, batch func(context.Context) (found, gone int, err error),
) (total int, left bool, err error) {
	if !s.walks.busy.TryLock() {
		return 0, false, nil
	}
	defer s.walks.busy.Unlock()
	if now := time.Now(); now.After(w.again) {
		*w = walk{again: now.Add(walkAgain)}
	}
	total, left, err = pg.Repeat(ctx, pg.ForgetBatch, batch)
	return total, left, pg.Wrap(doing, err)
}

// walkOn reads the next rows of a walk, and removes those that may be deleted. It returns how many it found, and how
// many are gone. The statement selects an id, the instant that the walk is sorted by, and whether the row may be
// deleted.
func (s *Jobs) walkOn(
	ctx context.Context, w *walk, remove func(context.Context, []uuid.UUID) (int, error), sql string, args ...any,
) (found, gone int, err error) {
	var ids []uuid.UUID
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(sql, append([]any{w.at, w.id, pg.ForgetBatch}, args...)...).Query(func(rows pgx.Rows) error {
		return pg.Each3(rows, func(id uuid.UUID, at time.Time, free bool) {
			w.id, w.at = id, at
			found++
			if free {
				ids = append(ids, id)
			}
		})
	})
	err = s.db.Chores.SendBatch(ctx, &b).Close()
	if err != nil || len(ids) == 0 {
		return found, 0, err
	}
	gone, err = remove(ctx, ids)
	return found, gone, err
}

// forgetCompleted deletes those of the jobs that still qualify once they are locked.
func (s *Jobs) forgetCompleted(ctx context.Context, ids []uuid.UUID) (forgotten int, err error) {
	return pg.Do(ctx, s.db.Chores.For(pg.Everybody), func(tx *pg.Tx) (int, error) {
		if ids, err = pg.All(ctx, tx, pgx.RowTo[uuid.UUID], `
			SELECT job_id FROM punctual.schedules
			WHERE job_id = ANY($1::uuid[])
			ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED`, ids); err != nil {
			return 0, err
		}
		// Checked again under the lock: the job may have been given a new slot since.
		done, err := tx.Exec(ctx, `
			UPDATE punctual.jobs j SET state = 'deleted', named = false, deleted_at = s.completed_at FROM punctual.schedules s
			WHERE j.id = ANY($1::uuid[]) AND s.job_id = j.id AND punctual.job_state(j, s) = 'completed'
			  AND s.completed_at < now() - interval '7 days'
			  AND NOT EXISTS (SELECT FROM punctual.dated d WHERE d.job_id = j.id)`, ids)
		if err != nil {
			return 0, err
		}
		return int(done.RowsAffected()), claim.Forget(ctx, tx, ids) // a forgotten job need not be looked at again
	})
}

// PurgeJobs removes jobs that were deleted before the retention began and have no run left, with their versions,
// schedules and gates. Until then their runs keep the job's name.
func (s *Jobs) PurgeJobs(ctx context.Context) (purged int, left bool, err error) {
	w := &s.walks.purged
	return s.pass(ctx, w, "purging deleted jobs", func(ctx context.Context) (found, gone int, err error) {
		return s.walkOn(ctx, w, s.purgeUnneeded, selectDeleted, s.options.Retention)
	})
}

const selectDeleted = `
SELECT j.id, j.deleted_at, true FROM punctual.jobs j
WHERE j.state = 'deleted' AND j.deleted_at < now() - $4::interval AND (j.deleted_at, j.id) > ($1, $2)
ORDER BY j.deleted_at, j.id LIMIT $3`

// purgeUnneeded deletes those of the jobs that have no run left.
func (s *Jobs) purgeUnneeded(ctx context.Context, ids []uuid.UUID) (purged int, err error) {
	err = (days.Search{Index: days.All}).Forth(ctx, s.db.Chores, func(
		ctx context.Context, q pg.Querier, w days.Window,
	) (bool, error) {
		ran, err := pg.Map[uuid.UUID, bool](ctx, q, `
			SELECT w.id, true FROM unnest($1::uuid[]) w(id)
			WHERE EXISTS (SELECT FROM punctual.runs r WHERE r.job_id = w.id AND `+w.On(`r.id`)+`)`, ids)
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return ran[id] })
		return len(ids) == 0, err
	})
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return s.purgeJobs(ctx, ids)
}

// purgeJobs deletes jobs. The rows that belong to them are deleted with them.
func (s *Jobs) purgeJobs(ctx context.Context, ids []uuid.UUID) (purged int, err error) {
	return pg.Do(ctx, s.db.Chores.For(pg.Everybody), func(tx *pg.Tx) (int, error) {
		locked, err := pg.All(ctx, tx, pgx.RowTo[uuid.UUID], `
			SELECT job_id FROM punctual.schedules
			WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR UPDATE SKIP LOCKED`, ids)
		if err != nil {
			return 0, err
		}
		if ids, err = pg.All(ctx, tx, pgx.RowTo[uuid.UUID], `
			SELECT id FROM punctual.jobs j
			WHERE id = ANY($1::uuid[]) AND state = 'deleted' AND (id = ANY($2::uuid[])
			  OR NOT EXISTS (SELECT FROM punctual.schedules s WHERE s.job_id = j.id))
			ORDER BY id FOR UPDATE SKIP LOCKED`, ids, locked); err != nil || len(ids) == 0 {
			return 0, err
		}
		var b pgx.Batch
		queueDatedWork(&b, ids)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return 0, err
		}
		done, err := tx.Exec(ctx, `DELETE FROM punctual.jobs j WHERE id = ANY($1::uuid[])
			AND NOT EXISTS (SELECT FROM punctual.dated d WHERE d.job_id = j.id)`, ids)
		return int(done.RowsAffected()), err
	})
}
