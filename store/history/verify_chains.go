package history

import (
	"context"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// mostChained is how many runs Verify names at most that are missing or of no link.
const mostChained = 100

// due are the runs that ends in the window ($1 to $2) had to make: by the definition that the run had, and for a rerun
// or a backfill only if it was asked for.
const due = `
WITH ended AS MATERIALIZED (
    SELECT r.id, r.job_id, r.status, r.finished_at, l ->> 'job' AS target,
           coalesce(l ->> 'when', 'succeeded') AS run_when
    FROM punctual.job_versions v
    CROSS JOIN LATERAL json_array_elements(v.definition -> 'then') l
    JOIN punctual.runs r ON r.job_id = v.job_id AND r.job_version = v.version
    WHERE v.definition ->> 'then' IS NOT NULL
      AND r.step IS NULL
      AND r.id >= $3 AND r.status IN ('succeeded', 'dead', 'cancelled') AND r.finished_at BETWEEN $1 AND $2
      AND (r.rerun_of IS NULL AND r.trigger <> 'backfill'
           OR EXISTS (SELECT FROM punctual.run_data d WHERE d.run_id = r.id AND d.run_id >= $3 AND d.chains))),
due AS MATERIALIZED (
    SELECT e.id, e.job_id, e.finished_at, e.target::uuid AS target,
           punctual.chained_run(e.id, e.target::uuid, e.finished_at) AS run
    FROM ended e
    WHERE e.run_when = 'ended' OR (e.run_when, e.status) IN (('succeeded', 'succeeded'), ('failed', 'dead')))`

const missingChained = due + `
SELECT 'chain' AS kind, t.name AS tenant, coalesce(j.name, '') AS job, d.job_id, d.finished_at AS slot,
       ARRAY[d.id] AS runs, 'its end should have triggered a run of job ' || d.target || ', and there is none' AS detail
FROM due d
JOIN punctual.jobs j ON j.id = d.job_id
JOIN punctual.tenants t ON t.id = j.tenant
WHERE NOT EXISTS (SELECT FROM punctual.runs_of(ARRAY[d.run]))
  AND ($4 = 0 OR j.tenant = $4) AND ($5::uuid IS NULL OR j.id = $5) AND ($6 = '' OR j.name = $6)
ORDER BY d.id LIMIT $7`

// A run whose cause is no longer kept cannot be checked.
const needlessChained = due + `
SELECT 'chain' AS kind, t.name AS tenant, coalesce(j.name, '') AS job, c.job_id, c.scheduled_for AS slot,
       ARRAY[c.id] AS runs, 'run ' || c.caused_by || ' has not triggered it: its job''s then does not say so' AS detail
FROM punctual.runs c
CROSS JOIN LATERAL punctual.runs_of(ARRAY[c.caused_by]) r
JOIN punctual.tenants t ON t.id = c.tenant
LEFT JOIN punctual.jobs j ON j.id = c.job_id
WHERE c.trigger = 'chain' AND c.id >= $3 AND c.scheduled_for BETWEEN $1 AND $2
  AND NOT EXISTS (SELECT FROM due d WHERE d.run = c.id AND d.id = c.caused_by)
  AND ($4 = 0 OR c.tenant = $4) AND ($5::uuid IS NULL OR c.job_id = $5) AND ($6 = '' OR j.name = $6)
ORDER BY c.id LIMIT $7`

// chains looks for ends that triggered too little or too much.
func (v *verification) chains(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range []string{missingChained, needlessChained} {
		if err := v.find(ctx, tx, "comparing chains", byName, sql,
			v.summary.From, v.summary.To, v.firstID(), v.tenant, pg.OrNull(v.only), v.name, mostChained); err != nil {
			return err
		}
	}
	return nil
}
