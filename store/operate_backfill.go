package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/definitions"
	"punctual/store/notices"
	"punctual/store/pg"
)

const (
	backfillBatch = 100
	// slotsAhead is how many slots a batch looks at. Slots that have a run already cost next to nothing.
	slotsAhead = 500
)

// backfill is one batch of a backfill.
type backfill struct {
	*bulk
	tenant   int32
	queue    int16
	job      definitions.Version // the version whose schedule has the slots
	created  time.Time           // when the job was created
	rerun    bool
	next     time.Time // the first slot that is left
	last     time.Time
	now      time.Time
	earliest time.Time // earlier slots are too old
	runs     pastRuns
}

// pastRuns collects the new runs of past slots, column by column, in the order in which they are to be claimed.
type pastRuns struct {
	ids          []uuid.UUID
	slots, dueAt []time.Time
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
	found, err := b.store.definitions.Read(ctx, tx, definitions.One(b.job, b.tenant))
	if err != nil {
		return err
	}
	job, known := found.Jobs[b.job]
	if !known {
		b.store.options.Log.Error("a backfill cannot be carried on by this version of Punctual; it is tried again",
			"operation", o.id, "job", b.job.Job, "error", found.Broken[b.job])
		return nil
	}
	ahead := b.ahead(job.Timetable)
	ran, err := b.ran(ctx, tx, ahead)
	if err != nil {
		return err
	}
	next := b.choose(job.Timetable, ahead, ran, room)
	if err := b.write(ctx, tx); err != nil {
		return err
	}
	return b.goOn(ctx, tx, next)
}

func (b *backfill) read(ctx context.Context, tx *pg.Tx) error {
	err := tx.QueryRow(ctx, `
		SELECT o.tenant, j.queue, o.job_id, (o.request ->> 'job_version')::integer,
			o.rerun, o.next_slot, o.last_slot, j.created_at
		FROM punctual.operations o JOIN punctual.jobs j ON j.id = o.job_id WHERE o.id = $1`, b.id).
		Scan(&b.tenant, &b.queue, &b.job.Job, &b.job.Version, &b.rerun, &b.next, &b.last, &b.created)
	if errors.Is(err, pgx.ErrNoRows) { // the deleted job's row is gone too
		return hopeless("the job was deleted")
	}
	if err != nil {
		return fmt.Errorf("reading backfill %s: %w", b.id, err)
	}
	return nil
}

// share keeps the job from being edited or deleted until the runs are written. held is false if another transaction is
// changing the job. share does not lock the schedule: claims pass over a locked one, so a job that is backfilled all
// the time would never get to its slots.
func (b *backfill) share(ctx context.Context, tx *pg.Tx) (held bool, err error) {
	states, _, err := shareJobs(ctx, tx, []uuid.UUID{b.job.Job})
	if err != nil {
		return false, err
	}
	state, held := states[b.job.Job]
	if state == JobDeleted {
		return false, hopeless("the job was deleted")
	}
	b.now, b.earliest, err = b.store.reach(ctx, tx, b.created)
	return held, err
}

// room returns how many runs the batch may make. Like replays they only enter ready, where the claim lets the runs of a
// job with a gate pass one at a time. For such a job at most one of them waits at any time, so that they keep their
// order and do not wait at the gate by the thousand.
func (b *backfill) room(ctx context.Context, tx *pg.Tx) (int, error) {
	var busy bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (
		        SELECT FROM punctual.ready y WHERE y.job_id = x.job_id
		        AND (SELECT `+notices.IsNotice+` FROM punctual.runs r WHERE r.id = y.run_id) IS NOT TRUE)
		    OR EXISTS (SELECT FROM punctual.runs r WHERE r.id = x.active_run AND r.finished_at IS NULL)
		FROM punctual.exclusive x WHERE x.job_id = $1 AND x.gated`, b.job.Job).Scan(&busy)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // its runs may overlap
		return min(b.size(backfillBatch), b.second), nil
	case err != nil:
		return 0, fmt.Errorf("looking at the gate of job %s: %w", b.job.Job, err)
	case busy:
		return 0, nil
	}
	return 1, nil
}

// ahead returns the next slots, and one more that says where the next batch begins.
func (b *backfill) ahead(t *scheduler.Timetable) []time.Time {
	slots := make([]time.Time, 0, slotsAhead+1)
	for at := range t.Between(b.next, b.last.Add(1)) {
		if slots = append(slots, at); len(slots) > slotsAhead {
			break
		}
	}
	return slots
}

// ran returns which runs of the slots exist.
func (b *backfill) ran(ctx context.Context, tx *pg.Tx, slots []time.Time) (map[uuid.UUID]bool, error) {
	if len(slots) == 0 {
		return nil, nil
	}
	ids := make([]uuid.UUID, len(slots))
	for i, at := range slots {
		ids[i] = scheduler.SlotRunID(b.job.Job, at)
	}
	// The bounds exclude the partitions of other days.
	rows, err := tx.Query(ctx, `SELECT id FROM punctual.runs WHERE id = ANY($1::uuid[]) AND id >= $2 AND id < $3`,
		ids, scheduler.FirstRunID(slots[0]), scheduler.FirstRunID(slots[len(slots)-1].Add(time.Millisecond)))
	if err != nil {
		return nil, fmt.Errorf("looking for the runs of slots: %w", err)
	}
	ran, err := collectSet(rows)
	if err != nil {
		return nil, fmt.Errorf("looking for the runs of slots: %w", err)
	}
	return ran, nil
}

// choose settles the slots one after the other. It returns the first slot that is left for another batch, or nil.
func (b *backfill) choose(t *scheduler.Timetable, ahead []time.Time, ran map[uuid.UUID]bool, room int) *time.Time {
	for i, at := range ahead {
		id := scheduler.SlotRunID(b.job.Job, at)
		switch {
		case i == slotsAhead:
			return &ahead[i]
		case at.Before(b.earliest):
			b.failed++
			b.trouble = fmt.Sprintf("slot %s is by now further back than runs are kept", stamp(at))
			continue
		case ran[id] && !b.rerun:
			b.done++
			continue
		case b.made == room:
			return &ahead[i]
		case ran[id]:
			id = scheduler.NewRunID(b.now)
		}
		b.runs.ids = append(b.runs.ids, id)
		b.runs.slots, b.runs.dueAt = append(b.runs.slots, at), append(b.runs.dueAt, t.Due(at, nil))
		b.done++
		b.made++
	}
	return nil
}

// A run of the slot may have been made by another transaction meanwhile. Then it exists, as was asked for.
const insertPast = `
WITH u AS (
    SELECT * FROM unnest($2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[])
        AS u(id, scheduled_for, due_at, ready_at)),
made AS (
    INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, created_at, tenant, job_version, lane,
                               status, trigger)
    SELECT u.id, s.job_id, u.scheduled_for, u.due_at, $6::timestamptz, s.tenant, s.version, s.lane,
           'pending', 'backfill'
    FROM u CROSS JOIN punctual.schedules s WHERE s.job_id = $1 ORDER BY u.id
    ON CONFLICT DO NOTHING
    RETURNING id, job_id, tenant, lane)
INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
SELECT m.id, m.job_id, u.ready_at, m.tenant, m.lane | 3
FROM made m
JOIN u ON u.id = m.id`

// write writes the new runs with the current definition. Any replica may claim them at once.
func (b *backfill) write(ctx context.Context, tx *pg.Tx) error {
	n := len(b.runs.ids)
	if n == 0 {
		return nil
	}
	ready := make([]time.Time, n)
	for i := range ready {
		ready[i] = b.now.Add(time.Duration(i-n) * time.Microsecond) // keeps the order and is never later than now
	}
	b.days = append(b.runs.slots, b.now)
	if _, err := tx.Exec(ctx, insertPast, b.job.Job, b.runs.ids, b.runs.slots, b.runs.dueAt, ready, b.now); err != nil {
		return fmt.Errorf("writing runs of past slots of job %s: %w", b.job.Job, err)
	}
	tx.Wake()
	return nil
}

// goOn records where the next batch begins.
func (b *backfill) goOn(ctx context.Context, tx *pg.Tx, next *time.Time) error {
	b.left = next != nil
	if _, err := tx.Exec(ctx, `UPDATE punctual.operations SET next_slot = $2 WHERE id = $1`, b.id, next); err != nil {
		return fmt.Errorf("noting the progress of backfill %s: %w", b.id, err)
	}
	return nil
}
