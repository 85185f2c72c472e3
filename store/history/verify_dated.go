package history

import (
	"context"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// A dated run rightly waits while its job is paused or its tenant frozen, as a slot does. A chore has taken it up if
// the row in dated_work was looked at just now. A resume makes a version of the job.
const verifyDated = `
	SELECT t.name AS tenant, coalesce(j.name, '') AS job, d.job_id, k.kind, count(*)::int AS count,
	       min(d.due_at) AS slot, max(d.due_at) AS last, (array_agg(d.run_id ORDER BY d.run_id))[1:10] AS runs,
	       'dated runs, ' || count(*) || ': ' || CASE k.kind
	           WHEN 'double' THEN 'they are pending, but their ids are those of runs that were claimed'
	           WHEN 'phantom' THEN 'their job is deleted or unknown, and no replica removes them'
	           ELSE 'no replica has claimed them: none serves their queue, it has fallen behind, or they are set aside'
	       END AS detail
	FROM (SELECT ` + pg.Now + ` AS now, ` + pg.Now + ` - $1::interval AS long_ago) n
	CROSS JOIN punctual.dated d
	JOIN punctual.tenants t ON t.id = d.tenant
	LEFT JOIN punctual.jobs j ON j.id = d.job_id
	LEFT JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
	LEFT JOIN punctual.dated_work w ON w.job_id = d.job_id AND w.looked_at > n.long_ago
	CROSS JOIN LATERAL (SELECT CASE
	    WHEN d.due_at <= n.now AND EXISTS (SELECT FROM punctual.runs_of(ARRAY[d.run_id])) THEN 'double'
	    WHEN w.job_id IS NOT NULL THEN NULL
	    WHEN j.id IS NULL OR j.state = 'deleted' AND j.deleted_at <= n.long_ago THEN 'phantom'
	    WHEN j.state = 'active' AND greatest(d.due_at, d.created_at, v.valid_from) <= n.long_ago
	         AND punctual.frozen_since(d.tenant) IS NULL THEN 'overdue' END) k(kind)
	WHERE k.kind IS NOT NULL AND ($2 = 0 OR d.tenant = $2) AND ($3::uuid IS NULL OR d.job_id = $3)
	  AND ($4 = '' OR j.name = $4)
	GROUP BY 1, 2, 3, 4 ORDER BY 3, 4`

// dated looks for dated runs that should have been claimed or removed.
func (v *verification) dated(ctx context.Context, tx pgx.Tx) error {
	return v.find(ctx, tx, "reading dated runs", byName, verifyDated,
		v.options.Grace, v.tenant, pg.OrNull(v.only), v.name)
}
