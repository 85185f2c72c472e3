package events

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/pg"
)

// forget deletes old events, the oldest first, whose runs are no longer kept: these lie in the partition of the event's
// day. Reruns and replays lie in others, so those that have not ended keep the event, too, and so do dead letters. Each
// batch starts behind the events that an earlier one has left.
const forget = `
WITH old AS MATERIALIZED (
    SELECT id FROM punctual.events WHERE id > $1 AND id < $2 AND id <> ALL($4::uuid[])
    ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED),
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
	f := forgetting{events: s, till: domain.FirstRunID(now.Add(-s.options.Kept)), size: pg.ForgetBatch}
	forgotten, left, err = pg.Repeat(ctx, pg.ForgetBatch, f.batch)
	return forgotten, left, pg.Wrap("removing old events", errors.Join(f.stuck, err))
}

// overEvents are the events whose fan-out is over.
var overEvents = aside.Rows{Kind: aside.Event, Table: "events", ID: "id", Are: "r.ended_at IS NOT NULL"}

// forgetting is the removal of old events. It passes over those that are set aside until that is forgotten: if each was
// tried again after its rest, there would always be some that hold it up.
type forgetting struct {
	events *Events
	after  uuid.UUID // the last event that was looked at
	till   uuid.UUID
	size   int   // of the next batch: smaller after a failure
	stuck  error // why the last event could not be removed that keeps no other
}

// batch removes a batch. It says that it found a whole one unless there are no more.
func (f *forgetting) batch(ctx context.Context) (found, gone int, err error) {
	var b pgx.Batch
	b.Queue(pg.Briskly)
	b.Queue(forget, f.after, f.till, f.size, f.events.aside.Of(aside.Event)).
		QueryRow(pg.IntoPlaces(&found, &gone, &f.after))
	err = f.events.db.Chores.SendBatch(ctx, &b).Close()
	switch {
	case err == nil && found < f.size:
		return 0, gone, nil
	case err == nil:
		f.size = min(2*f.size, pg.ForgetBatch)
	case !aside.Blames(ctx, err):
		return 0, 0, err
	case f.size > 1:
		f.size = max(f.size/32, 1)
	default:
		f.stuck = err
		limited, cancel := context.WithTimeout(ctx, aside.Part)
		defer cancel()
		over := f.events.db.Chores.QueryRow(limited, `
			SELECT id FROM punctual.events WHERE id > $1 AND id < $2 AND id <> ALL($3::uuid[]) ORDER BY id LIMIT 1`,
			f.after, f.till, f.events.aside.Of(aside.Event)).Scan(&f.after)
		if over != nil && !f.events.aside.SetUnreadable(ctx, overEvents, over) {
			return 0, 0, err
		}
	}
	return pg.ForgetBatch, gone, nil
}
