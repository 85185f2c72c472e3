package notices

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/aside"
	"punctual/store/pg"
)

// The starts and successes of runs are told in batches, in lines of their own: they are many, each is told, and none of
// them may make a notice of trouble wait.

const (
	// mostEvents is how many events a batch has. It then has less than 100 kB, which receivers take by default.
	mostEvents = 100
	// mostWaitingEvents is how many events of a tenant wait.
	mostWaitingEvents = 10_000
	// mostBatches is how many batches of a tenant are under way at once, on all replicas.
	mostBatches = 2
	// eventsPace is the pause after a batch.
	eventsPace = time.Second
	// eventsPatience is how long an event waits, and a batch is tried.
	eventsPatience = 24 * time.Hour
)

// insertLives writes events of runs that this transaction has written.
const insertLives = `
INSERT INTO punctual.lifecycle_events
    (line_id, tenant, url, event, run_id, job_id, scheduled_for, started_at, finished_at, attempt)
SELECT u.line_id, r.tenant, u.url, u.event, r.id, r.job_id, r.scheduled_for, r.started_at,
       CASE WHEN u.event <> 'started' THEN r.finished_at END, r.attempt
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) AS u(run_id, line_id, url, event)
JOIN punctual.runs r ON r.id = u.run_id
WHERE r.id = ANY($1::uuid[]) AND r.xmin = pg_current_xact_id()::xid
  AND r.status = CASE u.event WHEN 'started' THEN 'running' ELSE u.event END`

// lives are events of the lifecycle of runs, column by column: one for each run and recipient.
type lives struct {
	runs, lines  []uuid.UUID
	urls, events []string
}

func (l *lives) add(list []domain.Notify, job *domain.Job, run uuid.UUID, e domain.Event) {
	if !domain.Asks(list, e) {
		return
	}
	for _, to := range domain.Recipients(list) {
		if to.Asks(list, e) {
			l.runs, l.lines = append(l.runs, run), append(l.lines, lineOf(job.Tenant, to))
			l.urls, l.events = append(l.urls, to.URL), append(l.events, string(e))
		}
	}
}

func (l *lives) queue(b *pgx.Batch) {
	if len(l.runs) > 0 {
		b.Queue(insertLives, l.runs, l.lines, l.urls, l.events)
	}
}

// AnyLifecycle is SQL for whether any event waits or any batch may be sent. Heartbeats ask for the chore by it, and no
// finish does: one look in two seconds is enough for a batch a second.
const AnyLifecycle = `EXISTS (SELECT FROM punctual.lifecycle_events)
           OR EXISTS (SELECT FROM punctual.lifecycle_lines WHERE body IS NOT NULL AND held_until <= now())`

// makeLines makes the lines of recipients that have none ($1), which withoutLine finds.
const (
	makeLines = `
INSERT INTO punctual.lifecycle_lines (id, tenant, url)
SELECT DISTINCT ON (e.line_id) e.line_id, e.tenant, e.url
FROM punctual.lifecycle_events e
WHERE e.line_id = ANY($1::uuid[])
ORDER BY e.line_id
ON CONFLICT DO NOTHING`
	withoutLine = `
SELECT DISTINCT e.line_id FROM punctual.lifecycle_events e
WHERE e.line_id <> ALL($1::uuid[]) AND NOT EXISTS (SELECT FROM punctual.lifecycle_lines l WHERE l.id = e.line_id)`
)

// leaveOut drops the oldest events of tenants that have too many, and those that have waited too long.
const leaveOut = `
WITH old AS (
    SELECT e.id
    FROM (SELECT DISTINCT tenant FROM punctual.lifecycle_lines) t
    CROSS JOIN LATERAL (
        SELECT id FROM punctual.lifecycle_events WHERE tenant = t.tenant ORDER BY id DESC OFFSET $1 LIMIT 1) last
    JOIN punctual.lifecycle_events e ON e.tenant = t.tenant AND e.id <= last.id
    UNION
    SELECT id FROM punctual.lifecycle_events WHERE recorded_at < now() - $2::interval),
locked AS (
    SELECT id FROM punctual.lifecycle_events WHERE id IN (SELECT id FROM old) ORDER BY id FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM punctual.lifecycle_events WHERE id IN (SELECT id FROM locked) RETURNING line_id),
counted AS (SELECT line_id, count(*) AS n FROM gone GROUP BY line_id),
lines AS (
    SELECT l.id, c.n FROM punctual.lifecycle_lines l JOIN counted c ON c.line_id = l.id
    ORDER BY l.id FOR NO KEY UPDATE OF l)
UPDATE punctual.lifecycle_lines l SET left_out = l.left_out + c.n FROM lines c WHERE l.id = c.id`

// sendable selects lines, except some ($1), with a batch to send or events for one, of tenants that are not frozen.
const sendable = `
FROM punctual.lifecycle_lines l
JOIN punctual.tenants t ON t.id = l.tenant
CROSS JOIN punctual.deployment d
WHERE l.id <> ALL($1::uuid[])
  AND (l.body IS NOT NULL OR EXISTS (SELECT FROM punctual.lifecycle_events e WHERE e.line_id = l.id))
  AND ` + maySend

// PrepareLifecycle implements scheduler.Notices.
func (s *Teller) PrepareLifecycle(ctx context.Context) (left bool, err error) {
	resting := s.aside.Resting(aside.Recipient)
	var found []uuid.UUID
	err = s.briefly(ctx, func(b *pgx.Batch) {
		b.Queue(withoutLine, resting).Query(pg.Into(&found, pgx.RowTo[uuid.UUID]))
	})
	if err == nil {
		err = s.aside.Each(ctx, aside.Recipient, found, func(ctx context.Context, lines []uuid.UUID) error {
			return pg.Exec(ctx, s.db.Chores, makeLines, lines)
		})
	}
	if s.aside.SetUnreadable(ctx, linesOfEvents, err) || s.aside.SetUnreadable(ctx, eventsOfLines, err) {
		return true, nil
	}
	bounded := s.briefly(ctx, func(b *pgx.Batch) { b.Queue(leaveOut, mostWaitingEvents, eventsPatience) })
	if err == nil {
		err = s.briefly(ctx, func(b *pgx.Batch) {
			b.Queue(`SELECT EXISTS (SELECT `+sendable+` AND l.held_until <= now() + interval '1 s')`, resting).
				QueryRow(pg.IntoPlaces(&left))
		})
	}
	if bounded != nil {
		s.options.Log.Warn("events of runs that have waited for too long could not be left out", "error", bounded)
	}
	return left, pg.Wrap("looking for events of runs to send", err)
}

// briefly sends statements of which none may hang at some row.
func (s *Teller) briefly(ctx context.Context, queue func(b *pgx.Batch)) error {
	var b pgx.Batch
	b.Queue(pg.Briskly)
	queue(&b)
	return s.db.Chores.SendBatch(ctx, &b).Close()
}

// The recipients of events of runs, by their lines, and by the events that wait for them.
var (
	linesOfEvents = aside.Rows{Kind: aside.Recipient, Table: "lifecycle_lines", ID: "id", Are: "true"}
	eventsOfLines = aside.Rows{Kind: aside.Recipient, Table: "lifecycle_events", ID: "line_id", Are: "true"}
)

// eventsLine is a locked row of lifecycle_lines.
type eventsLine struct {
	notice.Outgoing
	tenant  string // name
	message *uuid.UUID
	leftOut int64
	now     time.Time
}

// ClaimLifecycle implements scheduler.Notices. A batch that did not arrive is sent as it is, with the id that it had.
func (s *Teller) ClaimLifecycle(ctx context.Context) (*notice.Outgoing, error) {
	var taken uuid.UUID
	m, err := s.claim(ctx, func(tx *pg.Tx) (*notice.Outgoing, error) {
		l := eventsLine{Outgoing: notice.Outgoing{
			Lifecycle: true, To: domain.Recipient{Format: domain.FormatJSON}, Headline: "events of runs",
		}}
		err := tx.QueryRow(ctx, `
			WITH busy AS MATERIALIZED (
			    SELECT tenant FROM punctual.lifecycle_lines WHERE under_way AND held_until > now()
			    GROUP BY tenant HAVING count(*) >= $2)
			SELECT l.id, l.tenant, t.name, l.url, l.message, l.body, l.left_out, now()`+sendable+`
			  AND l.held_until <= now() AND l.tenant NOT IN (SELECT tenant FROM busy)
			ORDER BY l.held_until LIMIT 1 FOR NO KEY UPDATE OF l SKIP LOCKED`,
			s.aside.Resting(aside.Recipient), mostBatches).
			Scan(&l.Line, &l.Tenant, &l.tenant, &l.To.URL, &l.message, &l.Body, &l.leftOut, &l.now)
		if some, err := pg.Some(err); !some {
			return nil, err
		}
		taken = l.Line
		return &l.Outgoing, l.compose(ctx, tx)
	})
	if again, failed := s.aside.One(ctx, aside.Recipient, taken, false, err); again {
		return s.ClaimLifecycle(ctx) // of another recipient
	} else if err = failed; err != nil {
		return nil, fmt.Errorf("claiming events of runs: %w", err)
	}
	return m, nil
}

// takeEvents moves the oldest events of a line into a batch.
const takeEvents = `
WITH taken AS (
    SELECT id FROM punctual.lifecycle_events WHERE line_id = $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM punctual.lifecycle_events WHERE id IN (SELECT id FROM taken) RETURNING *)
SELECT g.event, g.run_id, coalesce(j.name, ''), g.job_id, g.scheduled_for, g.started_at, g.finished_at,
       g.attempt
FROM gone g
LEFT JOIN punctual.jobs j ON j.id = g.job_id
ORDER BY g.id`

// compose takes the batch, or makes one, in the transaction that takes the lease. There is none if another replica has
// just left out the events.
func (l *eventsLine) compose(ctx context.Context, tx *pg.Tx) error {
	if l.message != nil {
		l.ID = *l.message
		return pg.Exec(ctx, tx, `
			UPDATE punctual.lifecycle_lines SET under_way = true, held_until = now() + $2 WHERE id = $1`,
			l.Line, notice.Lease)
	}
	l.ID = domain.NewRunID(l.now)
	events, err := pg.All(ctx, tx, pgx.RowToStructByPos[notice.LifecycleEvent], takeEvents, l.Line, mostEvents)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return pg.Exec(ctx, tx, `UPDATE punctual.lifecycle_lines SET held_until = now() + $2 WHERE id = $1`,
			l.Line, eventsPace)
	}
	l.Body = []byte(asText(notice.Lifecycle{Tenant: l.tenant, Events: events, LeftOut: l.leftOut}))
	return pg.Exec(ctx, tx, `
		UPDATE punctual.lifecycle_lines
		SET message = $2, body = $3, told = $4, left_out = 0, under_way = true, held_until = now() + $5
		WHERE id = $1`, l.Line, l.ID, l.Body, int64(len(events))+l.leftOut, notice.Lease)
}

// lifecycleAnswered writes how a recipient answered a batch. One that it takes no more is counted as left out.
func (s *Teller) lifecycleAnswered(ctx context.Context, m notice.Outgoing, a notice.Answer) error {
	if a.Arrival == notice.Delivered {
		return pg.Exec(ctx, s.db.Chores, `
			UPDATE punctual.lifecycle_lines
			SET message = NULL, body = NULL, told = 0, under_way = false, held_until = now() + $3, failing_since = NULL,
			    failures = 0, http_status = NULL, error = NULL
			WHERE id = $1 AND message = $2`, m.Line, m.ID, eventsPace)
	}
	failed := 1
	if a.Arrival == notice.PutOff {
		failed = 0
	}
	return s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		var failures int
		var now time.Time
		err := tx.QueryRow(ctx, `
			SELECT failures + $3, now() FROM punctual.lifecycle_lines WHERE id = $1 AND message = $2 FOR NO KEY UPDATE`,
			m.Line, m.ID, failed).Scan(&failures, &now)
		if some, err := pg.Some(err); !some { // it was taken, or given up
			return err
		}
		pause := max(a.RetryAfter, Backoff(failures))
		over := a.Arrival == notice.Refused && failures >= mostRefusals || domain.IDTime(m.ID).Add(eventsPatience).Before(now)
		if failures == 1 && failed == 1 || over {
			s.options.Log.Error("a recipient does not take events of runs", "url", m.To.URL, "tenant", m.Tenant,
				"given_up", over, "http_status", a.Status, "error", a.Error)
		}
		return pg.Exec(ctx, tx, `
			UPDATE punctual.lifecycle_lines
			SET under_way = false, held_until = now() + $2, failures = CASE WHEN $5 THEN 0 ELSE $3 END,
			    failing_since = CASE WHEN $4 THEN coalesce(failing_since, now()) ELSE failing_since END,
			    http_status = $6, error = $7, left_out = CASE WHEN $5 THEN left_out + told ELSE left_out END,
			    told = CASE WHEN $5 THEN 0 ELSE told END, message = CASE WHEN NOT $5 THEN message END,
			    body = CASE WHEN NOT $5 THEN body END
			WHERE id = $1`, m.Line, min(pause, time.Hour), failures, failed == 1, over, pg.OrNull(a.Status), a.Error)
	})
}

// forgetLifecycle removes the lines of recipients that were sent nothing for 8 days, and of deleted tenants.
func (s *Teller) forgetLifecycle(ctx context.Context) error {
	return pg.Exec(ctx, s.db.Chores, `
		DELETE FROM punctual.lifecycle_lines l
		WHERE l.held_until < now() - interval '8 days'
		  AND NOT EXISTS (SELECT FROM punctual.lifecycle_events e WHERE e.line_id = l.id)
		   OR l.tenant IN (SELECT t.id FROM punctual.tenants t WHERE t.deleted_at < now() - interval '1 day')`)
}
