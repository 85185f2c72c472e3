package notices

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/aside"
	"punctual/store/pg"
)

// The starts and successes of runs are told in batches: they are many, each is told, and none of them may make a notice
// of trouble wait. Whatever ends a run writes them without a look at the outbox, of which many runs share a row.

const (
	// mostEvents is how many events a batch has. It then has less than 100 kB, which receivers take by default.
	mostEvents = 100
	// mostWaitingEvents is how many events of a tenant wait.
	mostWaitingEvents = 10_000
	// eventsPatience is how long an event waits, and a batch is tried.
	eventsPatience = 24 * time.Hour
)

// insertLifecycle writes events of runs that this transaction has written.
const insertLifecycle = `
INSERT INTO punctual.lifecycle_events
    (recipient_id, tenant, url, event, run_id, job_id, scheduled_for, started_at, finished_at, attempt)
SELECT u.recipient_id, r.tenant, u.url, u.event, r.id, r.job_id, r.scheduled_for, r.started_at,
       CASE WHEN u.event <> 'started' THEN r.finished_at END, r.attempt
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) AS u(run_id, recipient_id, url, event)
JOIN punctual.runs r ON r.id = u.run_id
WHERE r.id = ANY($1::uuid[]) AND r.xmin = pg_current_xact_id()::xid
  AND r.status = CASE u.event WHEN 'started' THEN 'running' ELSE u.event END`

// lifecycle are events of the lifecycle of runs, column by column: one for each run and recipient.
type lifecycle struct {
	runs, recipients []uuid.UUID
	urls, events     []string
}

func (l *lifecycle) add(list []jobspec.Notify, job *domain.Job, run uuid.UUID, e jobspec.Event) {
	if !jobspec.Asks(list, e) {
		return
	}
	for _, to := range domain.Recipients(list) {
		if to.Asks(list, e) {
			l.runs, l.recipients = append(l.runs, run), append(l.recipients, recipientID(notice.Lifecycle, job.Tenant, to))
			l.urls, l.events = append(l.urls, to.URL), append(l.events, string(e))
		}
	}
}

func (l *lifecycle) queue(b *pgx.Batch) {
	if len(l.runs) > 0 {
		b.Queue(insertLifecycle, l.runs, l.recipients, l.urls, l.events)
	}
}

// AnyLifecycle is SQL for whether any event waits. Heartbeats ask for the chore by it, and no finish does: one look in
// two seconds is enough for a batch a second.
const AnyLifecycle = `EXISTS (SELECT FROM punctual.lifecycle_events)`

// makeDue puts recipients ($1) into the outbox for whom events wait, which notDue finds.
const (
	makeDue = `
INSERT INTO punctual.outbox AS o (id, tenant, pipeline, format, url, due_at)
SELECT DISTINCT ON (e.recipient_id) e.recipient_id, e.tenant, 'lifecycle', 'json', e.url, now()
FROM punctual.lifecycle_events e
WHERE e.recipient_id = ANY($1::uuid[])
ORDER BY e.recipient_id
ON CONFLICT (id) DO UPDATE SET due_at = now() WHERE o.due_at IS NULL`
	notDue = `
SELECT DISTINCT e.recipient_id FROM punctual.lifecycle_events e
LEFT JOIN punctual.outbox o ON o.id = e.recipient_id
WHERE e.recipient_id <> ALL($1::uuid[]) AND o.due_at IS NULL`
)

// leaveOut drops the oldest events of tenants that have too many, and those that have waited too long.
const leaveOut = `
WITH old AS (
    SELECT e.id
    FROM (SELECT DISTINCT tenant FROM punctual.outbox WHERE pipeline = 'lifecycle') t
    CROSS JOIN LATERAL (
        SELECT id FROM punctual.lifecycle_events WHERE tenant = t.tenant ORDER BY id DESC OFFSET $1 LIMIT 1) last
    JOIN punctual.lifecycle_events e ON e.tenant = t.tenant AND e.id <= last.id
    UNION
    SELECT id FROM punctual.lifecycle_events WHERE recorded_at < now() - $2::interval),
locked AS (
    SELECT id FROM punctual.lifecycle_events WHERE id IN (SELECT id FROM old) ORDER BY id FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM punctual.lifecycle_events WHERE id IN (SELECT id FROM locked) RETURNING recipient_id),
counted AS (SELECT recipient_id, count(*) AS n FROM gone GROUP BY recipient_id),
recipients AS (
    SELECT o.id, c.n FROM punctual.outbox o JOIN counted c ON c.recipient_id = o.id
    ORDER BY o.id FOR NO KEY UPDATE OF o)
UPDATE punctual.outbox o SET left_out = o.left_out + c.n FROM recipients c WHERE o.id = c.id`

// CollectLifecycle implements scheduler.Notices.
func (s *Notifier) CollectLifecycle(ctx context.Context) (left bool, err error) {
	var found []uuid.UUID
	err = s.briefly(ctx, func(b *pgx.Batch) {
		b.Queue(notDue, s.aside.Resting(aside.Recipient)).Query(pg.Into(&found, pgx.RowTo[uuid.UUID]))
	})
	if err == nil {
		err = s.aside.Each(ctx, aside.Recipient, found, func(ctx context.Context, some []uuid.UUID) error {
			return pg.Exec(ctx, s.db.Chores, makeDue, some)
		})
	}
	if s.aside.SetUnreadable(ctx, waitingEvents, err) {
		return true, nil
	}
	if err := s.briefly(ctx, func(b *pgx.Batch) { b.Queue(leaveOut, mostWaitingEvents, eventsPatience) }); err != nil {
		s.options.Log.Warn("events of runs that have waited for too long could not be left out", "error", err)
	}
	if err == nil {
		err = s.briefly(ctx, func(b *pgx.Batch) {
			b.Queue(`
				SELECT EXISTS (
				    SELECT FROM punctual.outbox o
				    JOIN punctual.tenants t ON t.id = o.tenant
				    CROSS JOIN punctual.deployment d
				    WHERE o.pipeline = 'lifecycle' AND o.due_at <= now() AND o.held_until <= now() + interval '1 s'
				      AND o.id <> ALL($1::uuid[]) AND `+maySend+`)`, s.aside.Resting(aside.Recipient)).
				QueryRow(pg.IntoPlaces(&left))
		})
	}
	return left, pg.Wrap("looking for events of runs to send", err)
}

// briefly sends statements of which none may hang at some row.
func (s *Notifier) briefly(ctx context.Context, queue func(b *pgx.Batch)) error {
	var b pgx.Batch
	b.Queue(pg.Briskly)
	queue(&b)
	return s.db.Chores.SendBatch(ctx, &b).Close()
}

// waitingEvents are the recipients of events of runs, by the events that wait for them.
var waitingEvents = aside.Rows{Kind: aside.Recipient, Table: "lifecycle_events", ID: "recipient_id", Are: "true"}

// takeEvents moves the oldest events of a recipient into a batch.
const takeEvents = `
WITH taken AS (
    SELECT id FROM punctual.lifecycle_events WHERE recipient_id = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM punctual.lifecycle_events WHERE id IN (SELECT id FROM taken) RETURNING *)
SELECT g.event, g.run_id, coalesce(j.name, ''), g.job_id, g.scheduled_for, g.started_at, g.finished_at,
       g.attempt
FROM gone g
LEFT JOIN punctual.jobs j ON j.id = g.job_id
ORDER BY g.id`

// composeBatch takes the oldest events into a batch. One that did not arrive is sent as it was, with its id. There is
// none if another replica has just left out the events.
func (to *recipient) composeBatch(ctx context.Context, tx *pg.Tx) error {
	to.Headline = "events of runs"
	if to.message != nil {
		to.ID = *to.message
		return nil
	}
	events, err := pg.All(ctx, tx, pgx.RowToStructByPos[notice.LifecycleEvent], takeEvents, to.Recipient, mostEvents)
	if err != nil || len(events) == 0 {
		return err
	}
	to.Body = []byte(asText(notice.Batch{Tenant: to.tenant, Events: events, LeftOut: to.leftOut}))
	return pg.Exec(ctx, tx, `UPDATE punctual.outbox SET batched = $2, left_out = 0 WHERE id = $1`,
		to.Recipient, int64(len(events))+to.leftOut)
}
