package history

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// mostReports is how many reports Verify names at most.
const mostReports = 100

// reports looks for what targets reported in transactions of their own, and no replica has applied for a while.
// Replicas look for such reports every two seconds.
func (v *verification) reports(ctx context.Context, tx pgx.Tx) error {
	rows := pg.Query(ctx, tx, `
		SELECT p.run_id, t.name, r.status, r.job_id, j.name
		FROM (SELECT * FROM punctual.reports
		      WHERE applied_at IS NULL AND reported_at <= `+pg.Now+` - $1::interval AND ($2 = 0 OR tenant = $2)
		      ORDER BY reported_at LIMIT $3) p
		JOIN punctual.tenants t ON t.id = p.tenant
		CROSS JOIN LATERAL punctual.runs_of(ARRAY[p.run_id]) r
		JOIN punctual.jobs j ON j.id = r.job_id
		WHERE ($4::uuid IS NULL OR j.id = $4) AND ($5 = '' OR j.name = $5)`,
		v.options.Grace, v.tenant, mostReports, pg.OrNull(v.only), v.name)
	var run uuid.UUID
	var status string
	found := Violation{Kind: ViolationReport}
	_, err := pgx.ForEachRow(rows, []any{&run, &found.Tenant, &status, &found.JobID, &found.Job}, func() error {
		one := found
		one.Runs = []uuid.UUID{run}
		one.Detail = fmt.Sprintf("its target has reported in a transaction of its own how run %s ended, but the run is %s",
			run, status)
		return v.report(one)
	})
	return pg.Wrap("reading what targets have reported", err)
}
