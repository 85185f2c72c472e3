package notices

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/aside"
	"punctual/store/pg"
	"punctual/store/seal"
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

// LinesDue is SQL for whether something may be sent now.
const LinesDue = `EXISTS (SELECT FROM punctual.notice_lines WHERE due_at <= now() AND held_until <= now()) OR ` +
	approvalsDue

// line is a locked row of notice_lines.
type line struct {
	notice.Outgoing
	now    time.Time
	sent   map[string]time.Time // when subjects were told of
	causes map[string]cause     // that are open
	lookAt *time.Time           // when a cause may be over; nil: none is open
}

// dueLines are the recipients to whom something may be sent now.
var dueLines = aside.Rows{
	Kind: aside.Recipient, Table: "notice_lines", ID: "id", Are: "r.due_at <= now() AND r.held_until <= now()",
}

// ClaimNotice takes the message for the recipient that has waited longest, for this replica to send; nil: there is
// none now. What it tells is kept until Answered says that it arrived. If this replica is lost, another one sends it
// after the lease. Rows are marked as perhaps known to the recipient before anything is sent.
func (s *Teller) ClaimNotice(ctx context.Context) (*notice.Outgoing, error) {
	if m, err := s.claimApproval(ctx); m != nil || err != nil {
		return m, err
	}
	var taken uuid.UUID
	m, err := s.claim(ctx, func(tx *pg.Tx) (*notice.Outgoing, error) {
		l := line{Outgoing: notice.Outgoing{ID: domain.NewRunID(time.Now())}}
		err := tx.QueryRow(ctx, `
			SELECT l.id, l.tenant, l.format, l.url, l.secret, l.template, l.sent, l.causes, now()
			FROM punctual.notice_lines l
			JOIN punctual.tenants t ON t.id = l.tenant
			CROSS JOIN punctual.deployment d
			WHERE l.due_at <= now() AND l.held_until <= now() AND l.id <> ALL($1::uuid[]) AND `+maySend+`
			ORDER BY l.due_at LIMIT 1 FOR NO KEY UPDATE OF l SKIP LOCKED`, s.aside.Resting(aside.Recipient)).Scan(
			&l.Line, &l.Tenant, &l.To.Format, &l.To.URL, &l.To.Secret, &l.To.Template, &l.sent, &l.causes, &l.now)
		if some, err := pg.Some(err); !some {
			return nil, err
		}
		taken = l.Line
		return &l.Outgoing, s.compose(ctx, tx, &l)
	})
	if taken == uuid.Nil && s.aside.SetUnreadable(ctx, dueLines, err) {
		return s.ClaimNotice(ctx)
	}
	if again, err := s.aside.One(ctx, aside.Recipient, taken, false, err); again || err != nil {
		if err == nil {
			return s.ClaimNotice(ctx) // of another recipient
		}
		return nil, fmt.Errorf("claiming a notice: %w", err)
	}
	return m, nil
}

// maySend is SQL for whether anything of a tenant t of the deployment d may be sent.
const maySend = `t.frozen_at IS NULL AND d.frozen_at IS NULL
  AND NOT punctual.is_copy(d.database_name, d.system_identifier)`

// claim takes the first message that has a body. next locks what waits longest and writes its message, each in a
// transaction; nil: nothing waits.
func (s *Teller) claim(
	ctx context.Context, next func(tx *pg.Tx) (*notice.Outgoing, error),
) (m *notice.Outgoing, err error) {
	for {
		err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) (err error) {
			if err := pg.Exec(ctx, tx, pg.Briskly); err != nil { // and so reads no row of another recipient
				return err
			}
			m, err = next(tx)
			return err
		})
		if err != nil {
			return nil, err
		}
		if m == nil || m.Body != nil {
			return m, nil
		}
	}
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
       s.ends, s.known, j.name, t.name
FROM punctual.notice_subjects s
JOIN punctual.jobs j ON j.id = s.job_id
JOIN punctual.tenants t ON t.id = j.tenant`
)

// readRows reads the rows that have something to tell now, and all rows of the subjects of many jobs among them and of
// open causes.
func (s *Teller) readRows(ctx context.Context, tx *pg.Tx, l *line) ([]*subject, error) {
	all, err := s.scanRows(ctx, tx, l, selectDue, l.Line, mostRows)
	if err != nil {
		return nil, err
	}
	settle(all, l.To.Format)
	keys := l.keysOfCauses()
	for _, r := range all {
		if _, _, grouped := kindOf(r.key); grouped && !slices.Contains(keys, r.key) {
			keys = append(keys, r.key)
		}
	}
	if len(keys) == 0 {
		return all, nil
	}
	others, err := s.scanRows(ctx, tx, l, selectKeys, l.Line, keys,
		pg.Column(all, func(r *subject) uuid.UUID { return r.job }))
	settle(others, l.To.Format)
	return append(all, others...), err
}

func (s *Teller) scanRows(
	ctx context.Context, tx *pg.Tx, l *line, sql string, args ...any,
) (all []*subject, err error) {
	var r subject
	var news, sending *domain.News
	var ends *string
	_, err = pgx.ForEachRow(pg.Query(ctx, tx, sql, args...), []any{
		&r.job, seal.NoticeOf(&news), seal.NoticeOf(&sending), &r.dirty, &r.resolves, &r.troubled, &r.open, &r.key, &ends,
		&r.known, &r.news.Job, &r.news.Tenant,
	}, func() error {
		row := r
		row.news.JobID, row.news.Link, row.again = row.job, s.linkToJob(row.news.Job), sending != nil
		row.unsent = cmp.Or(news, sending)
		if news != nil && sending != nil {
			row.unsent = new(sending.Merge(*news))
		}
		if ends != nil {
			row.end(*ends, l.now)
		}
		row.identify(l.To.Format)
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
	w, err := readWorld(ctx, tx, l.Tenant,
		append(l.keysOfCauses(), pg.Column(rows, func(r *subject) string { return r.key })...))
	if err != nil {
		return err
	}
	subjects := l.plan(rows, w)
	if len(subjects) > 0 {
		if err := s.write(l, w.tenant, rows, subjects); err != nil {
			return err
		}
	}
	var b pgx.Batch
	queueRows(&b, l.Line, rows)
	l.queueCauses(&b)
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
SET due_at = least(l.look_at, (SELECT min(s.tell_at) FROM punctual.notice_subjects s WHERE s.line_id = l.id))
WHERE l.id = $1`

func (s *Teller) write(l *line, tenant string, rows []*subject, subjects []notice.Subject) error {
	brief(subjects)
	m := notice.Message{Tenant: tenant, Link: s.link("/jobs"), Subjects: subjects}
	switch {
	case len(subjects) == 1 && len(subjects[0].Jobs) == 1 &&
		(subjects[0].Kind == notice.KindJob || subjects[0].Kind == notice.KindOverlap):
		m.Link = subjects[0].Jobs[0].Link
	case len(subjects) > 1 || len(subjects[0].Jobs) > 0:
		m.Link = s.link("/notices/" + l.ID.String()) // which names all of them
	}
	resolves := !slices.ContainsFunc(rows, func(r *subject) bool { return r.takes && !r.resolves })
	for _, s := range subjects {
		l.Keys = append(l.Keys, s.Key)
		if s.Kind == notice.KindOverlap {
			l.Beside = append(l.Beside, pg.Column(s.Jobs, func(j domain.News) uuid.UUID { return j.JobID })...)
		}
	}
	l.Headline, l.Events, l.Newest = notice.Headline(m), m.Events(), m.NewestAt()
	if l.Newest.IsZero() {
		l.Newest = l.now
	}
	var err error
	l.Body, err = notice.Write(m, l.To, resolves, l.now)
	return err
}

// queueRows queues the statements that write the decisions of a plan.
func queueRows(b *pgx.Batch, line uuid.UUID, rows []*subject) {
	var forget, taken, later []*subject
	for _, r := range rows {
		switch {
		case r.forget:
			forget = append(forget, r)
		case r.takes:
			taken = append(taken, r)
		case !r.until.IsZero():
			later = append(later, r)
		}
	}
	job := func(r *subject) uuid.UUID { return r.job }
	key := func(r *subject) string { return r.key }
	if len(forget) > 0 {
		b.Queue(`DELETE FROM punctual.notice_subjects WHERE line_id = $1 AND job_id = ANY($2::uuid[])`,
			line, pg.Column(forget, job))
	}
	if len(later) > 0 {
		b.Queue(`
			UPDATE punctual.notice_subjects s SET tell_at = u.until, key = u.key
			FROM unnest($2::uuid[], $3::timestamptz[], $4::text[]) AS u(job_id, until, key)
			WHERE s.line_id = $1 AND s.job_id = u.job_id`,
			line, pg.Column(later, job), pg.Column(later, func(r *subject) time.Time { return r.until }),
			pg.Column(later, key))
	}
	if len(taken) > 0 {
		b.Queue(`
			UPDATE punctual.notice_subjects s
			SET news = NULL, sending = nullif(u.sending, 'null')::json, troubled = u.troubled, open = u.open, key = u.key,
			    ends = NULL, known = nullif(u.known, 'null')::json,
			    tell_at = CASE WHEN u.sending <> 'null' THEN least(s.tell_at, now()) END
			FROM unnest($2::uuid[], $3::text[], $4::bool[], $5::bool[], $6::text[], $7::text[])
			     AS u(job_id, sending, troubled, open, key, known)
			WHERE s.line_id = $1 AND s.job_id = u.job_id`,
			line, pg.Column(taken, job), pg.Column(taken, func(r *subject) seal.Notice { return seal.Notice(asText(r.unsent)) }),
			pg.Column(taken, func(r *subject) bool { return r.troubled }),
			pg.Column(taken, func(r *subject) bool { return r.open }), pg.Column(taken, key),
			pg.Column(taken, func(r *subject) string { return asText(r.known) }))
	}
}

// asText writes news, causes, events of runs, or when subjects were told of, as JSON. These are texts, numbers and
// instants that have been, so it never fails; null for nil.
func asText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
