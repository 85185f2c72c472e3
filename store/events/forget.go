package events

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// forget deletes old events, the oldest first, whose runs are no longer kept: these lie in the partition of the event's
// day. Reruns and replays lie in others, so those that have not ended keep the event, too, and so do dead letters. Each
// batch starts behind the events that an earlier one has left.
const forget = `
WITH old AS MATERIALIZED (
    SELECT id FROM punctual.events WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED),
needed AS MATERIALIZED (
    SELECT r.caused_by
    FROM punctual.runs_of(ARRAY(
        SELECT y.run_id FROM punctual.ready y WHERE EXISTS (SELECT FROM old)
        UNION ALL
        SELECT unnest(c.run_ids) FROM punctual.claims c WHERE EXISTS (SELECT FROM old))) r
    WHERE r.caused_by IS NOT NULL),
gone AS (
    DELETE FROM punctual.events e
    USING old
    WHERE e.id = old.id AND e.turn_at IS NULL
      AND NOT punctual.has_partition('runs', punctual.day_of(e.id))
      AND NOT EXISTS (SELECT FROM punctual.dead_letters d WHERE d.caused_by = e.id)
      AND NOT EXISTS (SELECT FROM needed n WHERE n.caused_by = e.id)
    RETURNING e.id)
SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM gone),
       coalesce((SELECT id FROM old ORDER BY id DESC LIMIT 1), $1)`

// Forget deletes events that are older than any run that is kept, unless their fan-out is not over, or a run or a dead
// letter still needs them.
func (s *Events) Forget(ctx context.Context) (forgotten int, left bool, err error) {
	now, err := pg.Clock(ctx, s.db.Chores)
	if err != nil {
		return 0, false, err
	}
	after, till := uuid.Nil, domain.FirstRunID(now.Add(-s.options.Kept))
	forgotten, left, err = pg.Repeat(ctx, pg.ForgetBatch, func(ctx context.Context) (found, gone int, err error) {
		var b pgx.Batch
		b.Queue(pg.ByIndex)
		b.Queue(forget, after, till, pg.ForgetBatch).QueryRow(pg.IntoPlaces(&found, &gone, &after))
		err = s.db.Chores.SendBatch(ctx, &b).Close()
		return found, gone, err
	})
	return forgotten, left, pg.Wrap("removing old events", err)
}
