package history

import (
	"context"

	"punctual/store/pg"
)

// mostAccepted is how many runs at most are looked at whose targets work on.
const mostAccepted = 10_000

// countTogether counts the jobs whose runs must not overlap and of which a run is running that its gate does not name,
// next to another that has not ended. A gate names its active run, and those that were in flight when the policy
// stopped being allow. It looks at what leases name and at what targets work on: so at no more than is in flight,
// whatever waits.
const countTogether = `
WITH running AS MATERIALIZED (
    SELECT r.id, r.job_id
    FROM punctual.runs_of(ARRAY(SELECT unnest(c.run_ids) FROM punctual.claims c)
                          || ARRAY(SELECT y.run_id FROM punctual.ready y WHERE y.waits = 'target' LIMIT $1)) r
    WHERE r.status = 'running' AND r.step IS NULL),
gates AS MATERIALIZED (
    SELECT g.job_id, g.named, count(*) FILTER (WHERE r.id <> ALL (g.named)) AS unnamed
    FROM running r
    CROSS JOIN LATERAL (
        SELECT e.job_id, array_remove(e.earlier_runs || e.active_run, NULL) AS named
        FROM punctual.exclusive e WHERE e.job_id = r.job_id AND e.gated OFFSET 0) g
    GROUP BY g.job_id, g.named)
SELECT count(*) FROM gates g
WHERE g.unnamed > 1 OR g.unnamed = 1 AND EXISTS (
    SELECT FROM punctual.runs_of(g.named) r WHERE r.finished_at IS NULL)`

// CountTogether counts jobs that have two runs at once although their runs must not overlap.
func (h *History) CountTogether(ctx context.Context) (n int, err error) {
	return n, pg.Wrap("counting jobs with two runs", h.db.QueryRow(ctx, countTogether, mostAccepted).Scan(&n))
}
