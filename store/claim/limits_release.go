package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/pg"
)

// queueRelease sets due what locked limits have room for. It comes after all that the transaction does to runs.
func queueRelease(b *pgx.Batch, keys []limitKey) {
	slices.SortFunc(keys, limitKey.compare)
	b.Queue(`
		WITH next AS MATERIALIZED (
		    SELECT w.run_id, greatest(now(), l.starts_at + w.n * l.apart) AS due
		    FROM (SELECT l.tenant, l.name, punctual.room_at_limit(l) AS room, l.starts_at,
		                 coalesce(1000000 / l.max_starts_per_second, 0) * interval '1 microsecond' AS apart
		          FROM punctual.limits l
		          JOIN `+limitKeys.Unnest("u")+` ON l.tenant = u.tenant AND l.name = u.name
		          OFFSET 0) l
		    CROSS JOIN LATERAL (
		        SELECT y.run_id, row_number() OVER () - 1 AS n
		        FROM (SELECT y.run_id
		              FROM punctual.ready y
		              WHERE y.tenant = l.tenant AND y.waits = 'limit' AND y.waits_on = l.name
		              ORDER BY (y.lane & 3) = 3, left(y.run_id::text, 13), y.lane & 3, y.run_id
		              LIMIT greatest(l.room, 0)) y) w
		    WHERE l.room > 0),
		mine AS MATERIALIZED (
		    SELECT y.run_id
		    FROM punctual.ready y
		    JOIN next n ON n.run_id = y.run_id
		    WHERE y.waits = 'limit'
		    FOR UPDATE OF y SKIP LOCKED)
		UPDATE punctual.ready y
		SET waits = 'turn', due_at = greatest(n.due, y.due_at)
		FROM next n
		JOIN mine m ON m.run_id = n.run_id
		WHERE y.run_id = n.run_id`, limitKeys.Args(keys)...)
}

// limitsDue are the limits of which runs are holders that have ended, and those with room at which a run waits.
const limitsDue = `
SELECT h.tenant, h.name
FROM punctual.limit_holders h
WHERE h.run_id <> ALL(ARRAY(
    SELECT r.id FROM punctual.runs_of(ARRAY(SELECT a.run_id FROM punctual.limit_holders a)) r
    WHERE r.finished_at IS NULL))
UNION
SELECT l.tenant, l.name
FROM punctual.limits l
WHERE EXISTS (SELECT FROM punctual.ready y
              WHERE y.tenant = l.tenant AND y.waits = 'limit' AND y.waits_on = l.name)
  AND punctual.room_at_limit(l) > 0`

// LimitsDue is true while ReleaseLimits has work.
const LimitsDue = `EXISTS (` + limitsDue + `)`

// ReleaseLimits takes limits back from runs that have ended, and sets due what there is room for. It is asked for once
// a run with limits has ended. The heartbeat asks for it too, for runs that were cancelled or lost with their replica.
func (s *Claims) ReleaseLimits(ctx context.Context) (left bool, err error) {
	limited, cancel := context.WithTimeout(ctx, aside.Whole)
	keys, err := pg.All(limited, s.db.Chores, pgx.RowToStructByPos[limitKey], limitsDue)
	cancel()
	if aside.Blames(ctx, err) { // a run of one of them cannot be read
		keys, err = pg.All(ctx, s.db.Chores, pgx.RowToStructByPos[limitKey],
			`SELECT tenant, name FROM punctual.limits ORDER BY tenant, name`)
	}
	if err != nil || len(keys) == 0 {
		return false, pg.Wrap("looking for limits with room", err)
	}
	failed, err := aside.Apart(ctx, keys, func(ctx context.Context, keys []limitKey) error {
		return s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
			tx.Wake()
			return release(ctx, tx, keys)
		})
	})
	for _, f := range failed { // nothing to set aside: the runs that wait at it are looked at again after a while
		err = errors.Join(err, fmt.Errorf("setting due what waits at limit %s: %w", f.Item.Name, f.Err))
	}
	return false, err
}

// ReleaseLimit is ReleaseLimits for one limit that a transaction has changed.
func ReleaseLimit(ctx context.Context, tx *pg.Tx, tenant int32, name string) error {
	tx.Wake()
	return release(ctx, tx, []limitKey{{tenant, name}})
}

// Unlimit sets due all runs that wait at a limit which a transaction has deleted.
func Unlimit(ctx context.Context, tx *pg.Tx, tenant int32, name string) error {
	tx.Wake()
	return pg.Wrap("setting due what waited at a limit", pg.Exec(ctx, tx, `
		UPDATE punctual.ready y
		SET waits = 'turn', waits_on = NULL, due_at = greatest(now(), y.due_at)
		WHERE y.tenant = $1 AND y.waits IN ('turn', 'limit') AND y.waits_on = $2`, tenant, name))
}

func release(ctx context.Context, q pg.Batcher, keys []limitKey) error {
	slices.SortFunc(keys, limitKey.compare)
	args := limitKeys.Args(keys)
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(lockLimits, args...)
	b.Queue(`
		DELETE FROM punctual.limit_holders h
		USING (SELECT u.tenant, u.name, ARRAY(SELECT punctual.holders_of_limit(u.tenant, u.name)) AS alive
		       FROM `+limitKeys.Unnest("u")+` OFFSET 0) l
		WHERE h.tenant = l.tenant AND h.name = l.name AND h.run_id <> ALL(l.alive)`, args...)
	queueRelease(&b, keys)
	return pg.Wrap("setting due what waits at limits", q.SendBatch(ctx, &b).Close())
}

// limitsFollowing asks for ReleaseLimits if a run that ends may have to give limits back. It implements Following.
type limitsFollowing struct {
	Nothing
	freed bool
}

// QueueEnds implements Following.
func (f *limitsFollowing) QueueEnds(_ *pgx.Batch, outcomes []domain.Outcome, _ days.Day) {
	f.freed = slices.ContainsFunc(outcomes, func(o domain.Outcome) bool {
		return len(o.Job.Limits) > 0 && o.Verdict != domain.Await
	})
}

// Asks implements Following.
func (f *limitsFollowing) Asks() []string {
	if f.freed {
		return []string{ChoreLimits}
	}
	return nil
}

// QueueLimits notes which limits the current definition of a job names. The job's row must exist by then.
func QueueLimits(b *pgx.Batch, tenant int32, job uuid.UUID, names []string) {
	if len(names) > 0 {
		b.Queue(`
			INSERT INTO punctual.job_limits (job_id, tenant, name)
			SELECT $1, $2, name FROM unnest($3::text[]) AS n(name) ORDER BY name`, job, tenant, names)
	}
}

// QueueForgetLimits notes that a job names no limits.
func QueueForgetLimits(b *pgx.Batch, job uuid.UUID) {
	b.Queue(`DELETE FROM punctual.job_limits WHERE job_id = $1`, job)
}
