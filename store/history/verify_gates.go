package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// mostNamed is how many violations of a kind Verify names at most, of a page of jobs, of a day or in all.
const mostNamed = 100

// apart is by how much the end of a run may seem to be later than the start of the next one: replicas estimate the
// database's clock, and a claim's transaction may have begun before the end that it waited for.
const apart = 5 * time.Second

// selectTogether finds runs ($1 to $4: the jobs, with the versions under which their runs must not overlap, and until
// when) that began while another run of their job was open. Of a run the row has the latest claim, and what was claimed
// before it and ends after its first start was open with it. A run that replaces another waits for its end like all
// others. An edit may let a run in that was made before, so the last runs before an edit are left out ($6). Steps are
// under the gate of their workflow.
var selectTogether = `
SELECT 'together' AS kind, t.name AS tenant, j.name AS job, x.job_id, x.scheduled_for AS slot,
       ARRAY[o.id, x.id] AS runs,
       'the run began at ' || punctual.stamp(x.began) || ' while another was open; the runs of the job must not overlap'
       AS detail
FROM (
    SELECT r.id, r.job_id, r.tenant, r.scheduled_for, r.claimed_at, s.first, s.last, b.began,
           max(coalesce(r.finished_at, 'infinity')) OVER (
               PARTITION BY r.job_id, s.first ORDER BY r.claimed_at, r.id
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS open_until,
           coalesce(r.claimed_at < s.until - $6::interval, true) AS gated
    FROM ` + columnsOfSpan.Unnest("s") + `
    JOIN punctual.runs r ON r.job_id = s.job AND r.job_version BETWEEN s.first AND s.last
    CROSS JOIN LATERAL (SELECT CASE WHEN r.attempt > 1 THEN least(r.started_at, (
        SELECT min(a.started_at) FROM punctual.attempts a WHERE a.run_id = r.id AND a.run_id >= $5))
        ELSE r.started_at END AS began) b
    WHERE r.id >= $5 AND r.step IS NULL AND r.claimed_at IS NOT NULL) x
CROSS JOIN LATERAL (
    SELECT o.id FROM punctual.runs o
    WHERE o.job_id = x.job_id AND o.id >= $5 AND o.id <> x.id AND o.step IS NULL AND o.claimed_at <= x.claimed_at
      AND o.job_version BETWEEN x.first AND x.last
      AND coalesce(o.finished_at, 'infinity') > x.began + $7::interval
    LIMIT 1) o
JOIN punctual.jobs j ON j.id = x.job_id
JOIN punctual.tenants t ON t.id = x.tenant
WHERE x.gated AND x.open_until > x.began + $7::interval
ORDER BY x.job_id, x.claimed_at LIMIT $8`

// together looks for runs of a page's jobs that were open at once and must not have been.
func (v *verification) together(ctx context.Context, tx pgx.Tx, jobs []*verifyJob) error {
	var spans []gatedSpan
	for _, j := range jobs {
		spans = append(spans, j.gatedSpans()...)
	}
	if len(spans) == 0 {
		return nil
	}
	return v.find(ctx, tx, "looking for runs that overlap", byName, selectTogether,
		append(columnsOfSpan.Args(spans), v.firstID(), v.options.Grace, apart, mostNamed)...)
}

// verifyHeld finds gates and limits whose run has ended for a while. The end of a run frees the gate in its own
// transaction, and a live replica takes limits back within seconds.
const verifyHeld = `
WITH held AS MATERIALIZED (
    SELECT e.job_id, j.tenant, e.active_run AS run, 'the gate of the job' AS what
    FROM punctual.exclusive e JOIN punctual.jobs j ON j.id = e.job_id
    WHERE e.active_run IS NOT NULL AND ($2 = 0 OR j.tenant = $2) AND ($3::uuid IS NULL OR j.id = $3)
      AND ($4 = '' OR j.name = $4)
    UNION ALL
    SELECT NULL, h.tenant, h.run_id, 'limit ' || h.name
    FROM punctual.limit_holders h
    WHERE ($2 = 0 OR h.tenant = $2) AND EXISTS (
        SELECT FROM punctual.replicas p
        WHERE p.renewed_at > ` + pg.Now + ` - interval '15 s' AND p.started_at < ` + pg.Now + ` - $1::interval))
SELECT 'held' AS kind, t.name AS tenant, coalesce(j.name, '') AS job, r.job_id, r.scheduled_for AS slot,
       ARRAY[r.id] AS runs, 'it ended at ' || punctual.stamp(r.finished_at) || ', and still holds ' || h.what AS detail
FROM held h
JOIN punctual.runs_of(ARRAY(SELECT run FROM held)) r ON r.id = h.run
JOIN punctual.tenants t ON t.id = h.tenant
LEFT JOIN punctual.jobs j ON j.id = r.job_id
WHERE r.finished_at < ` + pg.Now + ` - $1::interval AND ($3::uuid IS NULL OR r.job_id = $3) AND ($4 = '' OR j.name = $4)
ORDER BY r.id LIMIT $5`

// gates looks for gates and limits that runs hold which have ended.
func (v *verification) gates(ctx context.Context, tx pgx.Tx) error {
	return v.find(ctx, tx, "reading what runs hold", byName, verifyHeld,
		v.options.Grace, v.tenant, pg.OrNull(v.only), v.name, mostNamed)
}
