package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/pg"
)

// QueueDepth is the waiting and the running work of a queue. Counts stop at pg.DepthCap.
type QueueDepth struct {
	Name      string
	DueSlots  int        // due, and not claimed yet
	DueRuns   int        // ready to be sent: triggered by hand, replayed, or due for a retry
	LaterRuns int        // waiting for a retry's time, or for the deadline of a target that works on
	HeldRuns  int        // waiting for a host that cannot be reached or hangs
	InFlight  int        // being sent by replicas
	OldestDue *time.Time // due time of the oldest due slot or run, or start of the oldest hold if that is earlier
	Served    bool       // a live replica serves the queue
}

// HeldBack is the limit that a tenant's due work waits for.
type HeldBack struct {
	Tenant string
	Limit  scheduler.Limit
	Most   int // its value
	Since  time.Time
}

// Reason states the limit in words.
func (h HeldBack) Reason() string { return fmt.Sprintf("the tenant is at %s (%d)", h.Limit, h.Most) }

// selectDepths counts a queue's work. of(s) stands for a condition on the tenant, which is $1. Each count ends at the
// cap, $2, and reads the same index as the claims.
const selectDepths = `
SELECT q.name,
       (SELECT count(*) FROM (
            SELECT FROM lanes l
            CROSS JOIN LATERAL (
                SELECT FROM punctual.schedules s
                WHERE s.enabled AND s.lane = l.lane AND of(s)
                  AND s.next_run_at <= now()
                LIMIT $2::bigint) r
            WHERE l.queue = q.id
            LIMIT $2::bigint) n),
       (SELECT count(*) FROM (
            SELECT FROM lanes l
            CROSS JOIN LATERAL (
                SELECT FROM punctual.ready s
                WHERE s.lane = l.lane AND of(s)
                  AND s.due_at <= now()
                LIMIT $2::bigint) r
            WHERE l.queue = q.id
            LIMIT $2::bigint) n),
       (SELECT count(*) FROM (
            SELECT FROM lanes l
            CROSS JOIN LATERAL (
                SELECT FROM punctual.ready s
                WHERE s.lane = l.lane AND of(s)
                  AND s.due_at > now()
                  AND s.held_by IS NULL
                LIMIT $2::bigint) r
            WHERE l.queue = q.id
            LIMIT $2::bigint) n),
       (SELECT count(*) FROM held WHERE held.queue = q.id),
       (SELECT count(*) FROM sent WHERE sent.queue = q.id),
       least((SELECT min(o.due)
              FROM lanes l
              CROSS JOIN LATERAL (
                  SELECT s.next_run_at AS due
                  FROM punctual.schedules s
                  WHERE s.enabled AND s.lane = l.lane AND of(s)
                    AND s.next_run_at <= now()
                  ORDER BY s.next_run_at LIMIT 1) o
              WHERE l.queue = q.id),
             (SELECT min(o.due)
              FROM lanes l
              CROSS JOIN LATERAL (
                  SELECT s.due_at AS due
                  FROM punctual.ready s
                  WHERE s.lane = l.lane AND of(s)
                    AND s.due_at <= now()
                  ORDER BY s.due_at LIMIT 1) o
              WHERE l.queue = q.id),
             (SELECT min(held.held_since) FROM held WHERE held.queue = q.id)),
       punctual.is_served(q.name)
FROM punctual.queues q
ORDER BY q.name`

const depthParts = `
WITH lanes AS MATERIALIZED (
    SELECT q.id AS queue, (q.id * 4 + p)::smallint AS lane FROM punctual.queues q, generate_series(0, 3) p
    UNION ALL
    SELECT q.id, (-1 - q.id)::smallint FROM punctual.queues q), -- the deadlines
held AS MATERIALIZED (
    SELECT s.lane / 4 AS queue, s.held_since
    FROM punctual.ready s
    WHERE s.held_by IS NOT NULL AND of(s)
    LIMIT $2::bigint),
sent AS MATERIALIZED (
    SELECT s.lane / 4 AS queue
    FROM (SELECT unnest(c.run_ids) AS id FROM punctual.claims c LIMIT $3::bigint) c
    JOIN punctual.runs s ON s.id = c.id
    WHERE s.status = 'running' AND s.accepted_at IS NULL AND of(s)
    LIMIT $2::bigint)`

// depthsOf returns the statement with a condition on the tenant in place of of(s).
func depthsOf(condition string) string {
	return strings.ReplaceAll(depthParts+selectDepths, "of(s)", condition)
}

// The statements of QueueDepths, for one tenant and for all.
var (
	SelectDepthsOfTenant = depthsOf("s.tenant = $1")
	SelectDepthsOfAll    = depthsOf("$1 = 0")
)

// QueueDepths returns every queue, by name, with a tenant's work in it, and the limit that holds the tenant back. For
// tenant 0 it returns the work of all tenants together, and all tenants that are held back.
func (f *Fleet) QueueDepths(ctx context.Context, tenant int32) (depths []QueueDepth, held []HeldBack, err error) {
	sql := SelectDepthsOfTenant
	if tenant == 0 {
		sql = SelectDepthsOfAll
	}
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(sql, tenant, pg.DepthCap, pg.MostInFlight).Query(func(rows pgx.Rows) (err error) {
		depths, err = pgx.CollectRows(rows, pgx.RowToStructByPos[QueueDepth])
		return err
	})
	b.Queue(selectHeldBack+`
		WHERE ($1 = 0 OR u.tenant = $1) AND punctual.held_by(u.held_by, u.held_at) IS NOT NULL
		ORDER BY t.name LIMIT $2`, tenant, pg.DepthCap).
		Query(func(rows pgx.Rows) (err error) {
			held, err = pgx.CollectRows(rows, pgx.RowToStructByPos[HeldBack])
			return err
		})
	if err := f.db.Conns(ctx).SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, fmt.Errorf("reading the queues' depths: %w", err)
	}
	for i := range depths {
		pg.UTC(depths[i].OldestDue)
	}
	for i := range held {
		pg.UTC(&held[i].Since)
	}
	return depths, held, nil
}

const selectHeldBack = `
SELECT t.name, u.held_by,
       coalesce(CASE u.held_by WHEN 'max_concurrent_runs' THEN t.max_concurrent_runs ELSE t.max_runs_per_second END, 0),
       u.held_since
FROM punctual.tenant_usage u
JOIN punctual.tenants t ON t.id = u.tenant`

// ReadHeldBack returns the limit that holds a tenant back, or nil if none does.
func ReadHeldBack(ctx context.Context, q pg.Querier, tenant int32) (*HeldBack, error) {
	rows, err := q.Query(ctx, selectHeldBack+`
		WHERE u.tenant = $1 AND punctual.held_by(u.held_by, u.held_at) IS NOT NULL`, tenant)
	if err != nil {
		return nil, fmt.Errorf("reading what tenant %d is held back by: %w", tenant, err)
	}
	held, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[HeldBack])
	if err != nil || len(held) == 0 {
		return nil, pg.Wrap(fmt.Sprintf("reading what tenant %d is held back by", tenant), err)
	}
	return held[0], nil
}

// Replica is a process that serves queues, or only the API.
type Replica struct {
	ID        uuid.UUID      `json:"id" format:"uuid" doc:"Chosen anew at every start." example:"5b0b8a52-3f0e-4c67-9d35-9d7f3f7a2c11"`
	Host      string         `json:"host" doc:"The host's name, for people." example:"punctual-7c9f"`
	Version   string         `json:"version" doc:"Version of its binary." example:"1.4.0"`
	Queues    map[string]int `json:"queues" doc:"Its worker slots by queue. Empty: it serves the API only (serve --dispatch=off)."`
	StartedAt time.Time      `json:"started_at" doc:"When it started."`
	RenewedAt time.Time      `json:"renewed_at" doc:"When it last renewed its heartbeat, which it does every two seconds."`
	Draining  bool           `json:"draining" doc:"It was told to stop: it claims nothing more, and finishes the runs in flight."`
}

// mostReplicas bounds Replicas. No fleet is that large.
const mostReplicas = 1000

// Replicas returns the registered replicas, in the order in which they started. A lost replica is among them until
// another replica has noticed.
func (f *Fleet) Replicas(ctx context.Context) ([]Replica, error) {
	rows, err := f.db.Conns(ctx).Query(ctx, `
		SELECT id, host, version, queues, started_at, renewed_at, draining
		FROM punctual.replicas
		ORDER BY started_at, id LIMIT $1`, mostReplicas)
	if err != nil {
		return nil, fmt.Errorf("reading the replicas: %w", err)
	}
	replicas, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Replica, err error) {
		var queues []byte
		if err := row.Scan(&r.ID, &r.Host, &r.Version, &queues, &r.StartedAt, &r.RenewedAt, &r.Draining); err != nil {
			return r, err
		}
		pg.UTC(&r.StartedAt, &r.RenewedAt)
		return r, json.Unmarshal(queues, &r.Queues)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the replicas: %w", err)
	}
	return replicas, nil
}
