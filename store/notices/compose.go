package notices

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/pg"
	"punctual/store/seal"
)

// mostRows is how many rows of a recipient one message takes up.
const mostRows = 2000

// selectDue selects what is to be told now, and selectKeys the other rows of subjects.
const (
	selectDue = selectRows + `
WHERE s.recipient_id = $1 AND s.tell_at <= now() ORDER BY s.tell_at, s.job_id LIMIT $2 FOR NO KEY UPDATE OF s`
	selectKeys = selectRows + `
WHERE s.recipient_id = $1 AND s.key = ANY($2::text[])
  AND NOT EXISTS (SELECT FROM unnest($3::uuid[], $4::text[]) AS u(job_id, kind)
                  WHERE u.job_id = s.job_id AND u.kind = s.kind)
ORDER BY s.job_id FOR NO KEY UPDATE OF s`
	selectRows = `
SELECT s.job_id, s.kind, s.unsent, s.sending, coalesce(s.tell_at <= now(), false), s.resolves, s.troubled, s.open,
       s.key, s.ends, s.since, s.known, j.name, t.name
FROM punctual.notice_states s
JOIN punctual.jobs j ON j.id = s.job_id
JOIN punctual.tenants t ON t.id = j.tenant`
)

// readRows reads the rows that have something to tell now, and all rows of the subjects of many jobs among them and of
// open causes.
func (s *Notifier) readRows(ctx context.Context, tx *pg.Tx, to *recipient) ([]*state, error) {
	all, err := s.scanRows(ctx, tx, to, selectDue, to.Recipient, mostRows)
	if err != nil {
		return nil, err
	}
	settle(all, to.To.Format)
	keys := to.keysOfCauses()
	for _, r := range all {
		if _, _, grouped := kindOf(r.key); grouped && !slices.Contains(keys, r.key) {
			keys = append(keys, r.key)
		}
	}
	if len(keys) == 0 {
		return all, nil
	}
	others, err := s.scanRows(ctx, tx, to, selectKeys, to.Recipient, keys,
		pg.Column(all, func(r *state) uuid.UUID { return r.job }), pg.Column(all, func(r *state) string { return r.kind }))
	settle(others, to.To.Format)
	return append(all, others...), err
}

func (s *Notifier) scanRows(
	ctx context.Context, tx *pg.Tx, to *recipient, sql string, args ...any,
) (all []*state, err error) {
	var r state
	var unsent, sending *domain.Digest
	var ends *string
	var since *time.Time
	_, err = pgx.ForEachRow(pg.Query(ctx, tx, sql, args...), []any{
		&r.job, &r.kind, seal.NoticeOf(&unsent), seal.NoticeOf(&sending), &r.dirty, &r.resolves, &r.troubled, &r.open,
		&r.key, &ends, &since, &r.known, &r.base.Job, &r.base.Tenant,
	}, func() error {
		row := r
		row.base.JobID, row.base.Link, row.base.Events = row.job, s.linkToJob(row.base.Job), []domain.DigestEvent{}
		row.again, row.unsent = sending != nil, cmp.Or(unsent, sending)
		if unsent != nil && sending != nil {
			row.unsent = new(sending.Merge(*unsent))
		}
		if ends != nil {
			row.end(*ends, since, to.now)
		}
		row.identify(to.To.Format)
		row.dirty = row.dirty && row.unsent != nil
		all = append(all, &row)
		return nil
	})
	return all, err
}

// composeStates writes the message, and the rows that are in it. Rows are marked as perhaps known to the recipient
// before anything is sent.
func (s *Notifier) composeStates(ctx context.Context, tx *pg.Tx, to *recipient) error {
	rows, err := s.readRows(ctx, tx, to)
	if err != nil {
		return err
	}
	w, err := readWorld(ctx, tx, to.Tenant,
		append(to.keysOfCauses(), pg.Column(rows, func(r *state) string { return r.key })...))
	if err != nil {
		return err
	}
	subjects := to.plan(rows, w)
	if len(subjects) > 0 {
		if err := s.write(to, w.tenant, rows, subjects); err != nil {
			return err
		}
	}
	var b pgx.Batch
	queuePlan(&b, to.Recipient, rows)
	to.queueCauses(&b)
	return tx.SendBatch(ctx, &b).Close()
}

func (s *Notifier) write(to *recipient, tenant string, rows []*state, subjects []notice.Subject) error {
	brief(subjects)
	m := notice.Message{Tenant: tenant, Link: s.link("/jobs"), Subjects: subjects}
	switch {
	case len(subjects) == 1 && len(subjects[0].Jobs) == 1 &&
		(subjects[0].Kind == notice.KindJob || subjects[0].Kind == notice.KindOverlap):
		m.Link = subjects[0].Jobs[0].Link
	case len(subjects) > 1 || len(subjects[0].Jobs) > 0:
		m.Link = s.link("/notices/" + to.ID.String()) // which names all of them
	}
	resolves := !slices.ContainsFunc(rows, func(r *state) bool { return r.fate == included && !r.resolves })
	for _, s := range subjects {
		to.Keys = append(to.Keys, s.Key)
	}
	to.Headline, to.Events, to.Newest = notice.Headline(m), m.Events(), m.NewestAt()
	if to.Newest.IsZero() {
		to.Newest = to.now
	}
	var err error
	to.Body, err = notice.Write(m, to.To, resolves, to.now)
	return err
}

var planned = pg.Columns[*state]{
	pg.Col("job_id", "uuid", func(r *state) uuid.UUID { return r.job }),
	pg.Col("kind", "text", func(r *state) string { return r.kind }),
	pg.Col("sending", "text", func(r *state) seal.Notice { return seal.Notice(asText(r.unsent)) }),
	pg.Col("troubled", "bool", func(r *state) bool { return r.troubled }),
	pg.Col("open", "bool", func(r *state) bool { return r.open }),
	pg.Col("key", "text", func(r *state) string { return r.key }),
	pg.Col("known", "text", func(r *state) string { return asText(r.known) }),
	pg.Col("until", "timestamptz", func(r *state) *time.Time { return pg.OrNull(r.until) }),
}

// The statements that write the decisions of a plan, about the states of one fate.
var (
	deleteForgotten = `
DELETE FROM punctual.notice_states s USING ` + planned.Unnest("u") + `
WHERE s.recipient_id = ` + planned.Arg(1) + ` AND s.job_id = u.job_id AND s.kind = u.kind`
	updateWaiting = `
UPDATE punctual.notice_states s SET tell_at = u.until, key = u.key
FROM ` + planned.Unnest("u") + `
WHERE s.recipient_id = ` + planned.Arg(1) + ` AND s.job_id = u.job_id AND s.kind = u.kind AND u.until IS NOT NULL`
	updateIncluded = `
UPDATE punctual.notice_states s
SET unsent = NULL, sending = nullif(u.sending, 'null')::json, troubled = u.troubled, open = u.open, key = u.key,
    ends = NULL, since = NULL, known = nullif(u.known, 'null')::json,
    tell_at = CASE WHEN u.sending <> 'null' THEN least(s.tell_at, now()) END
FROM ` + planned.Unnest("u") + `
WHERE s.recipient_id = ` + planned.Arg(1) + ` AND s.job_id = u.job_id AND s.kind = u.kind`
)

// queuePlan queues the statements that write the decisions of a plan.
func queuePlan(b *pgx.Batch, recipient uuid.UUID, rows []*state) {
	for f, statement := range map[fate]string{forgets: deleteForgotten, waits: updateWaiting, included: updateIncluded} {
		of := slices.DeleteFunc(slices.Clone(rows), func(r *state) bool { return r.fate != f })
		if len(of) > 0 {
			b.Queue(statement, append(planned.Args(of), recipient)...)
		}
	}
}

// asText writes digests, causes, events of runs, or when subjects were told of, as JSON. These are texts, numbers and
// instants that have been, so it never fails; null for nil.
func asText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
