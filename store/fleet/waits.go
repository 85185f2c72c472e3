package fleet

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Wait is how long the oldest work of a queue has waited for something.
type Wait struct {
	Queue  string
	For    string // nothing, host, limit, gate or queue
	Oldest time.Duration
}

// oldestDue is SQL for the oldest due work of a lane with a condition on its tenant, in the order of the index that
// claims read. It reads at most $1 rows, and none unless there may be such work.
func oldestDue(maybe, tenants string) string {
	oldest := func(work, due, condition, aside string) string {
		return `(SELECT s.at FROM (
		             SELECT s.` + due + ` AS at, s.tenant FROM punctual.` + work + ` s
		             WHERE ` + maybe + ` AND ` + condition + ` AND s.lane = l.lane AND s.` + due + ` <= now()
		               AND ` + aside + `
		             ORDER BY s.` + due + ` LIMIT $1) s
		         WHERE ` + tenants + ` ORDER BY s.at LIMIT 1)`
	}
	return `least(` + oldest(`schedules`, `next_run_at`, `s.enabled`, notAside(`s.job_id`, `slot`)) + `,
	              ` + oldest(`ready`, `due_at`, `s.waits = 'turn'`,
		notAside(`s.run_id`, `run`)) + `)`
}

// notAside leaves out what is set aside: it waits for no replica.
func notAside(id, kind string) string {
	return id + ` <> ALL(ARRAY(SELECT a.item FROM punctual.set_aside a WHERE a.kind = '` + kind + `'))`
}

// waitsOf begins a query for what waits: the lanes, and the tenants whose work waits for something else.
const waitsOf = `
WITH lanes AS MATERIALIZED (
    SELECT q.id AS queue, (q.id * 4 + p)::smallint AS lane FROM punctual.queues q, generate_series(0, 3) p),
frozen AS MATERIALIZED (SELECT t.id FROM punctual.tenants t WHERE t.frozen_at IS NOT NULL),
limited AS MATERIALIZED (
    SELECT u.tenant FROM punctual.tenant_usage u WHERE punctual.held_by(u.held_by, u.held_at) IS NOT NULL)`

// parkedFor is SQL for runs that wait for something, $1 of them at most.
func parkedFor(what string) string {
	return `(SELECT s.lane / 4 AS queue, s.waits, s.since FROM punctual.ready s
	         WHERE s.waits = '` + what + `' AND s.tenant NOT IN (SELECT id FROM frozen) LIMIT $1)`
}

// SelectWaits selects how long the oldest work of each queue has waited, by what it waits for. Work of frozen tenants
// is left out. Due work of a tenant at a limit, or at a limit that jobs share, waits for that, and all due work of a
// queue that nobody serves for the queue.
var SelectWaits = waitsOf + `,
due AS MATERIALIZED (
    SELECT l.queue,
           min(` + oldestDue(`true`,
	`s.tenant <> ALL(ARRAY(SELECT tenant FROM limited UNION ALL SELECT id FROM frozen))`) + `) AS free,
           min(` + oldestDue(`EXISTS (SELECT FROM limited)`,
	`s.tenant = ANY(ARRAY(SELECT tenant FROM limited EXCEPT SELECT id FROM frozen))`) + `) AS held
    FROM lanes l
    WHERE (SELECT d.frozen_at FROM punctual.deployment d) IS NULL
    GROUP BY l.queue),
parked AS MATERIALIZED (
    ` + parkedFor(`host`) + ` UNION ALL ` + parkedFor(`gate`) + ` UNION ALL ` + parkedFor(`limit`) + `)
SELECT q.name, w.waits_for, coalesce(greatest(now() - w.since, '0'), '0')
FROM punctual.queues q
LEFT JOIN due ON due.queue = q.id
CROSS JOIN LATERAL (SELECT punctual.is_served(q.name) AS served) s
CROSS JOIN LATERAL (VALUES
    ('nothing', CASE WHEN s.served THEN due.free END),
    ('limit', CASE WHEN s.served THEN least(due.held, (
                  SELECT min(p.since) FROM parked p WHERE p.queue = q.id AND p.waits = 'limit')) END),
    ('queue', CASE WHEN NOT s.served THEN least(due.free, due.held) END),
    ('host', (SELECT min(p.since) FROM parked p WHERE p.queue = q.id AND p.waits = 'host')),
    ('gate', (SELECT min(p.since) FROM parked p WHERE p.queue = q.id AND p.waits = 'gate'))
    ) w (waits_for, since)
ORDER BY q.name, w.waits_for`

// Waits returns how long the oldest work of each queue has waited for what, of all tenants together.
func (f *Fleet) Waits(ctx context.Context) (waits []Wait, err error) {
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(SelectWaits, pg.DepthCap).Query(pg.Into(&waits, pgx.RowToStructByPos[Wait]))
	err = f.db.SendBatch(ctx, &b).Close()
	return waits, pg.Wrap("reading how long due work waits", err)
}
