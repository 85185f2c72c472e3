package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/scheduler/jobspec"
	"punctual/store/aside"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Chore is the name of the chore that fans events out.
const Chore = "events"

// Any is true if the chore has work.
const Any = `EXISTS (SELECT FROM punctual.events WHERE turn_at <= now())`

const (
	// batchSize is how many subscribers one transaction comes to.
	batchSize = 500
	// batchTime is how long one transaction may take.
	batchTime = 15 * time.Second
	// candidates is how many events a replica looks at that others may have locked: so many of all tenants together, but
	// one of each.
	candidates = 32
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
	size int         // how many subscribers it comes to at most
	past []uuid.UUID // subscribers that fail alone, and are passed over
	only uuid.UUID   // the subscriber, if it came to a single one
	now  time.Time

	runs      []claim.Entry
	skips     []claim.Unmade
	passed    []uuid.UUID // passed over, so that they are left for another batch
	unmatched int
	left      bool // there are more subscribers
}

// waiting are the events that wait for their turn.
var waiting = aside.Rows{Kind: aside.Event, Table: "events", ID: "id", Are: "r.turn_at <= now()"}

// FanOut makes the runs of the next subscribers of an event: of the tenant whose turn it is, the one that has waited
// longest for its own. It skips events on which other replicas work.
func (s *Events) FanOut(ctx context.Context) (wait time.Duration, left bool, err error) {
	limited, cancel := context.WithTimeout(ctx, aside.Whole)
	defer cancel()
	found, err := pg.All(limited, s.db.Chores, pgx.RowToStructByPos[turn], selectTurns, candidates,
		s.trials.without(s.aside.Resting(aside.Event)))
	if s.aside.SetUnreadable(ctx, waiting, err) {
		return 0, true, nil
	}
	for i, found := 0, s.turns.order(found); err == nil && i < len(found) && !left; i++ {
		event := found[i].Event
		wait, left, err = s.fanOut(ctx, event)
		if aside.Blames(ctx, err) { // not even its progress can be noted
			s.trials.end(event)
			left, err = s.aside.One(ctx, aside.Event, event, true, err)
		}
		if left {
			s.turns.took(found[i].Tenant)
		}
	}
	return wait, left, pg.Wrap("fanning events out", err)
}

// fanOut makes a batch of an event's runs. The event's body is read and parsed before the transaction, and once for
// all filters: Postgres ends a transaction that is silent for seconds. taken is false if another replica works on the
// event.
func (s *Events) fanOut(ctx context.Context, id uuid.UUID) (wait time.Duration, taken bool, err error) {
	f := fanOut{events: s, id: id}
	taken, err = f.read(ctx)
	if _, unopened := errors.AsType[*seal.OpenError](err); unopened {
		s.aside.Put(ctx, aside.Item{Kind: aside.Event, ID: id, Tenant: f.tenant}, err)
		return 0, true, s.turn(ctx, id, s.trials.rest(id))
	}
	if err != nil || !taken {
		return 0, taken, err
	}
	f.size, f.past = s.trials.of(id)
	err = f.batch(ctx)
	switch {
	case err == nil && f.at.IsZero() || ctx.Err() != nil:
		return 0, false, err
	case days.IsMissing(err): // of the day of the event, after a long outage
		return 0, true, s.days.EnsureFor(ctx, s.db.Chores, []time.Time{f.at})
	case err != nil:
		return 0, true, s.putOff(ctx, &f, err)
	}
	failpoint.At(failpoint.EventCommitted)
	s.trials.passed(id, !f.left)
	if !f.left {
		s.aside.Done(ctx, aside.Event, id)
		s.ended.Add(1)
	}
	if len(f.passed) > 0 && len(f.runs)+len(f.skips)+f.unmatched == 0 {
		return f.rest(ctx)
	}
	return 0, true, nil
}

// read reads the event and its body, before the transaction. found is false if its fan-out is over.
func (f *fanOut) read(ctx context.Context) (found bool, err error) {
	var body seal.Bytes
	var plain bool
	found, err = pg.Some(f.events.db.Chores.QueryRow(ctx, `
		SELECT tenant, name, body FROM punctual.events WHERE id = $1 AND turn_at IS NOT NULL`, f.id).
		Scan(&f.tenant, &f.name, seal.Noting(&body, &plain)))
	f.fields = jobspec.FieldsOf(body)
	if err == nil && plain && f.events.db.Seals() { // it was emitted in SQL
		err = pg.Exec(ctx, f.events.db.Chores, `UPDATE punctual.events SET body = $2 WHERE id = $1`, f.id, body)
	}
	return found, pg.Wrap("reading event "+f.id.String(), err)
}

func (f *fanOut) batch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	return f.events.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if found, err := f.lock(ctx, tx); err != nil || !found {
			return err
		}
		failpoint.At(failpoint.EventLocked)
		if err := f.decide(ctx, tx); err != nil {
			return err
		}
		failpoint.At(failpoint.EventDecided)
		return f.write(ctx, tx)
	})
}

// lock locks the event. found is false if another replica works on it, or its fan-out is over.
func (f *fanOut) lock(ctx context.Context, tx *pg.Tx) (found bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT emitted_at, after, coalesce(behind, '{}'), clock_timestamp()
		FROM punctual.events
		WHERE id = $1 AND turn_at IS NOT NULL
		FOR UPDATE SKIP LOCKED`, f.id).
		Scan(&f.at, &f.after, &f.behind, &f.now)
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
	filter jobspec.EventFilter
}

// decide finds out what becomes of the next subscribers. It keeps those that get a run or a skip from being deleted,
// and passes over those that others have locked.
func (f *fanOut) decide(ctx context.Context, tx *pg.Tx) error {
	f.split()
	room := f.size - len(f.behind)
	found, err := pg.All(ctx, tx, func(row pgx.CollectableRow) (s subscriber, err error) {
		return s, row.Scan(&s.job, &s.is, &s.paused, (*string)(&s.filter))
	}, selectSubscribers, f.tenant, f.name, pg.OrZero(f.after), room, f.behind, f.at)
	if err != nil {
		return fmt.Errorf("reading subscribers: %w", err)
	}
	if f.left = len(found)-len(f.behind) == room; len(found) > len(f.behind) {
		f.after = &found[len(found)-1].job
	}
	if len(found) == 1 {
		f.only = found[0].job
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

// split leaves as many of those that were passed over before as one batch may come to. It keeps the others back, and
// first of all those that fail alone.
func (f *fanOut) split() {
	fit := func(job uuid.UUID) bool { return !slices.Contains(f.past, job) }
	all := f.behind
	f.behind = nil
	for _, job := range all {
		if fit(job) && len(f.behind) < f.size {
			f.behind = append(f.behind, job)
		} else {
			f.passed = append(f.passed, job)
		}
	}
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

// putOff lets other events go first, and has the next batch of this one come to fewer subscribers. A subscriber that
// fails alone is passed over, so that all others get their runs.
func (s *Events) putOff(ctx context.Context, f *fanOut, cause error) error {
	alone, pause := s.trials.failed(f.id, f.only)
	if alone {
		return s.passOver(ctx, f, cause)
	}
	s.options.Log.Warn("the fan-out of an event failed; it is tried again", "event", f.id, "error", cause)
	return s.turn(ctx, f.id, pause)
}

// passOver keeps a subscriber for later that fails alone.
func (s *Events) passOver(ctx context.Context, f *fanOut, cause error) error {
	s.aside.Put(ctx, aside.Item{Kind: aside.Event, ID: f.id, Tenant: f.tenant, Job: f.only}, cause)
	return s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		return pg.Exec(ctx, tx, `
			UPDATE punctual.events
			SET turn_at = clock_timestamp(), after = greatest(after, $2::uuid),
			    behind = array_append(array_remove(behind, $2::uuid), $2::uuid)
			WHERE id = $1 AND turn_at IS NOT NULL`, f.id, f.only)
	})
}

// rest waits before it looks at an event again of which nobody is left but those that others have locked, or that fail
// alone: of these it tries one by one again later.
func (f *fanOut) rest(ctx context.Context) (wait time.Duration, left bool, err error) {
	if len(f.past) == 0 {
		return lockedPause, true, nil
	}
	return 0, true, f.events.turn(ctx, f.id, f.events.trials.rest(f.id))
}

// turn puts the next batch of an event off.
func (s *Events) turn(ctx context.Context, id uuid.UUID, after time.Duration) error {
	return s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		return pg.Exec(ctx, tx, `
			UPDATE punctual.events SET turn_at = clock_timestamp() + $2::interval WHERE id = $1 AND turn_at IS NOT NULL`,
			id, after)
	})
}
