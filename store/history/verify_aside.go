package history

import (
	"context"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// setAside reports what was set aside because it fails by itself. Work on it stands still, whatever its records say.
func (v *verification) setAside(ctx context.Context, tx pgx.Tx) error {
	return v.find(ctx, tx, "reading what is set aside", byName, `
		SELECT 'set_aside' AS kind, coalesce(t.name, '') AS tenant, coalesce(j.name, '') AS job,
		       coalesce(a.job_id, '00000000-0000-0000-0000-000000000000') AS job_id,
		       CASE WHEN a.kind IN ('run', 'outcome', 'workflow') THEN ARRAY[a.item] END AS runs,
		       'the ' || a.kind || ' ' || a.item || ' has failed by itself ' || a.tries || ' times since '
		       || punctual.stamp(a.since) || ': ' || a.reason AS detail
		FROM (SELECT * FROM punctual.set_aside WHERE $1 = 0 OR tenant = $1 ORDER BY since, item LIMIT $2) a
		LEFT JOIN punctual.tenants t ON t.id = a.tenant
		LEFT JOIN punctual.jobs j ON j.id = a.job_id
		WHERE ($3::uuid IS NULL OR j.id = $3) AND ($4 = '' OR j.name = $4)`,
		v.tenant, mostReports, pg.OrNull(v.only), v.name)
}
