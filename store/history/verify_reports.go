package history

import (
	"context"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// mostReports is how many reports Verify names at most.
const mostReports = 100

// reports looks for what targets reported in transactions of their own, and no replica has applied for a while.
// Replicas look for such reports every two seconds.
func (v *verification) reports(ctx context.Context, tx pgx.Tx) error {
	return v.find(ctx, tx, "reading what targets have reported", byName, `
		SELECT 'report' AS kind, t.name AS tenant, j.name AS job, r.job_id, ARRAY[p.run_id] AS runs,
		       'its target has reported in a transaction of its own how run ' || p.run_id || ' ended, but the run is '
		       || r.status AS detail
		FROM (SELECT * FROM punctual.reports
		      WHERE applied_at IS NULL AND reported_at <= `+pg.Now+` - $1::interval AND ($2 = 0 OR tenant = $2)
		      ORDER BY reported_at LIMIT $3) p
		JOIN punctual.tenants t ON t.id = p.tenant
		CROSS JOIN LATERAL punctual.runs_of(ARRAY[p.run_id]) r
		JOIN punctual.jobs j ON j.id = r.job_id
		WHERE ($4::uuid IS NULL OR j.id = $4) AND ($5 = '' OR j.name = $5)`,
		v.options.Grace, v.tenant, mostReports, pg.OrNull(v.only), v.name)
}
