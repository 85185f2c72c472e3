package fleet

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// OverdueAfter is how long after it was due work counts as overdue.
const OverdueAfter = 10 * time.Second

// mostOverdue is how far the overdue work of a lane is counted.
const mostOverdue = 1000

// Overdue counts the work of a queue that has waited for nothing but a replica for OverdueAfter.
type Overdue struct {
	Queue string
	Count int
}

// SelectOverdue counts what SelectWaits calls the work that waits for nothing, due $2 ago or earlier. Of each lane it
// reads at most $1 rows, in the order of the index that claims read.
var SelectOverdue = waitsOf + `,
overdue AS MATERIALIZED (
    SELECT l.queue, sum((` + overdueOf(`schedules`, `next_run_at`, `s.enabled`) + `) +
                        (` + overdueOf(`ready`, `due_at`, `s.waits = 'turn'`) + `)) AS n
    FROM lanes l
    WHERE (SELECT d.frozen_at FROM punctual.deployment d) IS NULL
    GROUP BY l.queue)
SELECT q.name, CASE WHEN punctual.is_served(q.name) THEN coalesce(o.n, 0)::integer ELSE 0 END
FROM punctual.queues q
LEFT JOIN overdue o ON o.queue = q.id
ORDER BY q.name`

func overdueOf(work, due, condition string) string {
	return `SELECT count(*) FROM (
	            SELECT s.tenant FROM punctual.` + work + ` s
	            WHERE ` + condition + ` AND s.lane = l.lane AND s.` + due + ` <= now() - $2::interval
	            ORDER BY s.` + due + ` LIMIT $1) s
	        WHERE s.tenant <> ALL(ARRAY(SELECT tenant FROM limited UNION ALL SELECT id FROM frozen))`
}

// Overdue counts the overdue work of each queue, of all tenants together.
func (f *Fleet) Overdue(ctx context.Context) (all []Overdue, err error) {
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(SelectOverdue, mostOverdue, OverdueAfter).Query(pg.Into(&all, pgx.RowToStructByPos[Overdue]))
	err = f.db.SendBatch(ctx, &b).Close()
	return all, pg.Wrap("counting overdue work", err)
}
