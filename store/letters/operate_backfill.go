package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/definitions"
	"punctual/store/pg"
)

const (
	backfillBatch = 100
	// slotsAhead is how many slots a batch looks at, and daysAhead how many days they may span. Slots that have a run
	// already cost next to nothing.
	slotsAhead = 500
	daysAhead  = 8
)

// backfill is one batch of a backfill.
type backfill struct {
	*bulk
	tenant   int32
	queue    int16
	job      definitions.Version // the version whose schedule has the slots
	created  time.Time           // when the job was created
	rerun    bool
	serial   bool      // it makes one run at a time
	chain    bool      // the ends of its runs trigger other jobs
	next     time.Time // the first slot that is left
	last     time.Time
	now      time.Time
	earliest time.Time     // earlier slots are too old
	runs     []claim.Entry // in the order in which they are to be claimed
	lastRun  *uuid.UUID    // if serial, the run that has to end before the next one is made
}

// workSlots makes the next runs of a backfill.
func (o *bulk) workSlots(ctx context.Context, tx *pg.Tx) error {
	b := backfill{bulk: o}
	if err := b.read(ctx, tx); err != nil {
		return err
	}
	o.left = true
	held, err := b.share(ctx, tx)
	if err != nil || !held {
		return err
	}
	waits, err := b.looksAhead(ctx, tx)
	if err != nil || slices.Contains(waits.queues, b.queue) || slices.Contains(waits.jobs, b.job.Job) {
		return err
	}
	room, err := b.room(ctx, tx)
	if err != nil || room == 0 {
		return err
	}
	found, err := b.letters.definitions.Read(ctx, tx, definitions.One(b.job, b.tenant))
	if err != nil {
		return err
	}
	job, known := found.Jobs[b.job]
	if !known {
		b.letters.options.Log.Error("a backfill cannot be carried on by this version of Punctual; it is tried again",
			"operation", o.id, "job", b.job.Job, "error", found.Broken[b.job])
		return nil
	}
	ahead, rest := b.ahead(job.Timetable)
	ran, err := b.ran(ctx, tx, ahead)
	if err != nil {
		return err
	}
	next := b.choose(job.Timetable, ahead, ran, room)
	if next == nil {
		next = rest
	}
	if err := b.write(ctx, tx); err != nil {
		return err
	}
	return b.goOn(ctx, tx, next)
}

func (b *backfill) read(ctx context.Context, tx *pg.Tx) error {
	err := tx.QueryRow(ctx, `
		SELECT o.tenant, j.queue, o.job_id, (o.request ->> 'job_version')::integer,
			o.rerun, coalesce(o.request ->> 'concurrency' = $2, false),
			coalesce(o.request ->> 'chain' = 'true', false), o.next_slot, o.last_slot, j.created_at
		FROM punctual.operations o JOIN punctual.jobs j ON j.id = o.job_id WHERE o.id = $1`, b.id, ConcurrencyOneAtATime).
		Scan(&b.tenant, &b.queue, &b.job.Job, &b.job.Version, &b.rerun, &b.serial, &b.chain, &b.next, &b.last, &b.created)
	if errors.Is(err, pgx.ErrNoRows) { // the deleted job's row is gone too
		return hopeless("the job was deleted")
	}
	return pg.Wrap("reading backfill "+b.id.String(), err)
}

// share keeps the job from being edited or deleted until the runs are written. held is false if another transaction is
// changing the job. share does not lock the schedule: claims pass over a locked one, so a job that is backfilled all
// the time would never get to its slots. If it makes one run at a time, no other backfill of the job makes one
// meanwhile.
func (b *backfill) share(ctx context.Context, tx *pg.Tx) (held bool, err error) {
	lock := forShare
	if b.serial {
		lock = forExclusive
	}
	states, _, err := shareJobs(ctx, tx, []uuid.UUID{b.job.Job}, lock)
	if err != nil {
		return false, err
	}
	state, held := states[b.job.Job]
	if state == domain.JobDeleted {
		return false, hopeless("the job was deleted")
	}
	b.now, b.earliest, err = b.letters.reach(ctx, tx, b.created)
	return held, err
}

// room returns how many runs the batch may make. Like replays they only enter ready, where the claim lets the runs of a
// job with a gate pass one at a time. For such a job at most one of them waits at any time, so that they keep their
// order and do not wait at the gate by the thousand. A backfill that makes one run at a time does so without a gate,
// too.
func (b *backfill) room(ctx context.Context, tx *pg.Tx) (int, error) {
	if b.serial {
		if waits, err := b.previous(ctx, tx); err != nil || waits {
			return 0, err
		}
	}
	var busy bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM punctual.ready y WHERE y.job_id = x.job_id)
		    OR EXISTS (SELECT FROM punctual.runs_of(ARRAY[x.active_run]) r WHERE r.finished_at IS NULL)
		FROM punctual.exclusive x WHERE x.job_id = $1 AND x.gated`, b.job.Job).Scan(&busy)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && !b.serial: // its runs may overlap
		return min(b.size(backfillBatch), b.second), nil
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("looking at the gate of job %s: %w", b.job.Job, err)
	case busy:
		return 0, nil
	}
	return 1, nil
}

// previous reports whether the latest run of a backfill of the job has not ended. The longer that run takes, the less
// often it is looked at.
func (b *backfill) previous(ctx context.Context, tx *pg.Tx) (waits bool, err error) {
	var since *time.Time
	if err := tx.QueryRow(ctx, `
		SELECT max(r.created_at)
		FROM punctual.runs_of(ARRAY(SELECT o.last_run FROM punctual.operations o
		                            WHERE o.job_id = $1 AND o.last_run IS NOT NULL)) r
		WHERE r.finished_at IS NULL`, b.job.Job).Scan(&since); err != nil {
		return false, fmt.Errorf("looking at the last run of backfills of job %s: %w", b.job.Job, err)
	}
	if since == nil {
		return false, nil
	}
	b.pause = min(max(b.now.Sub(*since)/4, shortPause), gatePause)
	return true, nil
}

// ahead returns the next slots, and the one after them, where the next batch begins; nil if there is none.
func (b *backfill) ahead(t *jobspec.Timetable) (slots []time.Time, rest *time.Time) {
	for at := range t.Between(b.next, b.last.Add(1)) {
		if len(slots) == slotsAhead || len(slots) > 0 && at.Sub(slots[0]) > (daysAhead-1)*24*time.Hour {
			return slots, &at
		}
		slots = append(slots, at)
	}
	return slots, nil
}

// ran returns which runs of the slots exist, and whether they have ended.
func (b *backfill) ran(ctx context.Context, tx *pg.Tx, slots []time.Time) (map[uuid.UUID]bool, error) {
	if len(slots) == 0 {
		return nil, nil
	}
	ids := pg.Column(slots, func(at time.Time) uuid.UUID { return domain.SlotRunID(b.job.Job, at) })
	// The bounds exclude the partitions of other days.
	ran, err := pg.Map[uuid.UUID, bool](ctx, tx, `
		SELECT id, finished_at IS NOT NULL FROM punctual.runs WHERE id = ANY($1::uuid[]) AND id >= $2 AND id < $3`,
		ids, domain.FirstRunID(slots[0]), domain.FirstRunID(slots[len(slots)-1].Add(time.Millisecond)))
	return ran, pg.Wrap("looking for the runs of slots", err)
}

// choose settles the slots one after the other. It returns the first slot that is left for another batch, or nil.
func (b *backfill) choose(t *jobspec.Timetable, ahead []time.Time, ran map[uuid.UUID]bool, room int) *time.Time {
	for i, at := range ahead {
		id := domain.SlotRunID(b.job.Job, at)
		ended, exists := ran[id]
		switch {
		case at.Before(b.earliest):
			b.failed++
			b.trouble = fmt.Sprintf("slot %s is by now further back than runs are kept", pg.Stamp(at))
			continue
		case exists && !b.rerun && (ended || !b.serial):
			b.done++
			continue
		case b.made == room:
			return &ahead[i]
		case exists && !b.rerun: // the next slot waits for this one's run, too
			b.done++
			b.lastRun, room = &id, b.made
			continue
		case exists:
			id = domain.NewRunID(b.now)
		}
		run := claim.Entry{
			ID: id, Job: b.job.Job, Trigger: domain.TriggerBackfill, ScheduledFor: at, DueAt: t.Due(at, nil),
			By: b.by,
		}
		if b.chain {
			run.Sends = &claim.Sends{Chains: true}
		}
		b.runs = append(b.runs, run)
		b.done++
		b.made++
		if b.serial {
			b.lastRun = &id
		}
	}
	return nil
}

// write makes the new runs. A run of a slot may have been made by another transaction meanwhile: then it exists, as was
// asked for.
func (b *backfill) write(ctx context.Context, tx *pg.Tx) error {
	if len(b.runs) == 0 {
		return nil
	}
	b.days = append(pg.Column(b.runs, func(e claim.Entry) time.Time { return e.ScheduledFor }), b.now)
	var queue pgx.Batch
	claim.QueueEntries(&queue, b.now, b.runs...)
	tx.Wake()
	return pg.Wrap("writing runs of past slots of job "+b.job.Job.String(), tx.SendBatch(ctx, &queue).Close())
}

// goOn records where the next batch begins.
func (b *backfill) goOn(ctx context.Context, tx *pg.Tx, next *time.Time) error {
	b.left = next != nil
	return pg.Wrap("noting the progress of backfill "+b.id.String(), pg.Exec(ctx, tx, `
		UPDATE punctual.operations SET next_slot = $2, last_run = coalesce($3, last_run) WHERE id = $1`,
		b.id, next, b.lastRun))
}
