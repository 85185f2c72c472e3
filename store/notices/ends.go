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
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// mostEnds is how many incidents one transaction ends.
const mostEnds = 2000

// endOf is SQL for why nobody will tell the end of a job's trouble; empty: somebody may. A paused job may run by hand.
// What fails after the pause began is its trouble as ever.
const endOf = `
CASE WHEN t.deleted_at IS NOT NULL THEN '` + jobspec.EndTenantDeleted + `'
     WHEN EXISTS (SELECT FROM punctual.ready y WHERE y.job_id = j.id) THEN ''
     WHEN j.state = 'deleted' THEN '` + jobspec.EndJobDeleted + `'
     WHEN j.state = 'paused' AND j.paused_until IS NULL
          AND j.paused_at > coalesce((SELECT n.failed_at FROM punctual.notified n WHERE n.job_id = j.id), '-infinity')
     THEN '` + jobspec.EndJobPaused + `' ELSE '' END`

// selectTroubled selects what recipients know of trouble, who they are, and the list that says who is told now.
const selectTroubled = `
SELECT s.recipient_id, s.job_id, ` + endOf + `, coalesce(v.definition ->> 'notify', t.notify::text)::json, o.format,
       o.url, o.secret, o.template, s.kind, s.kind = 'health' AND (s.troubled OR s.key = '` + over + `')
FROM punctual.notice_states s
JOIN punctual.outbox o ON o.id = s.recipient_id
JOIN punctual.jobs j ON j.id = s.job_id
JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
JOIN punctual.tenants t ON t.id = j.tenant
WHERE s.ends IS NULL AND (s.kind = 'health' AND (s.troubled AND s.open OR s.key = '` + over + `')
                          OR s.open AND o.failing_since < now() - interval '1 day')`

// end is a row of notice_states whose incident ends.
type end struct {
	recipient, job uuid.UUID
	kind, why      string
}

// EndIncidents has the end told of trouble that nobody will tell the end of: its job or tenant was deleted, the job is
// paused until a caller resumes it, or it no longer tells the recipient. A recipient that was removed and has taken
// nothing for a day is given up. It returns how many incidents end, and whether there may be more.
func (s *Notifier) EndIncidents(ctx context.Context) (ended int, left bool, err error) {
	var told, gone []end
	var e end
	var list []jobspec.Notify
	var to jobspec.Recipient
	var untold bool
	_, err = pgx.ForEachRow(pg.Query(ctx, s.db.Chores, selectTroubled), []any{
		&e.recipient, &e.job, &e.why, &list, &to.Format, &to.URL, &to.Secret, &to.Template, &e.kind, &untold,
	}, func() error {
		asked := map[string]jobspec.Event{health: jobspec.EventRecovered, overlaps: jobspec.EventOverlapping}[e.kind]
		if e.why == "" && !to.Asks(list, asked) {
			e.why = jobspec.EndNotAsked
		}
		switch {
		case untold && e.why != "":
			told = append(told, e)
		case e.why == jobspec.EndNotAsked:
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

func recipientOfEnd(e end) uuid.UUID { return e.recipient }

func jobOfEnd(e end) uuid.UUID { return e.job }

// lockRecipients locks recipients in the order in which all do.
const lockRecipients = `SELECT FROM punctual.outbox WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE`

// queueEnds queues the statements that have ends told. When a paused job fails again, that is told as that of a job
// that was well.
func queueEnds(b *pgx.Batch, ends []end, ended *int) {
	if len(ends) == 0 {
		return
	}
	recipients, jobs := pg.Column(ends, recipientOfEnd), pg.Column(ends, jobOfEnd)
	b.Queue(`
		UPDATE punctual.notified n SET failing_since = NULL, failures = 0, stale_since = NULL
		FROM (SELECT job_id FROM punctual.notified WHERE job_id = ANY($1::uuid[]) ORDER BY job_id FOR NO KEY UPDATE) l
		JOIN punctual.jobs j ON j.id = l.job_id
		JOIN punctual.tenants t ON t.id = j.tenant
		WHERE n.job_id = l.job_id AND `+endOf+` = '`+jobspec.EndJobPaused+`'`, jobs)
	b.Queue(lockRecipients, recipients)
	b.Queue(`
		UPDATE punctual.notice_states s SET ends = u.why, tell_at = least(s.tell_at, now())
		FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS u(recipient_id, job_id, why)
		JOIN punctual.jobs j ON j.id = u.job_id
		JOIN punctual.tenants t ON t.id = j.tenant
		WHERE s.recipient_id = u.recipient_id AND s.job_id = u.job_id AND s.kind = 'health'
		  AND (u.why = '`+jobspec.EndNotAsked+`' OR u.why = `+endOf+`)`,
		recipients, jobs, pg.Column(ends, func(e end) string { return e.why })).
		Exec(func(done pgconn.CommandTag) error {
			*ended = int(done.RowsAffected())
			return nil
		})
	b.Queue(`UPDATE punctual.outbox SET due_at = least(due_at, now()) WHERE id = ANY($1::uuid[])`, recipients)
}

// queueForget queues the statements that forget what recipients were to be told that are none any more.
func queueForget(b *pgx.Batch, gone []end) {
	if len(gone) == 0 {
		return
	}
	recipients := pg.Column(gone, recipientOfEnd)
	b.Queue(lockRecipients, recipients)
	b.Queue(`
		DELETE FROM punctual.notice_states s USING unnest($1::uuid[], $2::uuid[], $3::text[]) AS u(recipient_id, job_id, kind)
		WHERE s.recipient_id = u.recipient_id AND s.job_id = u.job_id AND s.kind = u.kind`,
		recipients, pg.Column(gone, jobOfEnd), pg.Column(gone, func(e end) string { return e.kind }))
	for _, id := range slices.Compact(slices.SortedFunc(slices.Values(recipients), pg.CompareIDs)) {
		b.Queue(setDue, id)
	}
}

// end adds the end of a state's trouble to what is to be told.
func (r *state) end(why string, since *time.Time, now time.Time) {
	over := r.base
	e := domain.DigestEvent{
		Event: jobspec.EventEnded, Cause: why, Count: 1, FirstAt: now, LastAt: now, Runs: []domain.DigestRun{},
	}
	if r.kind == overlaps {
		e.Event, e.Cause, e.Since = jobspec.EventOverlapOver, "", since
	}
	over.Events = []domain.DigestEvent{e}
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
func (r *state) identify(f jobspec.Format) {
	if r.unsent == nil || f != jobspec.FormatAlertmanager {
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
