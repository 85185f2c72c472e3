package notices

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// mostEnds is how many incidents one transaction ends.
const mostEnds = 2000

// endOf is SQL for why nobody will tell the end of a job's trouble; empty: somebody may. A paused job may run by hand.
// What fails after the pause began is its trouble as ever.
const endOf = `
CASE WHEN t.deleted_at IS NOT NULL THEN '` + domain.EndTenantDeleted + `'
     WHEN EXISTS (SELECT FROM punctual.ready y WHERE y.job_id = j.id) THEN ''
     WHEN j.state = 'deleted' THEN '` + domain.EndJobDeleted + `'
     WHEN j.state = 'paused' AND j.paused_until IS NULL
          AND j.paused_at > coalesce((SELECT n.failed_at FROM punctual.notified n WHERE n.job_id = j.id), '-infinity')
     THEN '` + domain.EndJobPaused + `' ELSE '' END`

// selectTroubled selects what recipients know of trouble, who they are, and the list that says who is told now.
const selectTroubled = `
SELECT s.line_id, s.job_id, ` + endOf + `, coalesce(v.definition ->> 'notify', t.notify::text)::json, l.format, l.url,
       l.secret, l.template, s.troubled OR s.key = '` + over + `'
FROM punctual.notice_subjects s
JOIN punctual.notice_lines l ON l.id = s.line_id
JOIN punctual.jobs j ON j.id = s.job_id
JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
JOIN punctual.tenants t ON t.id = j.tenant
WHERE s.ends IS NULL AND (s.troubled AND s.open OR s.key = '` + over + `'
                          OR s.open AND l.failing_since < now() - interval '1 day')`

// end is a row of notice_subjects whose incident ends.
type end struct {
	line, job uuid.UUID
	why       string
}

// EndIncidents has the end told of trouble that nobody will tell the end of: its job or tenant was deleted, the job is
// paused until a caller resumes it, or it no longer tells the recipient. A recipient that was removed and has taken
// nothing for a day is given up. It returns how many incidents end, and whether there may be more.
func (s *Teller) EndIncidents(ctx context.Context) (ended int, left bool, err error) {
	var told, gone []end
	var e end
	var list []domain.Notify
	var to domain.Recipient
	var untold bool
	_, err = pgx.ForEachRow(pg.Query(ctx, s.db.Chores, selectTroubled), []any{
		&e.line, &e.job, &e.why, &list, &to.Format, &to.URL, &to.Secret, &to.Template, &untold,
	}, func() error {
		if e.why == "" && !to.Asks(list, domain.EventRecovered) {
			e.why = domain.EndNotAsked
		}
		switch {
		case untold && e.why != "":
			told = append(told, e)
		case e.why == domain.EndNotAsked:
			gone = append(gone, e)
		}
		return nil
	})
	if err != nil || len(told)+len(gone) == 0 {
		return 0, false, pg.Wrap("looking for incidents without an end", err)
	}
	left = len(told) > mostEnds
	err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		var b pgx.Batch
		queueEnds(&b, told[:min(len(told), mostEnds)], &ended)
		queueForget(&b, gone)
		tx.Ask(scheduler.ChoreNotices)
		return tx.SendBatch(ctx, &b).Close()
	})
	return ended, left, pg.Wrap("ending incidents", err)
}

func lineOfEnd(e end) uuid.UUID { return e.line }

func jobOfEnd(e end) uuid.UUID { return e.job }

// lockLines locks lines in the order in which all do.
const lockLines = `SELECT FROM punctual.notice_lines WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE`

// queueEnds queues the statements that have ends told. When a paused job fails again, that is told as that of a job
// that was well.
func queueEnds(b *pgx.Batch, ends []end, ended *int) {
	if len(ends) == 0 {
		return
	}
	lines, jobs := pg.Column(ends, lineOfEnd), pg.Column(ends, jobOfEnd)
	b.Queue(`
		UPDATE punctual.notified n SET failing_since = NULL, failures = 0, stale_since = NULL
		FROM (SELECT job_id FROM punctual.notified WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR NO KEY UPDATE) l
		JOIN punctual.jobs j ON j.id = l.job_id
		JOIN punctual.tenants t ON t.id = j.tenant
		WHERE n.job_id = l.job_id AND `+endOf+` = '`+domain.EndJobPaused+`'`, jobs)
	b.Queue(lockLines, lines)
	b.Queue(`
		UPDATE punctual.notice_subjects s SET ends = u.why, tell_at = least(s.tell_at, now())
		FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS u(line_id, job_id, why)
		JOIN punctual.jobs j ON j.id = u.job_id
		JOIN punctual.tenants t ON t.id = j.tenant
		WHERE s.line_id = u.line_id AND s.job_id = u.job_id
		  AND (u.why = '`+domain.EndNotAsked+`' OR u.why = `+endOf+`)`,
		lines, jobs, pg.Column(ends, func(e end) string { return e.why })).
		Exec(func(done pgconn.CommandTag) error {
			*ended = int(done.RowsAffected())
			return nil
		})
	b.Queue(`UPDATE punctual.notice_lines SET due_at = least(due_at, now()) WHERE id = ANY($1::uuid[])`, lines)
}

// queueForget queues the statements that forget what recipients were to be told that are none any more.
func queueForget(b *pgx.Batch, gone []end) {
	if len(gone) == 0 {
		return
	}
	lines := pg.Column(gone, lineOfEnd)
	b.Queue(lockLines, lines)
	b.Queue(`
		DELETE FROM punctual.notice_subjects s USING unnest($1::uuid[], $2::uuid[]) AS u(line_id, job_id)
		WHERE s.line_id = u.line_id AND s.job_id = u.job_id`, lines, pg.Column(gone, jobOfEnd))
	for _, line := range slices.Compact(slices.SortedFunc(slices.Values(lines), pg.CompareIDs)) {
		b.Queue(setDue, line)
	}
}

// end adds the end of a row's trouble to what is to be told.
func (r *subject) end(why string, now time.Time) {
	over := r.news
	over.Events = []domain.NewsEvent{{
		Event: domain.EventEnded, Cause: why, Count: 1, FirstAt: now, LastAt: now, Runs: []domain.NewsRun{},
	}}
	if n := len(r.known); n > 0 {
		over.Labels = r.known[n-1].Labels
	}
	if r.unsent != nil {
		over.Host, over.Labels, over.Runbook = r.unsent.Host, r.unsent.Labels, r.unsent.Runbook
		over = r.unsent.Merge(over)
	}
	r.unsent = &over
}

// identify keeps under which names and labels a recipient knows a job, if it knows jobs by them.
func (r *subject) identify(f domain.Format) {
	if r.unsent == nil || f != domain.FormatAlertmanager {
		return
	}
	is := func(k domain.Identity) bool {
		return k.Job == r.unsent.Job && maps.Equal(k.Labels, r.unsent.Labels)
	}
	r.unsent.Former = slices.DeleteFunc(slices.Clone(r.known), is)
	if !slices.ContainsFunc(r.known, is) {
		r.known = append(r.known, r.unsent.Identity())
	}
}
