package notices

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/pg"
)

// mostRefusals is how often a recipient may refuse a message before that is given up.
const mostRefusals = 5

// Backoff is the pause after an attempt that failed, the nth in a row.
func Backoff(n int) time.Duration {
	return min(5*time.Second<<min(max(n-1, 0), 10), 5*time.Minute)
}

// outcome is what an answer means for a recipient and its message.
type outcome struct {
	notice.Answer
	failures              int // in a row, with this one
	began, ended, givenUp bool
}

// settled reports whether nothing of the message is sent again.
func (o outcome) settled() bool { return o.Arrival == notice.Delivered || o.givenUp }

// Answered writes how a recipient answered a message. What arrived is done with, and the next message waits for a
// moment. What may have arrived, or did not, is sent again: states as they are then, all else as it was.
func (s *Notifier) Answered(ctx context.Context, m notice.Outgoing, a notice.Answer) error {
	o := outcome{Answer: a}
	err := s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		to := recipient{Outgoing: m}
		var failing *time.Time
		err := tx.QueryRow(ctx, `
			SELECT message, sent, causes, look_at, failing_since, failures, now() FROM punctual.outbox
			WHERE id = $1 FOR NO KEY UPDATE`, m.Recipient).Scan(
			&to.message, &to.sent, &to.causes, &to.lookAt, &failing, &o.failures, &to.now)
		if some, err := pg.Some(err); !some { // its tenant is gone
			return err
		}
		var b pgx.Batch
		if to.message == nil || *to.message != m.ID {
			to.queueLate(&b, a)
			return tx.SendBatch(ctx, &b).Close()
		}
		o.judge(to, failing)
		to.queueOutcome(&b, o)
		return tx.SendBatch(ctx, &b).Close()
	})
	if err == nil {
		s.logOutcome(m, o)
	}
	return pg.Wrap("writing how a recipient answered", err)
}

// judge finds whether an outage of the recipient begins or ends, and whether the message is given up.
func (o *outcome) judge(to recipient, failing *time.Time) {
	o.began = o.Arrival != notice.PutOff && o.Arrival != notice.Delivered && failing == nil
	o.ended = o.Arrival == notice.Delivered && failing != nil
	if o.Arrival != notice.PutOff {
		o.failures++
	}
	o.givenUp = o.Arrival == notice.Refused && o.failures >= mostRefusals ||
		o.Arrival != notice.Delivered && to.Pipeline == notice.Lifecycle &&
			domain.IDTime(to.ID).Add(eventsPatience).Before(to.now)
}

// queueLate queues what follows an answer when others have sent later messages: its replica stood still.
func (to *recipient) queueLate(b *pgx.Batch, a notice.Answer) {
	switch {
	case to.Pipeline == notice.Approvals && a.Arrival == notice.Delivered:
		to.queueDelivered(b)
		b.Queue(dropRow, to.Recipient)
	case to.Pipeline == notice.States && (a.Arrival == notice.Delivered || a.Arrival == notice.Unknown):
		to.queueTellAgain(b)
	}
}

func (to *recipient) queueOutcome(b *pgx.Batch, o outcome) {
	if to.Pipeline == notice.States {
		to.queueStates(b, o)
	}
	if o.Arrival == notice.Delivered {
		to.queueDelivered(b)
	} else {
		to.queueFailed(b, o)
	}
	switch {
	case to.Pipeline == notice.Approvals && o.settled():
		b.Queue(dropRow, to.Recipient)
	case o.settled():
		b.Queue(setDue, to.Recipient)
	}
}

// dropRow removes an approval from the outbox.
const dropRow = `DELETE FROM punctual.outbox WHERE id = $1`

// The pauses after a message that people read, which grow while messages follow each other; after a message that is a
// state; and after a batch of events.
const (
	firstPace  = time.Second
	longPace   = 30 * time.Second
	steadyPace = 500 * time.Millisecond
	eventsPace = time.Second
)

func (to *recipient) queueDelivered(b *pgx.Batch) {
	first, longest := firstPace, longPace
	switch {
	case to.Pipeline == notice.Lifecycle:
		first, longest = eventsPace, eventsPace
	case stateful(to.To.Format):
		first, longest = steadyPace, steadyPace
	}
	b.Queue(`
		UPDATE punctual.outbox
		SET held_until = now() + p.pace, pace = p.pace, delivered_at = now(), message = NULL, under_way = false,
		    body = NULL, batched = 0, failing_since = NULL, failures = 0, http_status = NULL, error = NULL
		FROM (SELECT CASE WHEN o.delivered_at > now() - 2 * $3::interval
		                  THEN least(greatest(2 * o.pace, $2::interval), $3) ELSE $2 END AS pace
		      FROM punctual.outbox o WHERE o.id = $1) p
		WHERE id = $1`, to.Recipient, first, longest)
	if to.Pipeline != notice.Lifecycle {
		b.Queue(`
			INSERT INTO punctual.notice_messages (id, tenant, format, url, happened_at, headline, events, jobs)
			VALUES ($1, $2, $3, $4, $5, $6, coalesce($7::text[], '{}'), coalesce($8::uuid[], '{}')) ON CONFLICT DO NOTHING`,
			to.ID, to.Tenant, to.To.Format, to.To.URL, to.Newest, to.Headline, to.Events, to.jobs())
	}
}

// queueFailed queues the statement after a message that did not surely arrive. A batch that is given up is left out.
func (to *recipient) queueFailed(b *pgx.Batch, o outcome) {
	pause := max(min(o.RetryAfter, time.Hour), Backoff(o.failures))
	if o.Arrival == notice.PutOff {
		pause = min(max(o.RetryAfter, time.Second), time.Hour)
	}
	b.Queue(`
		UPDATE punctual.outbox
		SET held_until = now() + $2, under_way = false, http_status = $3, error = $4,
		    failing_since = CASE WHEN $5 THEN failing_since ELSE coalesce(failing_since, now()) END,
		    failures = CASE WHEN $6 THEN 0 ELSE $7 END,
		    left_out = left_out + CASE WHEN $6 THEN batched ELSE 0 END, batched = CASE WHEN $6 THEN 0 ELSE batched END,
		    message = CASE WHEN body IS NOT NULL AND NOT $6 THEN message END, body = CASE WHEN NOT $6 THEN body END
		WHERE id = $1`,
		to.Recipient, pause, pg.OrNull(o.Status), o.Error, o.Arrival == notice.PutOff, o.givenUp, o.failures)
}

// jobs are the jobs that a message told of, each once.
func (to *recipient) jobs() []uuid.UUID {
	jobs := pg.Column(to.Parts, func(p notice.Part) uuid.UUID { return p.Job })
	slices.SortFunc(jobs, pg.CompareIDs)
	return slices.Compact(jobs)
}

// logOutcome says in the log when an outage of a recipient begins and ends, and what is given up.
func (s *Notifier) logOutcome(m notice.Outgoing, o outcome) {
	log := s.options.Log.With("pipeline", string(m.Pipeline), "format", string(m.To.Format), "url", m.To.URL,
		"tenant", m.Tenant)
	if o.began {
		log.Error("a recipient of notices takes none; they wait, and it is tried again",
			"headline", m.Headline, "http_status", o.Status, "error", o.Error)
	}
	if o.ended {
		log.Info("a recipient takes notices again")
	}
	if o.givenUp {
		log.Error("a recipient did not take a notice; it is given up",
			"headline", m.Headline, "http_status", o.Status, "error", o.Error)
	}
}
