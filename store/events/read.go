package events

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Event is an event that was emitted.
type Event struct {
	ID         uuid.UUID `json:"id" format:"uuid" doc:"caused_by of its runs." example:"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968"`
	Name       string    `json:"name" doc:"Its name." example:"invoice.paid"`
	EmittedAt  time.Time `json:"emitted_at" doc:"When it was emitted. Its subscribers are the jobs whose version was valid then."`
	EmittedBy  string    `json:"emitted_by" doc:"Who emitted it." example:"submitter key shop (punctual_3fPq)"`
	BodyBytes  *int      `json:"body_bytes" doc:"Length of its body. Null: it has none." example:"31"`
	Subscribed int       `json:"subscribed" doc:"How many jobs had subscribed, regardless of their filters." example:"3"`
	FanOut     `json:"fan_out" doc:"How many of them have their run."`
}

// FanOut is how far an event has come to its subscribers.
type FanOut struct {
	Pending   bool       `json:"pending" doc:"Whether subscribers are left." example:"false"`
	Made      int        `json:"made" doc:"How many runs it has created so far." example:"1"`
	Skipped   int        `json:"skipped" doc:"How many subscribers got a skip so far: paused, or deleted since." example:"0"`
	Unmatched int        `json:"unmatched" doc:"How many have a filter that the body does not match, so far." example:"2"`
	EndedAt   *time.Time `json:"ended_at" doc:"When it had come to all of them. Null: it has not."`
}

const eventColumns = `e.id, e.name, e.emitted_at, e.emitted_by, punctual.payload_bytes(e.body), e.subscribed,
	e.ended_at IS NULL, e.made, e.skipped, e.unmatched, e.ended_at`

// EventRun is a run of an event, or the skip in its place.
type EventRun struct {
	ID         uuid.UUID      `json:"id" format:"uuid" doc:"Its id." example:"019ada6b-9c80-8b21-8f6e-1d2c3b4a5968"`
	Job        string         `json:"job" doc:"The job's name now." example:"book-payment"`
	Status     domain.Status  `json:"status" doc:"Its state." example:"succeeded"`
	Reason     *domain.Reason `json:"reason" nullable:"true" doc:"Why it is not a plain success."`
	FinishedAt *time.Time     `json:"finished_at" doc:"When it reached its final status."`
}

// EventDetails are an event and its runs.
type EventDetails struct {
	Event
	Body       json.RawMessage       `json:"body,omitempty" doc:"Its body. Absent: it has none."`
	Statuses   map[domain.Status]int `db:"-" json:"statuses" doc:"How many of its runs and skips have each status." example:"{\"succeeded\":1}"`
	Runs       []EventRun            `db:"-" json:"runs" doc:"A page of its runs and skips, in the order of their ids."`
	NextCursor *string               `db:"-" json:"next_cursor" doc:"The cursor of the next page of runs; null on the last one."`
}

var listed = pg.Listed[Event]{
	What: "events", Letter: 'E', ID: `e.id`, Of: func(e Event) uuid.UUID { return e.ID },
	Scan: pgx.RowToStructByPos[Event],
}

// listOfRuns is the list that a cursor of runs of an event belongs to.
const listOfRuns = 'F'

// Get returns an event with a page of its runs. The error is pg.ErrNotFound if the tenant has no such event of the
// name.
func (s *Events) Get(
	ctx context.Context, tenant int32, name string, id uuid.UUID, page pg.Page,
) (d EventDetails, err error) {
	after, _, err := page.After(listOfRuns)
	if err != nil {
		return d, err
	}
	at := domain.IDTime(id) // its runs have ids of the same millisecond
	from, till := domain.FirstRunID(at), domain.FirstRunID(at.Add(time.Millisecond))
	const ofEvent = ` FROM punctual.runs r
		LEFT JOIN punctual.jobs j ON j.id = r.job_id
		WHERE r.id >= $2 AND r.id < $3 AND r.tenant = $4 AND r.caused_by = $1 AND r.trigger = 'event'`
	var b pgx.Batch
	b.Queue(`
		SELECT `+eventColumns+`, e.body FROM punctual.events e
		WHERE e.id = $1 AND e.tenant = $2 AND e.name = $3`, id, tenant, name).
		Query(pg.IntoOne(&d, seal.Rows(pgx.RowToStructByPos[EventDetails], "body")))
	b.Queue(`SELECT r.status::text, count(*)::int`+ofEvent+` GROUP BY 1`, id, from, till, tenant).
		Query(func(rows pgx.Rows) error {
			d.Statuses = map[domain.Status]int{}
			return pg.IntoMap(d.Statuses)(rows)
		})
	b.Queue(`SELECT r.id, coalesce(j.name, ''), r.status, r.reason, r.finished_at`+ofEvent+` AND r.id > $5
		ORDER BY r.id LIMIT $6`, id, from, till, tenant, after, page.Size()+1).
		Query(pg.Into(&d.Runs, pgx.RowToStructByPos[EventRun]))
	if err := s.db.Callers.Reader(tenant).SendBatch(ctx, &b).Close(); err != nil {
		return d, pg.Found(err, "event %s", id)
	}
	d.Body = jobspec.ShownJSON(d.Body)
	var next string
	d.Runs, next = pg.Cut(d.Runs, page, listOfRuns, func(r EventRun) uuid.UUID { return r.ID })
	d.NextCursor = pg.OrNull(next)
	return d, nil
}

// List returns the events of a name, newest first, and the cursor of the next page. The error is pg.ErrNotFound if
// there is neither an event of the name nor a subscriber.
func (s *Events) List(ctx context.Context, tenant int32, name string, page pg.Page) ([]Event, string, error) {
	q := s.db.Callers.Reader(tenant)
	var c pg.Conditions
	c.Add(`e.tenant = ?`, tenant)
	c.Add(`e.name = ?`, name)
	found, next, err := listed.Page(ctx, q, page, `SELECT `+eventColumns+` FROM punctual.events e`, c)
	if err == nil && len(found) == 0 && page.Cursor == "" {
		known, err := pg.One(ctx, q, pgx.RowTo[bool], `
			SELECT EXISTS (SELECT FROM punctual.job_versions WHERE tenant = $1 AND event = $2)`, tenant, name)
		if err == nil && !known {
			err = pgx.ErrNoRows
		}
		return found, "", pg.Found(err, "event %s", name)
	}
	return found, next, err
}

// EventName is the name of events, with its subscribers.
type EventName struct {
	Name        string     `json:"name" doc:"The name that jobs have in schedule.event." example:"invoice.paid"`
	Subscribers int        `json:"subscribers" doc:"How many jobs run at it now." example:"3"`
	LastID      *uuid.UUID `json:"last_id" format:"uuid" nullable:"true" doc:"The newest event. Null: none is kept."`
	LastAt      *time.Time `json:"last_at" doc:"When that was emitted."`
	Events      int        `json:"events_24h" doc:"How many were emitted in the last 24 hours." example:"120"`
	Runs        int        `json:"runs_24h" doc:"How many runs these have made." example:"240"`
	Pending     int        `json:"pending" doc:"How many have not come to all their subscribers." example:"0"`
}

// selectNames reads the names after $2, of events and of subscriptions. It goes from name to name along the indexes,
// however many events there are of each.
const selectNames = `
WITH RECURSIVE n(name) AS (
    SELECT least((SELECT min(name) FROM punctual.events WHERE tenant = $1 AND name > $2),
                 (SELECT min(event) FROM punctual.job_versions WHERE tenant = $1 AND event > $2))
    UNION ALL
    SELECT least((SELECT min(e.name) FROM punctual.events e WHERE e.tenant = $1 AND e.name > n.name),
                 (SELECT min(v.event) FROM punctual.job_versions v WHERE v.tenant = $1 AND v.event > n.name))
    FROM n
    WHERE n.name IS NOT NULL)
SELECT n.name, s.n, l.id, l.emitted_at, d.events, d.runs, p.n
FROM (SELECT name FROM n WHERE name IS NOT NULL LIMIT $3) n
CROSS JOIN LATERAL (
    SELECT count(*)::int AS n
    FROM punctual.job_versions v
    JOIN punctual.jobs j ON j.id = v.job_id AND j.version = v.version
    WHERE v.tenant = $1 AND v.event = n.name AND j.tenant = $1 AND j.state <> 'deleted') s
LEFT JOIN LATERAL (
    SELECT e.id, e.emitted_at FROM punctual.events e
    WHERE e.tenant = $1 AND e.name = n.name ORDER BY e.id DESC LIMIT 1) l ON true
CROSS JOIN LATERAL (
    SELECT count(*)::int AS events, coalesce(sum(e.made), 0)::int AS runs
    FROM punctual.events e
    WHERE e.tenant = $1 AND e.name = n.name AND e.id >= $4) d
CROSS JOIN LATERAL (
    SELECT count(*)::int AS n FROM punctual.events e
    WHERE e.turn_at IS NOT NULL AND e.tenant = $1 AND e.name = n.name) p
ORDER BY n.name`

// Names returns the names of events that the tenant has emitted or subscribed to, and the cursor of the next page.
func (s *Events) Names(ctx context.Context, tenant int32, page pg.Page) (found []EventName, next string, err error) {
	after, err := base64.RawURLEncoding.Strict().DecodeString(page.Cursor)
	if err != nil || page.Cursor != "" && !jobspec.NameForm.Match(after) {
		return nil, "", &pg.CursorError{Cursor: page.Cursor}
	}
	now, err := pg.Clock(ctx, s.db.Callers)
	if err != nil {
		return nil, "", err
	}
	found, err = pg.All(ctx, s.db.Callers.Reader(tenant), pgx.RowToStructByPos[EventName], selectNames,
		tenant, string(after), page.Size()+1, domain.FirstRunID(now.Add(-24*time.Hour)))
	if err != nil {
		return nil, "", fmt.Errorf("listing the names of events: %w", err)
	}
	if len(found) > page.Size() {
		found = found[:page.Size()]
		next = base64.RawURLEncoding.EncodeToString([]byte(found[len(found)-1].Name))
	}
	return found, next, nil
}

// Pending is how many fan-outs are not over, and for how long the oldest has waited.
type Pending struct {
	Events int
	Oldest time.Duration // 0: there is none
}

// CountPending counts the fan-outs of all tenants that are not over, up to pg.DepthCap.
func (s *Events) CountPending(ctx context.Context) (p Pending, err error) {
	err = s.db.Chores.QueryRow(ctx, `
		SELECT count(*)::int, coalesce(greatest(now() - min(emitted_at), '0'), '0')
		FROM (SELECT emitted_at FROM punctual.events
		      WHERE turn_at IS NOT NULL ORDER BY turn_at LIMIT $1) e`, pg.DepthCap).Scan(&p.Events, &p.Oldest)
	return p, pg.Wrap("counting events", err)
}
