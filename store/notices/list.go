package notices

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// cursor is the kind of cursor of lists of notices.
const cursor byte = 'n'

// Notice is a message that a recipient took.
type Notice struct {
	ID          uuid.UUID     `json:"id" doc:"Of the message." example:"019ad98a-2a60-8d07-9c52-7b0f1e3d4a86"`
	DeliveredAt time.Time     `json:"delivered_at" doc:"When the recipient took it." example:"2026-12-01T02:00:01Z"`
	Headline    string        `json:"headline" doc:"Its first line." example:"Job daily-invoice-gen has dead runs (tenant billing)"`
	Events      []string      `json:"events" doc:"The events that it told of." example:"[\"dead\"]"`
	Jobs        []uuid.UUID   `json:"jobs" doc:"The ids of the jobs that it told of."`
	Format      domain.Format `json:"format" doc:"The form it was sent in." example:"slack"`
	URL         string        `json:"url" doc:"Where it was sent." example:"https://hooks.slack.com/services/T000/B000/XXXX"`
}

// Waiting is a recipient for which something waits.
type Waiting struct {
	Format       domain.Format `json:"format" doc:"The form of its messages." example:"slack"`
	URL          string        `json:"url" doc:"Where they are sent." example:"https://hooks.slack.com/services/T000/B000/XXXX"`
	Jobs         int           `json:"jobs" doc:"How many jobs it is yet to be told of." example:"3"`
	DueAt        time.Time     `json:"due_at" doc:"Since when there has been something to tell, or when there will be." example:"2026-12-01T02:00:01Z"`
	HeldUntil    time.Time     `json:"held_until" doc:"Nothing is sent before: a message is under way, the recipient asked for a pause, or it was sent a message a moment ago." example:"2026-12-01T02:00:31Z"`
	FailingSince *time.Time    `json:"failing_since" doc:"Since when it takes no messages; null: it does."`
	HTTPStatus   *int          `json:"http_status" doc:"Status of its last answer, if that was no success." example:"429"`
	Error        *string       `json:"error" doc:"Why the last attempt failed."`
}

// Filter selects notices; empty fields select all.
type Filter struct {
	Job uuid.UUID
	pg.Page
}

// ListNotices returns the messages that the tenant's recipients took in the last 8 days, newest first, the cursor of
// the next page, which is empty on the last page, and the recipients for which something waits.
func (s *Teller) ListNotices(
	ctx context.Context, tenant int32, f Filter,
) (list []Notice, waiting []Waiting, nextCursor string, err error) {
	var c pg.Conditions
	c.Add(`m.tenant = ?`, tenant)
	if err := c.Page(f.Page, cursor, `m.id < ?`); err != nil {
		return nil, nil, "", err
	}
	c.AddIf(f.Job != uuid.Nil, `? = ANY(m.jobs)`, f.Job)
	q := s.db.Reader(ctx, tenant)
	list, err = pg.All(ctx, q, pgx.RowToStructByPos[Notice], `
		SELECT m.id, m.delivered_at, m.headline, m.events, m.jobs, l.format, l.url
		FROM punctual.notice_messages m
		JOIN punctual.notice_lines l ON l.id = m.line_id`+c.Where()+
		fmt.Sprintf(` ORDER BY m.id DESC LIMIT %d`, f.Size()+1), c.Args...)
	if err != nil {
		return nil, nil, "", fmt.Errorf("listing notices: %w", err)
	}
	waiting, err = pg.All(ctx, q, pgx.RowToStructByPos[Waiting], `
		SELECT l.format, l.url, w.jobs, l.due_at, l.held_until, l.failing_since, l.http_status, l.error
		FROM punctual.notice_lines l
		CROSS JOIN LATERAL (
		    SELECT count(*) AS jobs, bool_or(s.job_id = $2) AS mine FROM punctual.notice_subjects s
		    WHERE s.line_id = l.id AND s.tell_at IS NOT NULL) w
		WHERE l.tenant = $1 AND l.due_at IS NOT NULL AND (w.jobs > 0 OR l.failing_since IS NOT NULL)
		  AND ($2 = '00000000-0000-0000-0000-000000000000' OR w.mine)
		ORDER BY l.due_at, l.id LIMIT 100`, tenant, f.Job)
	if err != nil {
		return nil, nil, "", fmt.Errorf("listing what waits for recipients: %w", err)
	}
	list, nextCursor = pg.Cut(list, f.Page, cursor, func(n Notice) uuid.UUID { return n.ID })
	return list, waiting, nextCursor, nil
}
