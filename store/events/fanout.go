package events

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/pg"
)

// Chore is the name of the chore that fans events out.
const Chore = "events"

// Any is true if the chore has work.
const Any = `EXISTS (SELECT FROM punctual.events WHERE turn_at IS NOT NULL)`

const (
	// batchSize is how many subscribers one transaction comes to.
	batchSize = 500
	// lockedPause is how long to wait before looking again for jobs that others have locked.
	lockedPause = 100 * time.Millisecond
)

// fanOut is one batch of an event.
type fanOut struct {
	events *Events
	id     uuid.UUID
	tenant int32
	name   string
	at     time.Time
	after  *uuid.UUID
	behind []uuid.UUID // passed over before
	filters
	now time.Time

	runs      []claim.Entry
	skips     []claim.Unmade
	passed    []uuid.UUID // passed over, so that they are left for another batch
	unmatched int
	left      bool // there are more subscribers
}

// FanOut makes the runs of the next subscribers of an event: of the one that has waited longest for its turn. It skips
// events on which other replicas work.
func (s *Events) FanOut(ctx context.Context) (wait time.Duration, left bool, err error) {
	f := fanOut{events: s}
	err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if left, err = f.lock(ctx, tx); err != nil || !left {
			return err
		}
		failpoint.At(failpoint.EventLocked)
		if err := f.decide(ctx, tx); err != nil {
			return err
		}
		failpoint.At(failpoint.EventDecided)
		return f.write(ctx, tx)
	})
	switch {
	case err == nil && !left || f.id == uuid.Nil || ctx.Err() != nil:
		return 0, false, err
	case days.IsMissing(err): // of the day of the event, after a long outage
		return 0, true, s.days.EnsureFor(ctx, s.db.Chores, []time.Time{f.at})
	case err != nil:
		return lockedPause, true, s.putOff(ctx, f.id, err)
	}
	failpoint.At(failpoint.EventCommitted)
	if !f.left {
		s.ended.Add(1)
	}
	if len(f.passed) > 0 && len(f.runs)+len(f.skips)+f.unmatched == 0 {
		wait = lockedPause
	}
	return wait, true, nil
}

// lock locks the event whose turn it is. found is false if there is none on which no other replica works.
func (f *fanOut) lock(ctx context.Context, tx *pg.Tx) (found bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT id, tenant, name, emitted_at, after, coalesce(behind, '{}'), body, clock_timestamp()
		FROM punctual.events
		WHERE turn_at IS NOT NULL
		ORDER BY turn_at
		LIMIT 1
		FOR UPDATE SKIP LOCKED`).
		Scan(&f.id, &f.tenant, &f.name, &f.at, &f.after, &f.behind, &f.body, &f.now)
	found, err = pg.Some(err)
	return found, pg.Wrap("locking an event", err)
}

// selectSubscribers reads the jobs that come next ($3 and $4), and those passed over before ($5), with the version that
// each had when the event was emitted ($6). A job that has none then, or one of another event, is no subscriber. The
// pause of a job may have been over then, though no replica had written that yet.
const selectSubscribers = `
SELECT c.job_id, coalesce(v.event = $2 AND v.state IN ('active', 'paused') AND j.id IS NOT NULL, false),
       coalesce(v.state = 'paused' AND NOT (j.version = v.version AND coalesce(j.paused_until <= $6, false)), false),
       coalesce(v.definition #>> '{schedule,filter}', '')
FROM (
    (SELECT DISTINCT n.job_id
     FROM punctual.job_versions n
     WHERE n.tenant = $1 AND n.event = $2 AND n.job_id > $3
     ORDER BY n.job_id
     LIMIT $4)
    UNION ALL
    SELECT unnest($5::uuid[])) c
LEFT JOIN LATERAL (
    SELECT o.version, o.event, o.state, o.definition
    FROM punctual.job_versions o
    WHERE o.job_id = c.job_id AND o.valid_from <= $6
    ORDER BY o.version DESC
    LIMIT 1) v ON true
LEFT JOIN punctual.jobs j ON j.id = c.job_id
ORDER BY c.job_id`

// subscriber is a job that has subscribed to an event.
type subscriber struct {
	job    uuid.UUID
	is     bool // else it had another version when the event was emitted
	paused bool
	filter domain.EventFilter
}

// decide finds out what becomes of the next subscribers. It keeps those that get a run or a skip from being deleted,
// and passes over those that others have locked.
func (f *fanOut) decide(ctx context.Context, tx *pg.Tx) error {
	room := batchSize - len(f.behind)
	found, err := pg.All(ctx, tx, func(row pgx.CollectableRow) (s subscriber, err error) {
		return s, row.Scan(&s.job, &s.is, &s.paused, (*string)(&s.filter))
	}, selectSubscribers, f.tenant, f.name, pg.OrZero(f.after), room, f.behind, f.at)
	if err != nil {
		return fmt.Errorf("reading subscribers: %w", err)
	}
	if f.left = len(found)-len(f.behind) == room; len(found) > len(f.behind) {
		f.after = &found[len(found)-1].job
	}
	var matched []subscriber
	for _, s := range found {
		switch {
		case !s.is:
		case !f.match(s.filter):
			f.unmatched++
		default:
			matched = append(matched, s)
		}
	}
	states, err := pg.Map[uuid.UUID, domain.JobState](ctx, tx, `
		SELECT id, state FROM punctual.jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR SHARE SKIP LOCKED`,
		pg.Column(matched, func(s subscriber) uuid.UUID { return s.job }))
	if err != nil {
		return fmt.Errorf("locking subscribers: %w", err)
	}
	for _, s := range matched {
		f.add(s, states)
	}
	f.left = f.left || len(f.passed) > 0
	return nil
}

// add decides about a subscriber whose job is locked, unless others have locked it.
func (f *fanOut) add(s subscriber, states map[uuid.UUID]domain.JobState) {
	state, locked := states[s.job]
	entry := claim.Entry{
		ID: domain.EventRunID(f.id, s.job), Job: s.job, Trigger: domain.TriggerEvent, ScheduledFor: f.at, DueAt: f.at,
		CausedBy: &f.id,
	}
	switch {
	case !locked:
		f.passed = append(f.passed, s.job)
	case state == domain.JobDeleted:
		f.skips = append(f.skips, claim.Unmade{Entry: entry, Reason: domain.ReasonJobDeleted})
	case s.paused:
		f.skips = append(f.skips, claim.Unmade{Entry: entry, Reason: domain.ReasonPaused})
	default:
		f.runs = append(f.runs, entry)
	}
}

// write writes the batch, with the progress of the event.
func (f *fanOut) write(ctx context.Context, tx *pg.Tx) error {
	var b pgx.Batch
	claim.QueueEntries(&b, f.now, f.runs...)
	claim.QueueUnmade(&b, f.now, f.skips...)
	b.Queue(`
		UPDATE punctual.events
		SET made = made + $2, skipped = skipped + $3, unmatched = unmatched + $4, after = $5,
		    behind = nullif($6::uuid[], '{}'), turn_at = CASE WHEN $7 THEN clock_timestamp() END,
		    ended_at = CASE WHEN NOT $7 THEN clock_timestamp() END
		WHERE id = $1`,
		f.id, len(f.runs), len(f.skips), f.unmatched, f.after, append([]uuid.UUID{}, f.passed...), f.left)
	if len(f.runs) > 0 {
		tx.Wake()
	}
	return pg.Wrap("making the runs of event "+f.id.String(), tx.SendBatch(ctx, &b).Close())
}

// putOff lets other events go first.
func (s *Events) putOff(ctx context.Context, id uuid.UUID, cause error) error {
	s.options.Log.Warn("the fan-out of an event failed; it is tried again", "event", id, "error", cause)
	return s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		return pg.Exec(ctx, tx, `
			UPDATE punctual.events SET turn_at = clock_timestamp() WHERE id = $1 AND turn_at IS NOT NULL`, id)
	})
}
