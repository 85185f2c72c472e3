package fleet

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Breaker is one reason why runs of a tenant are held back, summed up over all replicas: a host that cannot be reached,
// or a host or path that hangs. State is the worst one on any replica. WaitingRuns are counted up to pg.DepthCap.
type Breaker struct {
	Tenant       string     `json:"-"` // its name
	HeldBy       string     `json:"held_by" doc:"Its name, as in runs, explain and the view overdue." example:"breaker billing.internal:443"`
	State        string     `json:"state" enum:"open,recovering,hanging" doc:"open: the host cannot be reached. recovering: the host can be reached again, and gets more requests with each response. hanging: its requests time out, so they may use at most a quarter of a queue's concurrency." example:"open"`
	Host         string     `json:"host" doc:"Host and port." example:"billing.internal:443"`
	Path         string     `json:"path,omitempty" doc:"The path that hangs; absent: the whole host." example:"/invoices"`
	Since        time.Time  `json:"since" doc:"Since when runs are held back."`
	Failures     int        `json:"failures" doc:"How many requests in a row failed." example:"14"`
	LastError    string     `json:"last_error" doc:"Why the latest request failed." example:"connection refused"`
	NextProbeAt  *time.Time `json:"next_probe_at" doc:"When the next request is let through, at the latest: a run that may not wait any longer is let through sooner. Null: one is under way."`
	Replicas     int        `json:"replicas" doc:"How many replicas hold back runs for it." example:"3"`
	WaitingRuns  int        `json:"waiting_runs" maximum:"10000" doc:"Runs that wait for it. 10000: 10,000 or more." example:"40"`
	WaitingSince *time.Time `json:"waiting_since" doc:"Since when the run that has waited longest has waited. Null: no run waits."`
}

const selectHolds = `
SELECT t.name, h.held_by, h.state, h.host, h.path, h.since, h.failures, h.last_error, h.probe_at, h.replicas,
       (SELECT count(*) FROM (
           SELECT FROM punctual.ready r
           WHERE r.waits = 'host' AND r.tenant = h.tenant AND r.waits_on = h.held_by LIMIT $2::bigint) n),
       (SELECT r.since FROM punctual.ready r
        WHERE r.waits = 'host' AND r.tenant = h.tenant AND r.waits_on = h.held_by ORDER BY r.since LIMIT 1)
FROM (SELECT tenant, held_by, host, path, min(since) AS since, max(failures) AS failures, min(probe_at) AS probe_at,
             count(*) AS replicas, (array_agg(state ORDER BY state = 'recovering'))[1] AS state,
             (array_agg(last_error ORDER BY failures DESC))[1] AS last_error
      FROM punctual.holds
      WHERE $1 = 0 OR tenant = $1
      GROUP BY tenant, held_by, host, path
      ORDER BY tenant, held_by LIMIT $3::bigint) h
JOIN punctual.tenants t ON t.id = h.tenant
ORDER BY t.name, h.held_by`

// mostHolds is how many holds Holds returns at most.
const mostHolds = 1000

// Holds returns what a tenant's runs are held back for. Tenant 0 means all tenants.
func (f *Fleet) Holds(ctx context.Context, tenant int32) ([]Breaker, error) {
	holds, err := pg.All(ctx, f.db, pgx.RowToStructByPos[Breaker], selectHolds, tenant, pg.DepthCap, mostHolds)
	return holds, pg.Wrap("reading what holds runs back", err)
}
