package history

import (
	"context"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// A feed has every run whose end was committed since it began, except those that it has forgotten: it is whole from
// the oldest row that is left. When a run ended is by the clock of a replica, and when that was recorded is by another,
// so ends at either edge are left out ($1). In the other direction only rows are looked at whose runs are all still
// kept ($5).
//
// Runs and rows are compared by EXCEPT, which sorts or hashes both. The planner does not know how many runs a row has:
// for NOT EXISTS it compared each run with each row, which took minutes for 40,000 runs.
const (
	feeds = `
WITH feeds AS MATERIALIZED (
    SELECT f.tenant, f.id,
           CASE WHEN f.gone_id = 0 THEN f.since
                ELSE (SELECT c.recorded_at FROM punctual.changes c WHERE c.feed = f.id ORDER BY c.xid, c.id LIMIT 1)
           END + $1::interval AS since
    FROM punctual.change_feeds f
    WHERE $2 = 0 OR f.tenant = $2)`
	shown = `
SELECT 'feed' AS kind, t.name AS tenant, coalesce(j.name, '') AS job, r.job_id, r.scheduled_for AS slot,
       ARRAY[r.id] AS runs, `
	lacking = feeds + `,
lacks AS MATERIALIZED (
    SELECT f.id AS feed, r.id
    FROM feeds f
    JOIN punctual.runs r ON r.tenant = f.tenant AND r.id >= $5
    WHERE r.finished_at > greatest(f.since, $6)
      AND r.finished_at < least(` + pg.Now + ` - $1::interval, $7)
      AND ($3::uuid IS NULL OR r.job_id = $3)
      AND ($4 = '' OR EXISTS (SELECT FROM punctual.jobs j WHERE j.id = r.job_id AND j.name = $4))
    EXCEPT
    SELECT c.feed, unnest(c.runs) FROM punctual.changes c
    ORDER BY id LIMIT $8)` + shown + `
       'the feed of changes does not have it, though it ended at ' || punctual.stamp(r.finished_at) AS detail
FROM punctual.runs_of(ARRAY(SELECT id FROM lacks)) r
JOIN punctual.tenants t ON t.id = r.tenant
LEFT JOIN punctual.jobs j ON j.id = r.job_id
ORDER BY r.id`
	untrue = feeds + `,
wrong AS MATERIALIZED (
    SELECT c.feed, c.id
    FROM (SELECT c.feed, unnest(c.runs) AS id FROM punctual.changes c WHERE c.recorded_at BETWEEN $6 AND $7) c
    WHERE c.id >= $5 AND c.feed IN (SELECT f.id FROM feeds f)
    EXCEPT
    SELECT f.id, r.id
    FROM feeds f
    JOIN punctual.runs r ON r.tenant = f.tenant AND r.id >= $5
    WHERE r.finished_at IS NOT NULL)` + shown + `
       CASE WHEN r.finished_at IS NULL THEN 'the feed of changes has it, and it has not ended'
            ELSE 'the feed of changes has it, and it is of another tenant' END AS detail
FROM punctual.runs_of(ARRAY(SELECT id FROM wrong)) r
JOIN wrong w ON w.id = r.id
JOIN feeds f ON f.id = w.feed
JOIN punctual.tenants t ON t.id = f.tenant
LEFT JOIN punctual.jobs j ON j.id = r.job_id
WHERE ($3::uuid IS NULL OR r.job_id = $3) AND ($4 = '' OR j.name = $4)
ORDER BY r.id LIMIT $8`
)

// feed compares the feeds of changes with the runs that have ended.
func (v *verification) feed(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range []string{lacking, untrue} {
		if err := v.find(ctx, tx, "comparing the feeds of changes", byName, sql, v.options.Grace, v.tenant,
			pg.OrNull(v.only), v.name, v.firstID(), v.summary.From, v.summary.To, mostNamed); err != nil {
			return err
		}
	}
	return nil
}
