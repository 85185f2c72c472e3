package notices

import (
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/notice"
	"punctual/store/pg"
)

// parts are what a message tells of, a part for each state.
var parts = pg.Columns[notice.Part]{
	pg.Col("job_id", "uuid", func(p notice.Part) uuid.UUID { return p.Job }),
	pg.Col("kind", "text", func(p notice.Part) string { return p.Kind }),
	pg.Col("key", "text", func(p notice.Part) string { return p.Key }),
	pg.Col("open", "bool", func(p notice.Part) bool { return p.Open }),
	pg.Col("first", "bool", func(p notice.Part) bool { return p.First }),
	pg.Col("own", "bool", func(p notice.Part) bool { return p.Own }),
}

// ofParts joins the parts u of a message to a recipient's states s.
var ofParts = `
FROM ` + parts.Unnest("u") + `
WHERE s.recipient_id = ` + parts.Arg(1) + ` AND s.job_id = u.job_id AND s.kind = u.kind`

// queueParts queues a statement about the states of a message.
func (to *recipient) queueParts(b *pgx.Batch, statement string, more ...any) {
	b.Queue(statement, append(append(parts.Args(to.Parts), to.Recipient), more...)...)
}

// queueStates queues what an answer means for the states that a message told. If it may have arrived, what it told
// stays perhaps known, and is told again. If it did not, it is told again as if it had never been tried.
func (to *recipient) queueStates(b *pgx.Batch, o outcome) {
	to.settleCauses(o)
	switch {
	case o.Arrival == notice.Delivered:
		to.queueReached(b)
	case o.Arrival != notice.Unknown:
		to.queueParts(b, `UPDATE punctual.notice_states s SET open = false`+ofParts+` AND u.first`)
	}
	to.queueCauses(b)
	if o.settled() {
		to.queueDone(b)
	}
}

// queueReached notes when subjects were told of, and that hosts can be reached again: what is a job's own trouble is
// told apart.
func (to *recipient) queueReached(b *pgx.Batch) {
	maps.DeleteFunc(to.sent, func(_ string, at time.Time) bool { return at.Add(gap).Before(to.now) })
	for _, key := range to.Keys {
		if _, _, grouped := kindOf(key); grouped {
			to.sent[key] = to.now
		}
	}
	if len(to.Over) > 0 {
		to.queueParts(b, `
			UPDATE punctual.notice_states s
			SET open = false, troubled = false, key = '`+over+`',
			    unsent = CASE WHEN u.own THEN coalesce(s.unsent, s.sending) ELSE s.unsent END`+ofParts+`
			  AND s.troubled AND s.key = ANY(`+parts.Arg(2)+`::text[])`, to.Over)
	}
}

// queueDone queues the statements after which what a message told is not told again.
func (to *recipient) queueDone(b *pgx.Batch) {
	to.queueParts(b, `
		UPDATE punctual.notice_states s
		SET sending = NULL, open = s.open AND s.troubled AND s.resolves,
		    key = CASE WHEN s.troubled OR s.key = '`+over+`' THEN s.key ELSE '' END,
		    tell_at = CASE WHEN s.unsent IS NOT NULL OR s.ends IS NOT NULL THEN s.tell_at END`+ofParts)
	to.queueParts(b, `
		DELETE FROM punctual.notice_states s
		USING `+parts.Unnest("u")+`
		WHERE s.recipient_id = `+parts.Arg(1)+` AND s.job_id = u.job_id AND s.kind = u.kind
		  AND s.unsent IS NULL AND NOT s.open AND s.key <> '`+over+`'`)
}

// event is SQL for a digest of a job j that tells of one event.
func event(name string) string {
	return `json_build_object('job', j.name, 'job_id', j.id, 'tenant', t.name, 'events', json_build_array(
	    json_build_object('event', ` + name + `, 'count', 1, 'first_at', now(), 'last_at', now(), 'runs', '[]'::json)))`
}

// queueTellAgain has the states of the jobs of a message told again. The message may have arrived after later ones,
// because its replica stood still. A job that has no row by now is well, or was deleted.
func (to *recipient) queueTellAgain(b *pgx.Batch) {
	to.tellCausesAgain()
	to.queueCauses(b)
	to.queueParts(b, `
		INSERT INTO punctual.notice_states AS s (job_id, kind, recipient_id, resolves, open, key, tell_at)
		SELECT j.id, u.kind, `+parts.Arg(1)+`, true, true, u.key, now()
		FROM `+parts.Unnest("u")+`
		JOIN punctual.jobs j ON j.id = u.job_id
		WHERE u.open
		ORDER BY j.id, u.kind
		ON CONFLICT (job_id, recipient_id, kind) DO UPDATE
		SET open = true, key = CASE s.key WHEN '`+over+`' THEN excluded.key ELSE s.key END,
		    tell_at = least(s.tell_at, now())`)
	to.queueParts(b, `
		UPDATE punctual.notice_states s
		SET sending = CASE WHEN s.troubled
		                   THEN `+event(`CASE s.kind WHEN 'health' THEN 'failing' ELSE 'overlapping' END`)+`
		                   ELSE `+event(`CASE s.kind WHEN 'health' THEN 'recovered' ELSE 'overlap_over' END`)+` END
		FROM `+parts.Unnest("u")+`
		JOIN punctual.jobs j ON j.id = u.job_id
		JOIN punctual.tenants t ON t.id = j.tenant
		WHERE s.recipient_id = `+parts.Arg(1)+` AND s.job_id = u.job_id AND s.kind = u.kind AND u.open
		  AND s.sending IS NULL`)
	b.Queue(setDue, to.Recipient)
}
