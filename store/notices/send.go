package notices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/pg"
)

const (
	// mostRows is how many rows of a line one message takes up.
	mostRows = 2000
	// mostRefusals is how often a recipient may refuse what it is told before that is given up.
	mostRefusals = 5
)

// The pauses after a message that people read, which grow while messages follow each other; and after a message that
// is a state.
const (
	firstPace  = time.Second
	longPace   = 30 * time.Second
	steadyPace = 500 * time.Millisecond
)

// Backoff is the pause after an attempt that failed, the nth in a row.
func Backoff(n int) time.Duration {
	return min(5*time.Second<<min(max(n-1, 0), 10), 5*time.Minute)
}

// LinesDue is SQL for whether a line may be sent now.
const LinesDue = `EXISTS (SELECT FROM punctual.notice_lines WHERE due_at <= now() AND held_until <= now())`

// line is a locked row of notice_lines.
type line struct {
	notice.Outgoing
	now         time.Time
	sent        map[string]time.Time
	pace        time.Duration
	deliveredAt *time.Time
}

// ClaimNotice takes the message for the recipient that has waited longest, for this replica to send; nil: there is
// none now. What it tells is kept until Answered says that it arrived. If this replica is lost, another one sends it
// after the lease. Rows are marked as perhaps known to the recipient before anything is sent.
func (s *Teller) ClaimNotice(ctx context.Context) (*notice.Outgoing, error) {
	ctx = pg.Chores.In(ctx)
	for {
		var l *line
		err := s.db.InTx(ctx, pg.Everybody, func(tx *pg.Tx) (err error) {
			if l, err = lockLine(ctx, tx); err != nil || l == nil {
				return err
			}
			return s.compose(ctx, tx, l)
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("claiming a notice: %w", err)
		case l == nil:
			return nil, nil //nolint:nilnil // nothing is to be sent
		case l.Body != nil:
			return &l.Outgoing, nil
		}
	}
}

func lockLine(ctx context.Context, tx *pg.Tx) (*line, error) {
	l := line{Outgoing: notice.Outgoing{ID: domain.NewRunID(time.Now())}}
	var sent []byte
	err := tx.QueryRow(ctx, `
		SELECT l.id, l.tenant, l.format, l.url, l.secret, l.sent, l.pace, l.delivered_at, now()
		FROM punctual.notice_lines l
		JOIN punctual.tenants t ON t.id = l.tenant
		CROSS JOIN punctual.deployment d
		WHERE l.due_at <= now() AND l.held_until <= now() AND t.frozen_at IS NULL AND d.frozen_at IS NULL
		  AND NOT punctual.is_copy(d.database_name, d.system_identifier)
		ORDER BY l.due_at LIMIT 1 FOR NO KEY UPDATE OF l SKIP LOCKED`).Scan(
		&l.Line, &l.Tenant, &l.To.Format, &l.To.URL, &l.To.Secret, &sent, &l.pace, &l.deliveredAt, &l.now)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // as the caller expects
	}
	if err == nil {
		l.sent, err = readSent(sent)
	}
	return &l, err
}

// selectDue selects what is to be told now, and selectKeys the other rows of subjects.
const (
	selectDue = selectRows + `
WHERE s.line_id = $1 AND s.tell_at <= now() ORDER BY s.tell_at, s.job_id LIMIT $2 FOR NO KEY UPDATE OF s`
	selectKeys = selectRows + `
WHERE s.line_id = $1 AND s.key = ANY($2::text[]) AND s.job_id <> ALL($3::uuid[])
ORDER BY s.job_id FOR NO KEY UPDATE OF s`
	selectRows = `
SELECT s.job_id, s.news, s.sending, coalesce(s.tell_at <= now(), false), s.resolves, s.troubled, s.open, s.key,
       j.name, t.name
FROM punctual.notice_subjects s
JOIN punctual.jobs j ON j.id = s.job_id
JOIN punctual.tenants t ON t.id = j.tenant`
)

// readRows reads the rows that have something to tell now, and with a subject of many jobs all of its rows.
func (s *Teller) readRows(ctx context.Context, tx *pg.Tx, l *line) ([]*subject, error) {
	all, err := s.scanRows(ctx, tx, selectDue, l.Line, mostRows)
	if err != nil {
		return nil, err
	}
	settle(all, l.To.Format)
	var keys []string
	for _, r := range all {
		if _, _, grouped := kindOf(r.key); grouped && !slices.Contains(keys, r.key) {
			keys = append(keys, r.key)
		}
	}
	if len(keys) == 0 {
		return all, nil
	}
	others, err := s.scanRows(ctx, tx, selectKeys, l.Line, keys,
		pg.Column(all, func(r *subject) uuid.UUID { return r.job }))
	settle(others, l.To.Format)
	return append(all, others...), err
}

func (s *Teller) scanRows(ctx context.Context, tx *pg.Tx, sql string, args ...any) (all []*subject, err error) {
	var r subject
	var news, sending []byte
	_, err = pgx.ForEachRow(pg.Query(ctx, tx, sql, args...), []any{
		&r.job, &news, &sending, &r.dirty, &r.resolves, &r.troubled, &r.open, &r.key, &r.news.Job, &r.news.Tenant,
	}, func() error {
		row := r
		row.news.JobID, row.news.Link, row.again = row.job, s.linkToJob(row.news.Job), sending != nil
		for _, raw := range [][]byte{sending, news} {
			if raw == nil {
				continue
			}
			var part domain.News
			if err := json.Unmarshal(raw, &part); err != nil {
				return err
			}
			if row.unsent != nil {
				part = row.unsent.Merge(part)
			}
			row.unsent = &part
		}
		row.dirty = row.dirty && row.unsent != nil
		all = append(all, &row)
		return nil
	})
	return all, err
}

// compose writes the message, and the rows that are in it, in the transaction that takes the lease.
func (s *Teller) compose(ctx context.Context, tx *pg.Tx, l *line) error {
	rows, err := s.readRows(ctx, tx, l)
	if err != nil {
		return err
	}
	subjects := plan(rows, l.To, l.sent, l.now)
	if len(subjects) > 0 {
		if err := s.write(l, rows, subjects); err != nil {
			return err
		}
	}
	var b pgx.Batch
	if err := queueRows(&b, l.Line, rows); err != nil {
		return err
	}
	if l.Body == nil {
		b.Queue(setDue, l.Line)
	} else {
		b.Queue(`UPDATE punctual.notice_lines SET lease = $2, held_until = now() + $3 WHERE id = $1`,
			l.Line, l.ID, notice.Lease)
	}
	return tx.SendBatch(ctx, &b).Close()
}

// setDue sets when there is something to tell of a line.
const setDue = `
UPDATE punctual.notice_lines l
SET due_at = (SELECT min(s.tell_at) FROM punctual.notice_subjects s WHERE s.line_id = l.id)
WHERE l.id = $1`

func (s *Teller) write(l *line, rows []*subject, subjects []notice.Subject) error {
	brief(subjects)
	m := notice.Message{Tenant: rows[0].news.Tenant, Link: s.linkToJobs(), Subjects: subjects}
	if len(subjects) == 1 && subjects[0].Kind == notice.KindJob {
		m.Link = subjects[0].Jobs[0].Link
	}
	resolves := true
	for _, r := range rows {
		if r.takes {
			l.Jobs, resolves = append(l.Jobs, r.job), resolves && r.resolves
			if r.open && !r.wasOpen {
				l.Opened = append(l.Opened, r.job)
			}
			if r.open {
				l.Opens, l.Under = append(l.Opens, r.job), append(l.Under, r.key)
			}
		}
	}
	for _, s := range subjects {
		l.Keys = append(l.Keys, s.Key)
	}
	l.Headline, l.Events = notice.Headline(m), events(subjects)
	var err error
	l.Body, err = notice.Write(m, l.To.Format, resolves, l.now)
	return err
}

// linkToJobs links to the list of jobs.
func (s *Teller) linkToJobs() string {
	if s.options.Pages {
		return s.link("/jobs")
	}
	return s.link("/v1/jobs")
}

// queueRows queues the statements that write the decisions of a plan.
func queueRows(b *pgx.Batch, line uuid.UUID, rows []*subject) error {
	var forget []uuid.UUID
	var taken, later []*subject
	var sending []*string
	for _, r := range rows {
		switch {
		case r.forget:
			forget = append(forget, r.job)
		case r.takes:
			var text *string
			if r.unsent != nil {
				raw, err := json.Marshal(r.unsent)
				if err != nil {
					return fmt.Errorf("job %s: its news: %w", r.job, err)
				}
				text = new(string(raw))
			}
			taken, sending = append(taken, r), append(sending, text)
		case !r.until.IsZero():
			later = append(later, r)
		}
	}
	job := func(r *subject) uuid.UUID { return r.job }
	key := func(r *subject) string { return r.key }
	troubled := func(r *subject) bool { return r.troubled }
	if len(forget) > 0 {
		b.Queue(`DELETE FROM punctual.notice_subjects WHERE line_id = $1 AND job_id = ANY($2::uuid[])`, line, forget)
	}
	if len(later) > 0 {
		b.Queue(`
			UPDATE punctual.notice_subjects s SET tell_at = u.until, key = u.key, troubled = u.troubled
			FROM unnest($2::uuid[], $3::timestamptz[], $4::text[], $5::bool[]) AS u(job_id, until, key, troubled)
			WHERE s.line_id = $1 AND s.job_id = u.job_id`,
			line, pg.Column(later, job), pg.Column(later, func(r *subject) time.Time { return r.until }),
			pg.Column(later, key), pg.Column(later, troubled))
	}
	if len(taken) > 0 {
		b.Queue(`
			UPDATE punctual.notice_subjects s
			SET news = NULL, sending = u.sending::json, troubled = u.troubled, open = u.open, key = u.key,
			    tell_at = CASE WHEN u.sending IS NOT NULL THEN least(s.tell_at, now()) END
			FROM unnest($2::uuid[], $3::text[], $4::bool[], $5::bool[], $6::text[])
			     AS u(job_id, sending, troubled, open, key)
			WHERE s.line_id = $1 AND s.job_id = u.job_id`,
			line, pg.Column(taken, job), sending, pg.Column(taken, troubled),
			pg.Column(taken, func(r *subject) bool { return r.open }), pg.Column(taken, key))
	}
	return nil
}

// Answered writes how a recipient answered a message. A message that arrived is done with, and the next one waits for
// a moment. If it may have arrived, what it told stays perhaps known, and is told again. If it did not, it is told
// again as if it had never been tried.
func (s *Teller) Answered(ctx context.Context, m notice.Outgoing, a notice.Answer) error {
	ctx = pg.Chores.In(ctx)
	var failing, refused bool
	err := s.db.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		var l line
		var sent []byte
		var lease *uuid.UUID
		var failures int
		err := tx.QueryRow(ctx, `
			SELECT lease, sent, pace, delivered_at, failures, now() FROM punctual.notice_lines
			WHERE id = $1 FOR NO KEY UPDATE`, m.Line).Scan(&lease, &sent, &l.pace, &l.deliveredAt, &failures, &l.now)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // its tenant is gone
		}
		if err != nil {
			return err
		}
		if l.sent, err = readSent(sent); err != nil {
			return err
		}
		l.Outgoing = m
		var b pgx.Batch
		switch {
		case lease == nil || *lease != m.ID:
			if a.Arrival == notice.Delivered || a.Arrival == notice.Unknown {
				queueTellAgain(&b, m)
			}
		case a.Arrival == notice.Delivered:
			err = l.queueDelivered(&b)
		default:
			failing = a.Arrival != notice.PutOff && failures == 0
			refused = a.Arrival == notice.Refused && failures+1 >= mostRefusals
			l.queueFailed(&b, a, failures)
		}
		if err != nil || b.Len() == 0 {
			return err
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	if failing && err == nil {
		s.options.Log.Error("a recipient of notices takes none; they wait, and it is tried again",
			"format", m.To.Format, "url", m.To.URL, "tenant", m.Tenant, "http_status", a.Status, "error", a.Error)
	}
	if refused && err == nil {
		s.options.Log.Error("a recipient refused a notice too often; it is given up",
			"url", m.To.URL, "tenant", m.Tenant, "headline", m.Headline, "http_status", a.Status)
	}
	return pg.Wrap("writing how a recipient answered", err)
}

func (l *line) queueDelivered(b *pgx.Batch) error {
	for key, at := range l.sent {
		if at.Add(gap).Before(l.now) {
			delete(l.sent, key)
		}
	}
	for _, key := range l.Keys {
		if _, _, grouped := kindOf(key); grouped {
			l.sent[key] = l.now
		}
	}
	text, err := json.Marshal(l.sent)
	if err != nil {
		return err
	}
	pace := steadyPace
	if !stateful(l.To.Format) {
		pace = firstPace
		if l.deliveredAt != nil && l.now.Sub(*l.deliveredAt) < 2*longPace {
			pace = min(max(2*l.pace, firstPace), longPace)
		}
	}
	b.Queue(`
		UPDATE punctual.notice_subjects s
		SET sending = NULL, open = s.troubled AND s.resolves, key = CASE WHEN s.troubled THEN s.key ELSE '' END,
		    tell_at = CASE WHEN s.news IS NOT NULL THEN s.tell_at END
		WHERE s.line_id = $1 AND s.job_id = ANY($2::uuid[])`, l.Line, l.Jobs)
	b.Queue(`
		DELETE FROM punctual.notice_subjects
		WHERE line_id = $1 AND job_id = ANY($2::uuid[]) AND news IS NULL AND NOT open`, l.Line, l.Jobs)
	b.Queue(`
		UPDATE punctual.notice_lines
		SET held_until = now() + $2, pace = $2, sent = $3, delivered_at = now(), failing_since = NULL, failures = 0,
		    http_status = NULL, error = NULL
		WHERE id = $1`, l.Line, pace, string(text))
	b.Queue(setDue, l.Line)
	b.Queue(`
		INSERT INTO punctual.notice_messages (id, line_id, tenant, headline, events, jobs)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`, l.ID, l.Line, l.Tenant, l.Headline, l.Events, l.Jobs)
	return nil
}

func (l *line) queueFailed(b *pgx.Batch, a notice.Answer, failures int) {
	if a.Arrival != notice.Unknown && len(l.Opened) > 0 {
		b.Queue(`UPDATE punctual.notice_subjects SET open = false WHERE line_id = $1 AND job_id = ANY($2::uuid[])`,
			l.Line, l.Opened)
	}
	pause := Backoff(failures + 1)
	dropped := a.Arrival == notice.Refused && failures+1 >= mostRefusals
	switch {
	case a.Arrival == notice.PutOff:
		pause = min(max(a.RetryAfter, time.Second), time.Hour)
	case dropped:
		b.Queue(`
			UPDATE punctual.notice_subjects
			SET sending = NULL, tell_at = CASE WHEN news IS NOT NULL THEN tell_at END
			WHERE line_id = $1 AND job_id = ANY($2::uuid[])`, l.Line, l.Jobs)
		b.Queue(`
			DELETE FROM punctual.notice_subjects
			WHERE line_id = $1 AND job_id = ANY($2::uuid[]) AND news IS NULL AND NOT (open AND troubled)`, l.Line, l.Jobs)
		b.Queue(setDue, l.Line)
	}
	b.Queue(`
		UPDATE punctual.notice_lines
		SET held_until = now() + $2, http_status = $3, error = $4,
		    failing_since = CASE WHEN $5 THEN failing_since ELSE coalesce(failing_since, now()) END,
		    failures = CASE WHEN $5 THEN failures WHEN $6 THEN 0 ELSE failures + 1 END
		WHERE id = $1`, l.Line, pause, pg.OrNull(a.Status), a.Error, a.Arrival == notice.PutOff, dropped)
}

// queueTellAgain has the states of the jobs of a message told again. The message may have arrived after later ones,
// because its replica stood still. A job that has no row by now is well, or was deleted.
func queueTellAgain(b *pgx.Batch, m notice.Outgoing) {
	b.Queue(`
		INSERT INTO punctual.notice_subjects AS s (job_id, line_id, resolves, open, key, tell_at, sending)
		SELECT j.id, $1, true, true, u.key, now(), json_build_object('job', j.name, 'job_id', j.id, 'tenant', t.name,
		           'events', json_build_array(json_build_object('event', 'recovered', 'count', 1, 'first_at', now(),
		               'last_at', now(), 'runs', '[]'::json)))
		FROM unnest($2::uuid[], $3::text[]) AS u(job_id, key)
		JOIN punctual.jobs j ON j.id = u.job_id
		JOIN punctual.tenants t ON t.id = j.tenant
		ORDER BY j.id
		ON CONFLICT (job_id, line_id) DO UPDATE
		SET open = true, tell_at = least(s.tell_at, now()), sending = coalesce(s.sending,
		    CASE WHEN s.troubled THEN json_build_object('job', excluded.sending -> 'job', 'job_id', s.job_id,
		        'tenant', excluded.sending -> 'tenant', 'events', json_build_array(json_build_object(
		            'event', 'failing', 'count', 1, 'first_at', now(), 'last_at', now(), 'runs', '[]'::json)))
		    ELSE excluded.sending END)`, m.Line, m.Opens, m.Under)
	b.Queue(setDue, m.Line)
}

// ForgetNotices deletes messages that recipients took more than 8 days ago, and recipients that took none since.
func (s *Teller) ForgetNotices(ctx context.Context) (forgotten int, left bool, err error) {
	forgotten, left, err = pg.ForgetOld(ctx, s.db, "notice_messages", "delivered_at", []string{"id"}, 8*24*time.Hour)
	if err != nil || left {
		return forgotten, left, err
	}
	return forgotten, false, pg.Wrap("removing recipients of notices", pg.Exec(ctx, s.db.Conns(ctx), `
		DELETE FROM punctual.notice_lines l
		WHERE l.due_at IS NULL AND l.held_until < now() - interval '8 days'
		  AND NOT EXISTS (SELECT FROM punctual.notice_subjects s WHERE s.line_id = l.id)
		  AND NOT EXISTS (SELECT FROM punctual.notice_messages m WHERE m.line_id = l.id)`))
}
