package claim

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Entry is a run that belongs to no due slot: somebody triggered, replayed, repeated or backfilled it, or it tells of
// another run.
type Entry struct {
	ID, Job      uuid.UUID
	Trigger      domain.Trigger
	ScheduledFor time.Time
	DueAt        time.Time // when its slot was due, or when it was asked for
	Ordered      bool      // part of ordered work, which leaves room for all other work
	RerunOf      *uuid.UUID
	ReplayOf     *uuid.UUID // a dead letter
	CausedBy     *uuid.UUID // of trigger chain, the run that ended; of trigger event, the event
	Sends        *Sends     // nil: what its job defines
	By           string     // who asked for it, in words; empty: nobody
	Version      int32      // of its job; 0: the current one
}

// Sends is what a run sends in place of what its job defines. An absent field is the one of the dead letter that the
// run replays, or else the job's.
type Sends struct {
	WebhookID *uuid.UUID // nil: the run's id
	Key       string     // Idempotency-Key; empty: the run's own
	Headers   []byte     // as JSON
	Body      []byte
	Chains    bool // of a rerun or backfill: its end triggers the jobs that its job names in then
	// TraceParent is the trace context that the run continues, as a traceparent; empty: none.
	TraceParent string
}

// entered are entries column by column.
type entered struct {
	ids, jobs         []uuid.UUID
	triggers          []string
	slots, due        []time.Time
	ordered           []bool
	rerunOf, replayOf []*uuid.UUID
	causedBy          []*uuid.UUID
	by                []*string
	versions          []int32
}

// sent is what entries send, column by column.
type sent struct {
	ids                []uuid.UUID
	replayOf, webhooks []*uuid.UUID
	keys, headers      []*string
	traceParents       []*string
	bodies             [][]byte
	chains             []*bool
}

func (c *entered) add(e Entry) {
	c.ids, c.jobs, c.triggers = append(c.ids, e.ID), append(c.jobs, e.Job), append(c.triggers, string(e.Trigger))
	c.slots, c.due, c.ordered = append(c.slots, e.ScheduledFor), append(c.due, e.DueAt), append(c.ordered, e.Ordered)
	c.rerunOf, c.replayOf = append(c.rerunOf, e.RerunOf), append(c.replayOf, e.ReplayOf)
	c.causedBy, c.by = append(c.causedBy, e.CausedBy), append(c.by, pg.OrNull(e.By))
	c.versions = append(c.versions, e.Version)
}

func (c *sent) add(e Entry) {
	s := e.Sends
	c.ids, c.replayOf, c.webhooks = append(c.ids, e.ID), append(c.replayOf, e.ReplayOf), append(c.webhooks, s.WebhookID)
	c.keys, c.headers = append(c.keys, pg.OrNull(s.Key)), append(c.headers, pg.OrNull(string(s.Headers)))
	c.bodies, c.traceParents = append(c.bodies, s.Body), append(c.traceParents, pg.OrNull(s.TraceParent))
	var chains *bool
	if s.Chains {
		chains = &s.Chains
	}
	c.chains = append(c.chains, chains)
}

// enterRuns writes the runs and their rows in ready. The instants in ready keep the order of the entries, and none is
// later than now. A run that exists already was made by another transaction; it is left as it is.
const enterRuns = `
WITH u AS MATERIALIZED (
    SELECT *
    FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::bool[],
                $8::uuid[], $9::uuid[], $10::text[], $11::uuid[], $12::integer[])
         WITH ORDINALITY AS u(id, job_id, trigger, scheduled_for, due_at, ordered, rerun_of, replay_of, triggered_by,
                              caused_by, version, place)),
made AS (
    INSERT INTO punctual.runs (id, job_id, rerun_of, replay_of, scheduled_for, due_at, created_at, tenant, job_version,
                               lane, status, trigger, triggered_by, caused_by)
    SELECT u.id, u.job_id, u.rerun_of, u.replay_of, u.scheduled_for, u.due_at, $1::timestamptz, j.tenant,
           coalesce(nullif(u.version, 0), j.version),
           coalesce(s.lane, (SELECT punctual.lane_of(j.queue, v.definition) FROM punctual.job_versions v
                             WHERE v.job_id = j.id AND v.version = j.version)),
           'pending', u.trigger, u.triggered_by, u.caused_by
    FROM u
    JOIN punctual.jobs j ON j.id = u.job_id
    LEFT JOIN punctual.schedules s ON s.job_id = u.job_id
    ORDER BY u.id
    ON CONFLICT DO NOTHING
    RETURNING id, job_id, tenant, lane)
INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
SELECT m.id, m.job_id, $1 - (cardinality($2::uuid[]) - u.place) * interval '1 microsecond', m.tenant,
       CASE WHEN u.ordered THEN m.lane | 3 ELSE m.lane END
FROM made m
JOIN u ON u.id = m.id`

// enterData writes what the runs send. It is a statement of its own because a policy of run_data looks for the run.
const enterData = `
INSERT INTO punctual.run_data (run_id, webhook_id, idempotency_key, headers, body, chains, traceparent)
SELECT r.id, coalesce(u.webhook_id, d.webhook_id, d.run_id), coalesce(d.idempotency_key, u.key),
       coalesce(u.headers::jsonb, d.headers), coalesce(u.body, d.body), u.chains, u.traceparent
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::bytea[], $7::bool[],
            $8::text[])
     AS u(id, replay_of, webhook_id, key, headers, body, chains, traceparent)
JOIN punctual.runs r ON r.id = u.id
LEFT JOIN punctual.dead_letters d ON d.run_id = u.replay_of
WHERE r.id = ANY($1::uuid[])`

// QueueEntries makes runs that belong to no due slot, in the order in which they are to be claimed. Any replica may
// claim them once the transaction has committed. The caller keeps the jobs
// from being deleted, and needs no other lock: their claim decides whether they overlap other runs.
func QueueEntries(b *pgx.Batch, now time.Time, runs ...Entry) {
	if len(runs) == 0 {
		return
	}
	var r entered
	var d sent
	for _, e := range runs {
		r.add(e)
		if e.Sends != nil {
			d.add(e)
		}
	}
	b.Queue(enterRuns, now, r.ids, r.jobs, r.triggers, r.slots, r.due, r.ordered, r.rerunOf, r.replayOf,
		r.by, r.causedBy, r.versions)
	if len(d.ids) > 0 {
		b.Queue(enterData, d.ids, d.replayOf, d.webhooks, d.keys, d.headers, d.bodies, d.chains, d.traceParents)
	}
}
