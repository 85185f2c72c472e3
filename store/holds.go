package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/audit"
	"punctual/store/pg"
)

// unheld selects what parked runs wait for although no replica holds them back for it any more: each tenant and reason
// once.
const unheld = `
SELECT w.tenant, w.held_by FROM (
    WITH RECURSIVE waits AS (
        (SELECT tenant, held_by FROM punctual.ready WHERE held_by IS NOT NULL ORDER BY tenant, held_by LIMIT 1)
        UNION ALL
        SELECT n.tenant, n.held_by FROM waits w CROSS JOIN LATERAL (
            SELECT r.tenant, r.held_by FROM punctual.ready r
            WHERE r.held_by IS NOT NULL AND (r.tenant, r.held_by) > (w.tenant, w.held_by)
            ORDER BY r.tenant, r.held_by LIMIT 1) n)
    SELECT tenant, held_by FROM waits) w
WHERE NOT EXISTS (SELECT FROM punctual.holds h WHERE h.tenant = w.tenant AND h.held_by = w.held_by)`

// releaseBatch is how many runs one statement releases.
const releaseBatch = 1000

// releaseHeld makes runs ready again that wait for something that no replica holds back any more. The runs keep the
// start and the limit of their wait: a run that is held back again goes on with the same wait. left is true if there
// may be more.
func (s *Store) releaseHeld(ctx context.Context) (left bool, err error) {
	ctx = pg.Chores.In(ctx)
	tag, err := s.db.Conns(ctx).Exec(ctx, `
		WITH free AS MATERIALIZED (`+unheld+`),
		locked AS (SELECT y.run_id FROM free f CROSS JOIN LATERAL (
		    SELECT r.run_id FROM punctual.ready r WHERE r.tenant = f.tenant AND r.held_by = f.held_by
		    ORDER BY r.held_since LIMIT $1 FOR UPDATE SKIP LOCKED) y LIMIT $1)
		UPDATE punctual.ready y SET held_by = NULL, due_at = `+dueNow+`
		FROM locked l WHERE y.run_id = l.run_id`, releaseBatch)
	if err != nil {
		return false, s.db.TookWrite(fmt.Errorf("releasing runs that are no longer held back: %w", err))
	}
	if tag.RowsAffected() > 0 {
		s.signal()
	}
	return tag.RowsAffected() == releaseBatch, nil
}

// A hold that an operator asked to reset becomes an order. So does the hold of a host that another replica has reached.
const reportHolds = `
WITH told AS (
    SELECT * FROM unnest(
        $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::text[],
        $9::interval[], $10::interval[])
        AS u(tenant, held_by, state, host, path, failures, last_error, since, probe_in)),
orders AS (
    SELECT h.tenant, h.host, h.path, h.state = 'hanging' AS hanging, true AS reset
    FROM punctual.holds h
    WHERE h.replica = $1 AND h.reset_at IS NOT NULL
    UNION
    SELECT t.tenant, t.host, t.path, false, false
    FROM told t
    WHERE t.state = 'open' AND EXISTS (
        SELECT FROM punctual.holds o
        WHERE o.tenant = t.tenant AND o.held_by = t.held_by AND o.replica <> $1 AND o.state = 'recovering')),
gone AS (
    DELETE FROM punctual.holds h WHERE h.replica = $1
       AND NOT EXISTS (SELECT FROM told t WHERE t.tenant = h.tenant AND t.held_by = h.held_by)),
written AS (
    INSERT INTO punctual.holds AS h (replica, tenant, held_by, state, host, path, failures, last_error, since, probe_at)
    SELECT r.id, t.tenant, t.held_by, t.state, t.host, t.path, t.failures, t.last_error,
           now() - t.since, now() + t.probe_in
    FROM told t
    JOIN punctual.replicas r ON r.id = $1
    JOIN punctual.tenants o ON o.id = t.tenant
    ON CONFLICT (replica, tenant, held_by) DO UPDATE
    SET state = excluded.state, failures = excluded.failures, last_error = excluded.last_error,
        since = least(h.since, excluded.since), probe_at = excluded.probe_at, reset_at = NULL)
SELECT tenant, host, path, hanging, reset FROM orders`

// ReportHolds implements scheduler.Store.
func (s *Store) ReportHolds(
	ctx context.Context, replica uuid.UUID, states []scheduler.HoldState,
) ([]scheduler.HoldOrder, error) {
	ctx = pg.Chores.In(ctx)
	n := len(states)
	tenants, failures := make([]int32, n), make([]int32, n)
	by, state, hosts, paths, errs := make([]string, n), make([]string, n), make([]string, n),
		make([]string, n), make([]string, n)
	since, probeIn := make([]time.Duration, n), make([]*time.Duration, n)
	for i, h := range states {
		tenants[i], failures[i], since[i] = h.Tenant, int32(h.Failures), h.For
		by[i], state[i], hosts[i], paths[i], errs[i] =
			storable(h.By), h.State, storable(h.Host), storable(h.Path), storable(h.LastError)
		if h.ProbeIn > 0 {
			probeIn[i] = &h.ProbeIn
		}
	}
	rows, err := s.db.Conns(ctx).Query(ctx, reportHolds,
		replica, tenants, by, state, hosts, paths, failures, errs, since, probeIn)
	if err != nil {
		return nil, s.db.TookWrite(fmt.Errorf("writing what holds runs back: %w", err))
	}
	orders, err := pgx.CollectRows(rows, pgx.RowToStructByPos[scheduler.HoldOrder])
	if err != nil {
		return nil, s.db.TookWrite(fmt.Errorf("writing what holds runs back: %w", err))
	}
	for left := true; left && err == nil; {
		left, err = s.releaseHeld(ctx)
	}
	return orders, err
}

// Breaker is one reason why runs of a tenant are held back, summed up over all replicas: a host that cannot be reached,
// or a host or path that hangs. State is the worst one on any replica. WaitingRuns are counted up to DepthCap.
type Breaker struct {
	Tenant       string     `json:"-"` // its name
	HeldBy       string     `json:"held_by" doc:"Its name, as in runs, explain and the view overdue." example:"breaker billing.internal:443"`
	State        string     `json:"state" enum:"open,recovering,hanging" doc:"open: the host cannot be reached. recovering: the host can be reached again, and gets more requests with each response. hanging: its requests time out, so they may occupy at most a quarter of a queue's worker slots." example:"open"`
	Host         string     `json:"host" doc:"Host and port." example:"billing.internal:443"`
	Path         string     `json:"path,omitempty" doc:"The path that hangs; absent: the whole host." example:"/invoices"`
	Since        time.Time  `json:"since" doc:"Since when runs are held back."`
	Failures     int        `json:"failures" doc:"How many requests in a row failed." example:"14"`
	LastError    string     `json:"last_error" doc:"Why the latest request failed." example:"connection refused"`
	NextProbeAt  *time.Time `json:"next_probe_at" doc:"When the next request is let through. Null: one is under way."`
	Replicas     int        `json:"replicas" doc:"How many replicas hold back runs for it." example:"3"`
	WaitingRuns  int        `json:"waiting_runs" maximum:"10000" doc:"Runs that wait for it. 10000: 10,000 or more." example:"40"`
	WaitingSince *time.Time `json:"waiting_since" doc:"Since when the run that has waited longest has waited. Null: no run waits."`
}

const selectHolds = `
SELECT t.name, h.held_by, h.state, h.host, h.path, h.since, h.failures, h.last_error, h.probe_at, h.replicas,
       (SELECT count(*) FROM (
           SELECT FROM punctual.ready r WHERE r.tenant = h.tenant AND r.held_by = h.held_by LIMIT $2::bigint) n),
       (SELECT r.held_since FROM punctual.ready r
        WHERE r.tenant = h.tenant AND r.held_by = h.held_by ORDER BY r.held_since LIMIT 1)
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
func (s *Store) Holds(ctx context.Context, tenant int32) ([]Breaker, error) {
	rows, err := s.db.Conns(ctx).Query(ctx, selectHolds, tenant, DepthCap, mostHolds)
	if err != nil {
		return nil, fmt.Errorf("reading what holds runs back: %w", err)
	}
	holds, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Breaker])
	if err != nil {
		return nil, fmt.Errorf("reading what holds runs back: %w", err)
	}
	for i := range holds {
		pg.UTC(&holds[i].Since, holds[i].NextProbeAt, holds[i].WaitingSince)
	}
	return holds, nil
}

// ResetHolds asks all replicas to release the runs of a tenant that they hold back for a host. An empty host means
// every host. It returns how many holds that affects; the replicas release the runs within two seconds.
func (s *Store) ResetHolds(ctx context.Context, tenant int32, host string) (n int, err error) {
	err = s.join(ctx, tenant, func(ctx context.Context, u *unit) error {
		tag, err := u.Exec(ctx, `
			UPDATE punctual.holds SET reset_at = now() WHERE tenant = $1 AND ($2 = '' OR host = $2)`, tenant, host)
		if err != nil {
			return fmt.Errorf("resetting what holds runs back: %w", err)
		}
		n = int(tag.RowsAffected())
		name := host
		if name == "" {
			name = "every host"
		}
		return audit.Write(ctx, u, tenant, audit.Change{Action: audit.BreakerReset, Name: name})
	})
	return n, err
}
