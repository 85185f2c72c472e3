package claim

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Entry is a run that belongs to no due slot: somebody triggered, replayed, repeated or backfilled it, or it tells of
// another run.
type Entry struct {
	ID, Job      uuid.UUID
	Trigger      domain.Trigger
	ScheduledFor time.Time
	DueAt        time.Time // when its slot was due, or when it was asked for
	RerunOf      *uuid.UUID
	ReplayOf     *uuid.UUID // a dead letter
	CausedBy     *uuid.UUID // of trigger chain, the run that ended; of trigger event, the event
	Sends        *Sends     // nil: what its job defines
	By           string     // who asked for it, in words; empty: nobody
	Version      int32      // of its job; 0: the current one

	later int32 // how many come after it in its batch
}

// Sends is what a run sends in place of what its job defines. An absent field is the one of the dead letter that the
// run replays, or else the job's.
type Sends struct {
	WebhookID *uuid.UUID // nil: the run's id
	Key       string     // Idempotency-Key; empty: the run's own
	Headers   []byte     // as JSON
	Body      []byte
	Template  bool // the body is made of the job's own, and placeholders in it are filled in
	Chains    bool // of a rerun or backfill: its end triggers the jobs that its job names in then
	// TraceParent is the trace context that the run continues, as a traceparent; empty: none.
	TraceParent string
}

var entryColumns = pg.Columns[Entry]{
	pg.Col("id", "uuid", func(e Entry) uuid.UUID { return e.ID }),
	pg.Col("job_id", "uuid", func(e Entry) uuid.UUID { return e.Job }),
	pg.Col("trigger", "text", func(e Entry) string { return string(e.Trigger) }),
	pg.Col("scheduled_for", "timestamptz", func(e Entry) time.Time { return e.ScheduledFor }),
	pg.Col("due_at", "timestamptz", func(e Entry) time.Time { return e.DueAt }),
	pg.Col("rerun_of", "uuid", func(e Entry) *uuid.UUID { return e.RerunOf }),
	pg.Col("replay_of", "uuid", func(e Entry) *uuid.UUID { return e.ReplayOf }),
	pg.Col("triggered_by", "text", func(e Entry) *string { return pg.OrNull(e.By) }),
	pg.Col("caused_by", "uuid", func(e Entry) *uuid.UUID { return e.CausedBy }),
	pg.Col("version", "integer", func(e Entry) *int32 { return pg.OrNull(e.Version) }),
	pg.Col("later", "integer", func(e Entry) int32 { return e.later }),
}

var sendsColumns = pg.Columns[Entry]{
	pg.Col("id", "uuid", func(e Entry) uuid.UUID { return e.ID }),
	pg.Col("replay_of", "uuid", func(e Entry) *uuid.UUID { return e.ReplayOf }),
	pg.Col("webhook_id", "uuid", func(e Entry) *uuid.UUID { return e.Sends.WebhookID }),
	pg.Col("key", "text", func(e Entry) *string { return pg.OrNull(e.Sends.Key) }),
	pg.Col("headers", "text", func(e Entry) seal.JSON { return e.Sends.Headers }),
	pg.Col("body", "bytea", func(e Entry) seal.Bytes { return e.Sends.Body }),
	pg.Col("template", "bool", func(e Entry) *bool { return pg.OrNull(e.Sends.Template) }),
	pg.Col("chains", "bool", func(e Entry) *bool { return pg.OrNull(e.Sends.Chains) }),
	pg.Col("traceparent", "text", func(e Entry) *string { return pg.OrNull(e.Sends.TraceParent) }),
}

// inserting is the statement by which all runs begin but those of due slots, whose two are in due.go: columns of runs,
// and a query for them. Day says what its placeholders stand for.
func inserting(columns, query string) string {
	return `INSERT INTO {runs} (` + columns + `)` + query
}

// Entering is SQL that makes runs, after WITH. Those that are pending wait for their turn from now on, in the order of
// the instants at which they were made. A run that exists already was made by another transaction: it stays as it is.
func Entering(columns, query string) string {
	return `made AS (
    ` + inserting(columns, query) + `
    ON CONFLICT DO NOTHING
    RETURNING id, job_id, created_at, tenant, lane, trigger, status)
INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
SELECT id, job_id, least(created_at, clock_timestamp()), tenant, ` + laneInReady + `
FROM made
WHERE status = 'pending'`
}

// laneInReady is SQL for the lane in which a run waits: backfills and replays have one of each queue in common, which
// leaves room for all other work.
const laneInReady = `CASE WHEN trigger IN ('backfill', 'replay') THEN lane | 3 ELSE lane END`

// laneNow is SQL for the lane of a job j, which may have a row s in schedules.
const laneNow = `coalesce(s.lane, (SELECT punctual.lane_of(j.queue, v.definition) FROM punctual.job_versions v
                             WHERE v.job_id = j.id AND v.version = j.version))`

// enterRuns writes the runs and their rows in ready. They keep the order of the entries.
var enterRuns = days.AnyDay.Of(`
WITH ` + Entering(`id, job_id, rerun_of, replay_of, scheduled_for, due_at, created_at, tenant, job_version, lane,
                               status, trigger, triggered_by, caused_by`, `
    SELECT u.id, u.job_id, u.rerun_of, u.replay_of, u.scheduled_for, u.due_at,
           `+entryColumns.Arg(1)+`::timestamptz - u.later * interval '1 microsecond', j.tenant,
           coalesce(u.version, j.version), `+laneNow+`, 'pending', u.trigger, u.triggered_by, u.caused_by
    FROM `+entryColumns.Unnest("u")+`
    JOIN punctual.jobs j ON j.id = u.job_id
    LEFT JOIN punctual.schedules s ON s.job_id = u.job_id
    ORDER BY u.id`))

// enterData writes what the runs send. It is a statement of its own because a policy of run_data looks for the run.
var enterData = `
INSERT INTO punctual.run_data (run_id, webhook_id, idempotency_key, headers, body, template, chains, traceparent)
SELECT r.id, coalesce(u.webhook_id, d.webhook_id, d.run_id), coalesce(d.idempotency_key, u.key),
       coalesce(u.headers::jsonb, d.headers), coalesce(u.body, d.body),
       CASE WHEN u.body IS NULL THEN d.template ELSE u.template END, u.chains, u.traceparent
FROM ` + sendsColumns.Unnest("u") + `
JOIN punctual.runs r ON r.id = u.id
LEFT JOIN punctual.dead_letters d ON d.run_id = u.replay_of
WHERE r.id = ANY($1::uuid[])`

// QueueEntries makes runs that belong to no due slot, in the order in which they are to be claimed. Any replica may
// claim them once the transaction has committed. The caller keeps the jobs from being deleted, and needs no other lock:
// their claim decides whether they overlap other runs.
func QueueEntries(b *pgx.Batch, now time.Time, runs ...Entry) {
	if len(runs) == 0 {
		return
	}
	var sending []Entry
	for i, e := range runs {
		runs[i].later = int32(len(runs) - 1 - i)
		if e.Sends != nil {
			sending = append(sending, e)
		}
	}
	b.Queue(enterRuns, append(entryColumns.Args(runs), now)...)
	if len(sending) > 0 {
		b.Queue(enterData, sendsColumns.Args(sending)...)
	}
}
