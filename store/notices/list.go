package notices

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// Notice is a message that a recipient took.
type Notice struct {
	ID          uuid.UUID      `json:"id" doc:"Of the message." example:"019ad98a-2a60-8d07-9c52-7b0f1e3d4a86"`
	DeliveredAt time.Time      `json:"delivered_at" doc:"When the recipient took it." example:"2026-12-01T02:00:01Z"`
	HappenedAt  time.Time      `json:"happened_at" doc:"When the newest of its events happened." example:"2026-12-01T02:00:00Z"`
	Headline    string         `json:"headline" doc:"Its first line." example:"Job daily-invoice-gen has dead runs (tenant billing)"`
	Events      []string       `json:"events" doc:"The events that it reported." example:"[\"dead\"]"`
	Jobs        []uuid.UUID    `json:"jobs" doc:"The ids of the jobs that it is about."`
	Format      jobspec.Format `json:"format" doc:"The form it was sent in." example:"slack"`
	URL         string         `json:"url" doc:"Where it was sent." example:"https://hooks.slack.com/services/T000/B000/XXXX"`
}

// Waiting is a recipient for which something waits.
type Waiting struct {
	Format       jobspec.Format `json:"format" doc:"The form of its messages." example:"slack"`
	URL          string         `json:"url" doc:"Where they are sent." example:"https://hooks.slack.com/services/T000/B000/XXXX"`
	Jobs         int            `json:"jobs" doc:"How many jobs it is still to be notified about; 0 if it takes no starts and successes of runs, or no notice of a step that waits for approval." example:"3"`
	DueAt        time.Time      `json:"due_at" doc:"Since when there has been something to send, or when there will be." example:"2026-12-01T02:00:01Z"`
	HeldUntil    time.Time      `json:"held_until" doc:"Nothing is sent before: a message is under way, the recipient asked for a pause, or it was sent a message a moment ago." example:"2026-12-01T02:00:31Z"`
	FailingSince *time.Time     `json:"failing_since" doc:"Since when it takes no messages; null: it does."`
	HTTPStatus   *int           `json:"http_status" doc:"Status of its last answer, if that was not a success." example:"429"`
	Error        *string        `json:"error" doc:"Why the last attempt failed."`
}

// Recipient names whom a notice was sent to, for people.
func (n Notice) Recipient() string { return jobspec.Recipient{Format: n.Format, URL: n.URL}.Words() }

// Recipient names whom something waits for, for people.
func (w Waiting) Recipient() string { return jobspec.Recipient{Format: w.Format, URL: w.URL}.Words() }

// NamedJob is a job that a notice told of.
type NamedJob struct {
	ID   uuid.UUID `json:"id" doc:"Its id."`
	Name string    `json:"name" doc:"Its name." example:"daily-invoice-gen"`
}

// Detail is a notice with the names of its jobs.
type Detail struct {
	Notice
	Named []NamedJob `json:"named" doc:"The jobs, by name. Jobs that were forgotten since are missing."`
}

// GetNotice returns a notice of a tenant.
func (s *Notifier) GetNotice(ctx context.Context, tenant int32, id uuid.UUID) (d Detail, err error) {
	q := s.db.Callers.Reader(tenant)
	d.Notice, err = pg.One(ctx, q, listed.Scan, selectNotices+` WHERE m.tenant = $1 AND m.id = $2`, tenant, id)
	if err = pg.Found(err, "notice %s", id); err == nil {
		d.Named, err = pg.All(ctx, q, pgx.RowToStructByPos[NamedJob], `
			SELECT id, name FROM punctual.jobs WHERE tenant = $1 AND id = ANY($2::uuid[]) ORDER BY name, id`, tenant, d.Jobs)
	}
	return d, err
}

const selectNotices = `
SELECT m.id, m.delivered_at, m.happened_at, m.headline, m.events, m.jobs, m.format, m.url
FROM punctual.notice_messages m`

var listed = pg.Listed[Notice]{
	What: "notices", Letter: 'n', ID: `m.id`, Of: func(n Notice) uuid.UUID { return n.ID },
	Scan: pgx.RowToStructByPos[Notice],
}

// Filter selects notices; empty fields select all.
type Filter struct {
	Job      uuid.UUID
	From, To *time.Time // delivered then; To is excluded
	pg.Page
}

// ListNotices returns the messages that the tenant's recipients took in the last 8 days, newest first, the cursor of
// the next page, which is empty on the last page, and the recipients for which something waits.
func (s *Notifier) ListNotices(
	ctx context.Context, tenant int32, f Filter,
) (list []Notice, waiting []Waiting, nextCursor string, err error) {
	var c pg.Conditions
	c.Add(`m.tenant = ?`, tenant)
	c.AddIf(f.Job != uuid.Nil, `? = ANY(m.jobs)`, f.Job)
	c.AddIf(f.From != nil, `m.delivered_at >= ?`, f.From)
	c.AddIf(f.To != nil, `m.delivered_at < ?`, f.To)
	q := s.db.Callers.Reader(tenant)
	if list, nextCursor, err = listed.Page(ctx, q, f.Page, selectNotices, c); err != nil {
		return nil, nil, "", err
	}
	waiting, err = pg.All(ctx, q, pgx.RowToStructByPos[Waiting], `
		SELECT o.format, o.url, w.jobs, o.due_at, o.held_until, o.failing_since, o.http_status, o.error
		FROM punctual.outbox o
		CROSS JOIN LATERAL (
		    SELECT count(*) AS jobs, bool_or(s.job_id = $2) AS mine FROM punctual.notice_states s
		    WHERE s.recipient_id = o.id AND s.tell_at IS NOT NULL) w
		WHERE o.tenant = $1 AND o.due_at IS NOT NULL AND (w.jobs > 0 OR o.failing_since IS NOT NULL)
		  AND ($2 = '00000000-0000-0000-0000-000000000000' OR w.mine)
		ORDER BY due_at, url LIMIT 100`, tenant, f.Job)
	return list, waiting, nextCursor, pg.Wrap("listing what waits for recipients", err)
}
