package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/admit"
	"punctual/store/claim"
	"punctual/store/pg"
)

// Queue is a lane of work, with the work that a tenant has in it. Counts stop at pg.DepthCap.
type Queue struct {
	Name      string     `json:"name" doc:"Its name." example:"default"`
	DueSlots  int        `json:"due_slots" maximum:"10000" doc:"Slots that are due and not claimed yet. 10000: 10,000 or more." example:"12"`
	DueRuns   int        `json:"due_runs" maximum:"10000" doc:"Runs that are ready to be sent now: manual runs, replays and retries." example:"3"`
	LaterRuns int        `json:"later_runs" maximum:"10000" doc:"Runs that wait for neither concurrency nor a host: for a later instant, as retries do, the run before them, a limit, an approval, or an async target that is still working." example:"40"`
	HeldRuns  int        `json:"held_runs" maximum:"10000" doc:"Runs that wait for a host that cannot be reached or hangs. GET /v1/breakers counts them by host." example:"0"`
	InFlight  int        `json:"in_flight" maximum:"10000" doc:"Runs that are being sent." example:"100"`
	OldestDue *time.Time `json:"oldest_due" doc:"When the oldest due slot or run became due, or when the oldest hold began, if that is earlier. Null: nothing is due or held."`
	WaitsFor  *string    `json:"waits_for" doc:"Why nothing in this queue is sent. Null: the queue is served." example:"no live replica serves the queue \"critical\""`
}

// HeldBack says why due work waits although worker slots may be free.
type HeldBack struct {
	Limit  admit.Limit `json:"limit" enum:"max_concurrent_runs,max_runs_per_second" doc:"The tenant's limit that holds back its due work." example:"max_concurrent_runs"`
	Most   int         `json:"most" doc:"The value of the limit." example:"100"`
	Since  time.Time   `json:"since" doc:"Since when more work has been due than the limit allows."`
	Reason string      `db:"-" json:"reason" doc:"The limit in words." example:"the tenant is at max_concurrent_runs (100)"`
}

// The work of a queue q that is due by now, and the runs in it that are due later.
const (
	dueSlots  = `punctual.schedules s WHERE s.enabled AND s.lane = l.lane AND of(s) AND s.next_run_at <= now()`
	dueRuns   = `punctual.waiting s WHERE s.lane = l.lane AND of(s) AND s.due_at <= now() AND ` + claim.Claimable
	laterRuns = `punctual.ready s WHERE s.lane = l.lane AND of(s) AND s.due_at > now() AND s.waits = 'turn'`
)

// numberOf and oldestOf are SQL for how much of some work there is in the lanes of a queue, and since when.
func numberOf(work string) string {
	return `(SELECT count(*) FROM (
            SELECT FROM lanes l
            CROSS JOIN LATERAL (SELECT FROM ` + work + ` LIMIT $2::bigint) r
            WHERE l.queue = q.id
            LIMIT $2::bigint) n)`
}

func oldestOf(work, due string) string {
	return `(SELECT min(o.due)
              FROM lanes l
              CROSS JOIN LATERAL (SELECT ` + due + ` AS due FROM ` + work + ` ORDER BY ` + due + ` LIMIT 1) o
              WHERE l.queue = q.id)`
}

// selectDepths counts a queue's work. of(s) stands for a condition on the tenant, which is $1. Each count ends at the
// cap, $2, and reads the same index as the claims.
var selectDepths = `
SELECT q.name, ` + numberOf(dueSlots) + `, ` + numberOf(dueRuns) + `, ` + numberOf(laterRuns) + `
           + (SELECT count(*) FROM parked WHERE parked.queue = q.id),
       (SELECT count(*) FROM held WHERE held.queue = q.id),
       (SELECT count(*) FROM sent WHERE sent.queue = q.id),
       least(` + oldestOf(dueSlots, `s.next_run_at`) + `, ` + oldestOf(dueRuns, `s.due_at`) + `,
             (SELECT min(held.since) FROM held WHERE held.queue = q.id)),
       CASE WHEN NOT punctual.is_served(q.name) THEN punctual.wait_in_words('queue', q.name, NULL) END
FROM punctual.queues q
ORDER BY q.name`

const depthParts = `
WITH lanes AS MATERIALIZED (
    SELECT q.id AS queue, (q.id * 4 + p)::smallint AS lane FROM punctual.queues q, generate_series(0, 3) p),
held AS MATERIALIZED (
    SELECT s.lane / 4 AS queue, s.since
    FROM punctual.ready s
    WHERE s.waits = 'host' AND of(s)
    LIMIT $2::bigint),
parked AS MATERIALIZED (
    SELECT s.lane / 4 AS queue
    FROM punctual.ready s
    WHERE s.waits IN ('gate', 'limit', 'target', 'person') AND of(s)
    LIMIT $2::bigint),
sent AS MATERIALIZED (
    SELECT s.lane / 4 AS queue
    FROM punctual.runs_of(ARRAY(SELECT unnest(c.run_ids) FROM punctual.claims c LIMIT $3::bigint)) s
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

// QueueDepths returns every queue, by name, with a tenant's work in it, and the limit that holds the tenant back, or
// nil if none does. For tenant 0 it returns the work of all tenants together.
func (f *Fleet) QueueDepths(ctx context.Context, tenant int32) (queues []Queue, held *HeldBack, err error) {
	sql := SelectDepthsOfTenant
	if tenant == 0 {
		sql = SelectDepthsOfAll
	}
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	b.Queue(sql, tenant, pg.DepthCap, pg.MostInFlight).Query(pg.Into(&queues, pgx.RowToStructByPos[Queue]))
	b.Queue(selectHeldBack, tenant).Query(func(rows pgx.Rows) (err error) {
		held, err = collectHeldBack(rows)
		return err
	})
	err = f.db.SendBatch(ctx, &b).Close()
	return queues, held, pg.Wrap("reading the queues' depths", err)
}

const selectHeldBack = `
SELECT u.held_by,
       coalesce(CASE u.held_by WHEN 'max_concurrent_runs' THEN t.max_concurrent_runs ELSE t.max_runs_per_second END, 0),
       u.held_since
FROM punctual.tenant_usage u
JOIN punctual.tenants t ON t.id = u.tenant
WHERE u.tenant = $1 AND punctual.held_by(u.held_by, u.held_at) IS NOT NULL`

// ReadHeldBack returns the limit that holds a tenant back, or nil if none does.
func ReadHeldBack(ctx context.Context, q pg.Querier, tenant int32) (*HeldBack, error) {
	held, err := collectHeldBack(pg.Query(ctx, q, selectHeldBack, tenant))
	return held, pg.Wrap(fmt.Sprintf("reading what tenant %d is held back by", tenant), err)
}

func collectHeldBack(rows pgx.Rows) (*HeldBack, error) {
	held, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[HeldBack])
	if err != nil || len(held) == 0 {
		return nil, err
	}
	h := held[0]
	h.Reason = fmt.Sprintf("the tenant is at %s (%d)", h.Limit, h.Most)
	return h, nil
}

// Replica is a process that serves queues, or only the API.
type Replica struct {
	ID        uuid.UUID      `json:"id" format:"uuid" doc:"A new one at every start." example:"5b0b8a52-3f0e-4c67-9d35-9d7f3f7a2c11"`
	Host      string         `json:"host" doc:"The host's name, for people." example:"punctual-7c9f"`
	Version   string         `json:"version" doc:"Version of its binary." example:"1.4.0"`
	ZoneData  string         `json:"zone_data" doc:"Release of the time zone data that it computes slots with." example:"2026f"`
	Queues    map[string]int `json:"queues" doc:"Its concurrency by queue. Empty: it serves the API only (serve --dispatch=off)."`
	StartedAt time.Time      `json:"started_at" doc:"When it started."`
	RenewedAt time.Time      `json:"renewed_at" doc:"When it last renewed its heartbeat, which it does every two seconds."`
	Draining  bool           `json:"draining" doc:"It is stopping: it claims nothing more, and finishes the runs in flight."`
	Lacks     string         `json:"lacks,omitempty" doc:"The resource that its requests lack now, so that it gives runs back unsent and claims less. Absent: none." example:"file descriptors of its process (ulimit -n, RLIMIT_NOFILE)"`
}

// mostReplicas bounds Replicas. No fleet is that large.
const mostReplicas = 1000

// Replicas returns the registered replicas, in the order in which they started. A lost replica is among them until
// another replica has noticed.
func (f *Fleet) Replicas(ctx context.Context) ([]Replica, error) {
	replicas, err := pg.All(ctx, f.db, pgx.RowToStructByPos[Replica], `
		SELECT id, host, version, coalesce(zone_data, ''), queues, started_at, renewed_at, draining,
		       coalesce(lacks, '')
		FROM punctual.replicas
		ORDER BY started_at, id LIMIT $1`, mostReplicas)
	return replicas, pg.Wrap("reading the replicas", err)
}
