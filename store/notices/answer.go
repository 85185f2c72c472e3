package notices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/notice"
	"punctual/store/pg"
)

// Answered writes how a recipient answered a message. A message that arrived is done with, and the next one waits for
// a moment. If it may have arrived, what it told stays perhaps known, and is told again. If it did not, it is told
// again as if it had never been tried.
func (s *Teller) Answered(ctx context.Context, m notice.Outgoing, a notice.Answer) error {
	if m.Lifecycle {
		return pg.Wrap("writing how a recipient answered", s.lifecycleAnswered(ctx, m, a))
	}
	if m.Run != uuid.Nil {
		return pg.Wrap("writing how a recipient answered", s.approvalAnswered(ctx, m, a))
	}
	var began, ended, refused bool // an outage of the recipient, and the patience with a message
	err := s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		var l line
		var lease *uuid.UUID
		var failures int
		var failing *time.Time
		err := tx.QueryRow(ctx, `
			SELECT lease, sent, causes, look_at, failing_since, failures, now() FROM punctual.notice_lines
			WHERE id = $1 FOR NO KEY UPDATE`, m.Line).Scan(
			&lease, &l.sent, &l.causes, &l.lookAt, &failing, &failures, &l.now)
		if some, err := pg.Some(err); !some { // its tenant is gone
			return err
		}
		l.Outgoing = m
		var b pgx.Batch
		lost := lease == nil || *lease != m.ID
		switch {
		case lost && a.Arrival != notice.Delivered && a.Arrival != notice.Unknown:
			return nil
		case lost:
			l.tellCausesAgain()
		default:
			began = a.Arrival != notice.PutOff && a.Arrival != notice.Delivered && failing == nil
			ended = a.Arrival == notice.Delivered && failing != nil
			refused = a.Arrival == notice.Refused && failures+1 >= mostRefusals
			l.told(a.Arrival, refused)
		}
		l.queueCauses(&b)
		switch {
		case lost:
			queueTellAgain(&b, m)
		case a.Arrival == notice.Delivered:
			l.queueDelivered(&b)
		default:
			l.queueFailed(&b, a, failures, refused)
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return pg.Wrap("writing how a recipient answered", err)
	}
	if began {
		s.options.Log.Error("a recipient of notices takes none; they wait, and it is tried again",
			"format", m.To.Format, "url", m.To.URL, "tenant", m.Tenant, "http_status", a.Status, "error", a.Error)
	}
	if ended {
		s.options.Log.Info("a recipient takes notices again", "format", m.To.Format, "url", m.To.URL, "tenant", m.Tenant)
	}
	if refused {
		s.options.Log.Error("a recipient refused a notice too often; it is given up",
			"url", m.To.URL, "tenant", m.Tenant, "headline", m.Headline, "http_status", a.Status)
	}
	return nil
}

const insertMessage = `
INSERT INTO punctual.notice_messages (id, line_id, tenant, happened_at, headline, events, jobs)
VALUES ($1, $2, $3, $4, $5, coalesce($6::text[], '{}'), coalesce($7::uuid[], '{}')) ON CONFLICT DO NOTHING`

func (l *line) queueDelivered(b *pgx.Batch) {
	maps.DeleteFunc(l.sent, func(_ string, at time.Time) bool { return at.Add(gap).Before(l.now) })
	for _, key := range l.Keys {
		if _, _, grouped := kindOf(key); grouped {
			l.sent[key] = l.now
		}
	}
	first, longest := firstPace, longPace
	if stateful(l.To.Format) {
		first, longest = steadyPace, steadyPace
	}
	if len(l.Over) > 0 { // hosts that can be reached again: what is a job's own trouble is told apart
		b.Queue(`
			UPDATE punctual.notice_subjects s
			SET open = false, troubled = false, key = $4,
			    news = CASE WHEN s.job_id = ANY($5::uuid[]) THEN coalesce(s.news, s.sending) ELSE s.news END
			WHERE s.line_id = $1 AND s.job_id = ANY($2::uuid[]) AND s.key = ANY($3::text[]) AND s.troubled`,
			l.Line, l.Jobs, l.Over, over, l.Own)
	}
	l.queueDone(b)
	b.Queue(`
		UPDATE punctual.notice_lines
		SET held_until = now() + p.pace, pace = p.pace, sent = $4, delivered_at = now(), failing_since = NULL, failures = 0,
		    http_status = NULL, error = NULL
		FROM (SELECT CASE WHEN l.delivered_at > now() - 2 * $3::interval
		                  THEN least(greatest(2 * l.pace, $2::interval), $3) ELSE $2 END AS pace
		      FROM punctual.notice_lines l WHERE l.id = $1) p
		WHERE id = $1`, l.Line, first, longest, asText(l.sent))
	b.Queue(insertMessage, l.ID, l.Line, l.Tenant, l.Newest, l.Headline, l.Events, slices.Concat(l.Jobs, l.Beside))
}

// queueDone queues the statements after which what a message told is not told again.
func (l *line) queueDone(b *pgx.Batch) {
	b.Queue(`
		UPDATE punctual.notice_subjects s
		SET sending = NULL, open = s.open AND s.troubled AND s.resolves,
		    key = CASE WHEN s.troubled OR s.key = $3 THEN s.key ELSE '' END,
		    tell_at = CASE WHEN s.news IS NOT NULL THEN s.tell_at END
		WHERE s.line_id = $1 AND s.job_id = ANY($2::uuid[])`, l.Line, l.Jobs, over)
	b.Queue(`
		DELETE FROM punctual.notice_subjects
		WHERE line_id = $1 AND job_id = ANY($2::uuid[]) AND news IS NULL AND NOT open AND key <> $3`, l.Line, l.Jobs, over)
	b.Queue(setDue, l.Line)
}

// queueFailed queues the statements after a message that did not surely arrive. One that was refused too often is given
// up.
func (l *line) queueFailed(b *pgx.Batch, a notice.Answer, failures int, givenUp bool) {
	if a.Arrival != notice.Unknown && len(l.Opened) > 0 {
		b.Queue(`UPDATE punctual.notice_subjects SET open = false WHERE line_id = $1 AND job_id = ANY($2::uuid[])`,
			l.Line, l.Opened)
	}
	pause := Backoff(failures + 1)
	switch {
	case a.Arrival == notice.PutOff:
		pause = min(max(a.RetryAfter, time.Second), time.Hour)
	case givenUp:
		l.queueDone(b)
	}
	b.Queue(`
		UPDATE punctual.notice_lines
		SET held_until = now() + $2, http_status = $3, error = $4,
		    failing_since = CASE WHEN $5 THEN failing_since ELSE coalesce(failing_since, now()) END,
		    failures = CASE WHEN $5 THEN failures WHEN $6 THEN 0 ELSE failures + 1 END
		WHERE id = $1`, l.Line, pause, pg.OrNull(a.Status), a.Error, a.Arrival == notice.PutOff, givenUp)
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
		SET open = true, key = CASE s.key WHEN '`+over+`' THEN excluded.key ELSE s.key END,
		    tell_at = least(s.tell_at, now()), sending = coalesce(s.sending,
		    CASE WHEN s.troubled THEN json_build_object('job', excluded.sending -> 'job', 'job_id', s.job_id,
		        'tenant', excluded.sending -> 'tenant', 'events', json_build_array(json_build_object(
		            'event', 'failing', 'count', 1, 'first_at', now(), 'last_at', now(), 'runs', '[]'::json)))
		    ELSE excluded.sending END)`, m.Line, m.Opens, m.Under)
	b.Queue(setDue, m.Line)
}

// ForgetNotices deletes messages that recipients took more than 8 days ago, recipients that took none since, those that
// took none of what was over in all that time, and those of tenants that were deleted a day ago.
func (s *Teller) ForgetNotices(ctx context.Context) (forgotten int, left bool, err error) {
	forgotten, left, err = pg.ForgetOld(
		ctx, s.db.Chores, "notice_messages", "delivered_at", []string{"id"}, 8*24*time.Hour)
	if err != nil || left {
		return forgotten, left, err
	}
	if err := s.forgetLifecycle(ctx); err != nil {
		return forgotten, false, fmt.Errorf("removing recipients of events of runs: %w", err)
	}
	return forgotten, false, pg.Wrap("removing recipients of notices", pg.Exec(ctx, s.db.Chores, `
		DELETE FROM punctual.notice_lines l
		WHERE l.tenant IN (SELECT t.id FROM punctual.tenants t WHERE t.deleted_at < now() - interval '1 day')
		   OR (l.due_at IS NULL AND l.held_until < now() - interval '8 days'
		       OR l.failing_since < now() - interval '8 days')
		  AND NOT EXISTS (SELECT FROM punctual.notice_subjects s WHERE s.line_id = l.id)
		  AND NOT EXISTS (SELECT FROM punctual.notice_messages m WHERE m.line_id = l.id)`))
}
