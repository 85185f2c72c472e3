package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/runs"
)

// resting is how many times as long as a batch took the counting rests after it. So it takes at most a tenth of a
// processor, however much there is to count.
const resting = 9

// shownHours is how many hours the overview shows, the present one included. An hour is counted for the last time when
// it is older: countedHours is how far back its beginning lies then at most.
const (
	shownHours   = 24
	countedHours = shownHours + 3
)

// CountHours counts a batch of the runs of one hour, so that nobody who looks at the overview has to. One replica does
// so at a time. Each batch is a transaction, which writes its counts and how far they go. So when a replica dies, the
// next one goes on where that one stopped. left is true if there may be more to count once wait has passed.
//
// It reads runs in the order of the primary key, all tenants at once: each run about three times, soon after it was
// written. The claim and the finish of a run do nothing for it.
func (b *Board) CountHours(ctx context.Context) (wait time.Duration, left bool, err error) {
	var w written
	oldest := b.oldestSlot(ctx)
	wait, left, err = b.alone(ctx, "counted_hours", aside.Whole, func(tx *pg.Tx, now time.Time) (bool, error) {
		h, err := takeHour(ctx, tx)
		if err != nil || h == nil {
			return false, err
		}
		h.batch = b.batch
		w, err = b.countHour(ctx, tx, *h, now, oldest)
		return true, err
	})
	if aside.Blames(ctx, err) && b.leaveOut(ctx, w) {
		var again error
		wait, left, again = b.CountHours(ctx)
		err = errors.Join(err, again)
	}
	return wait, left, pg.Wrap("counting the runs of an hour", err)
}

// alone counts a batch in a transaction, unless another replica is counting under the same lock. No statement of it may
// take longer than most. now is the database's clock. left is true if there may be more to count once wait has passed.
func (b *Board) alone(
	ctx context.Context, lock string, most time.Duration, count func(tx *pg.Tx, now time.Time) (left bool, err error),
) (wait time.Duration, left bool, err error) {
	begun := time.Now()
	err = b.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		var now time.Time
		var mine bool
		err := tx.QueryRow(ctx, `
			SELECT now(), EXISTS (SELECT FROM punctual.locks WHERE name = $1 FOR UPDATE SKIP LOCKED),
			       set_config('statement_timeout', $2::int::text, true)`, lock, most.Milliseconds()).
			Scan(&now, &mine, nil)
		if err == nil && mine {
			left, err = count(tx, now)
		}
		return err
	})
	if err != nil || !left {
		return 0, false, err
	}
	return resting * time.Since(begun), true, nil
}

// takeHour returns the newest hour that is to be counted now; nil if there is none.
func takeHour(ctx context.Context, tx *pg.Tx) (*hour, error) {
	var h hour
	var b pgx.Batch
	b.Queue(days.InOrder)
	b.Queue(`
		INSERT INTO punctual.counted_hours (hour)
		SELECT generate_series(date_trunc('hour', now(), 'UTC') - $1 * interval '1 hour',
		                       date_trunc('hour', now(), 'UTC'), interval '1 hour')
		ON CONFLICT DO NOTHING`, shownHours-1)
	b.Queue(`
		SELECT hour, counted_at, through, runs, unended, round, shown
		FROM punctual.counted_hours
		WHERE hour > now() - $1 * interval '1 hour' AND hour <= now() AND (next_at <= now() OR counted_at > now())
		ORDER BY hour DESC LIMIT 1`, countedHours).QueryRow(func(row pgx.Row) error {
		return row.Scan(&h.begin, &h.countedAt, &h.through, &h.runs, &h.unended, &h.round, &h.shown)
	})
	err := tx.SendBatch(ctx, &b).Close()
	if some, err := pg.Some(err); !some {
		return nil, err
	}
	return &h, nil
}

// written is what a batch writes of an hour, by tenant.
type written struct {
	tallies
	hour  time.Time
	round int32
}

// leftOutFor is how long the runs of a tenant are not counted after its counts could not be written. The hours of that
// time are counted anew later.
const leftOutFor = 10 * time.Minute

// leaveOut finds the tenants whose counts of an hour cannot be written, and leaves them out for a while: all others are
// counted. It reports whether there are any.
func (b *Board) leaveOut(ctx context.Context, w written) bool {
	tenants := slices.Collect(maps.Keys(w.tallies))
	undone := errors.New("was only tried")
	failed, err := aside.Apart(ctx, tenants, func(ctx context.Context, some []int32) error {
		ctx, cancel := context.WithTimeout(ctx, aside.Whole)
		defer cancel()
		err := b.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
			part := tallies{}
			for _, tenant := range some {
				*part.of(tenant) = *w.tallies[tenant]
			}
			if err := part.addWritten(ctx, tx, w.hour, w.round); err != nil {
				return err
			}
			var batch pgx.Batch
			part.queueWrite(&batch, w.hour, w.round)
			batch.Queue(removeRounds, w.hour, w.round, []int32{}, some)
			return cmp.Or(tx.SendBatch(ctx, &batch).Close(), undone)
		})
		if errors.Is(err, undone) {
			return nil
		}
		return err
	})
	for _, f := range failed {
		b.leftOut.Store(f.Item, time.Now().Add(leftOutFor))
	}
	return err == nil && len(failed) > 0
}

// notCounted lists the tenants whose runs are not counted for now.
func (b *Board) notCounted() (tenants []int32) {
	tenants = []int32{}
	b.leftOut.Range(func(tenant, until any) bool {
		if time.Until(until.(time.Time)) > 0 {
			tenants = append(tenants, tenant.(int32))
		}
		return true
	})
	return tenants
}

// removeRounds removes what earlier rounds than one ($2) have written of an hour ($1), but for some tenants ($3), and
// of some tenants ($4) only; null: of all.
const removeRounds = `
DELETE FROM punctual.hourly_runs
WHERE hour = $1 AND round < $2 AND tenant <> ALL($3::int[]) AND ($4::int[] IS NULL OR tenant = ANY($4::int[]))`

// countHour does the next task of an hour.
func (b *Board) countHour(
	ctx context.Context, tx *pg.Tx, h hour, now time.Time, oldest *time.Time,
) (w written, err error) {
	t := h.task(now)
	tallies, c, err := readBatch(ctx, tx, t, h.batch)
	if err != nil {
		return w, err
	}
	leftOut := b.notCounted()
	for _, tenant := range leftOut {
		delete(tallies, tenant)
	}
	after := h.add(t, c, now, oldest)
	w = written{tallies, h.begin, after.round}
	if !t.anew {
		if err := tallies.addWritten(ctx, tx, h.begin, h.round); err != nil {
			return w, err
		}
	}
	return w, writeHour(ctx, tx, h, after, tallies, leftOut)
}

func writeHour(ctx context.Context, tx *pg.Tx, h, after hour, all tallies, leftOut []int32) error {
	var b pgx.Batch
	all.queueWrite(&b, h.begin, after.round)
	if after.shown != h.shown {
		b.Queue(removeRounds, h.begin, after.shown, leftOut, []int32(nil))
	}
	b.Queue(`
		UPDATE punctual.counted_hours
		SET counted_at = $2, through = $3, runs = $4, unended = $5, round = $6, shown = $7,
		    next_at = coalesce($8::timestamptz, 'infinity')
		WHERE hour = $1`,
		h.begin, after.countedAt, after.through, after.runs, after.unended, after.round, after.shown, after.nextAt)
	return tx.SendBatch(ctx, &b).Close()
}

// selectBatch counts the next runs after an id by tenant, by what became of them and by how late they were sent.
var selectBatch = fmt.Sprintf(`
SELECT r.tenant,
       CASE WHEN r.step IS NOT NULL THEN 'step'
            WHEN r.status IN ('succeeded', 'dead', 'cancelled', 'skipped') THEN r.status
            ELSE 'unended' END AS became,
       %s AS class,
       count(*), max(r.id::text COLLATE "C")
FROM (SELECT r.*, %s AS late_for
      FROM (SELECT * FROM punctual.runs r WHERE r.id > $1 AND r.id < $2 ORDER BY r.id LIMIT $3) r) r
GROUP BY 1, 2, 3`, classOf(`r.late_for`), runs.LateFor)

// readBatch counts the next runs of a task.
func readBatch(ctx context.Context, tx *pg.Tx, t task, most int64) (tallies, counted, error) {
	all := tallies{}
	var c counted
	rows := pg.Query(ctx, tx, selectBatch, t.after, t.before, most)
	var tenant, n int32
	var became domain.Status // or step, or unended
	var class *int
	var last uuid.UUID
	_, err := pgx.ForEachRow(rows, []any{&tenant, &became, &class, &n, &last}, func() error {
		c.runs += int64(n)
		if c.last == nil || pg.CompareIDs(*c.last, last) < 0 {
			c.last = new(last)
		}
		switch became {
		case "step":
			return nil // what counts is its workflow
		case "unended":
			c.unended += int64(n)
		}
		all.of(tenant).add(became, class, n)
		return nil
	})
	return all, c, err
}

// oldestSlot returns the oldest slot that is due and not claimed; nil if there is none. Jitter may hide an older one.
// If the slots cannot be read, that is as if very old ones were due.
func (b *Board) oldestSlot(ctx context.Context) (oldest *time.Time) {
	ctx, cancel := context.WithTimeout(ctx, aside.Part)
	defer cancel()
	if err := b.db.Chores.QueryRow(ctx, `
		SELECT min(d.scheduled_for)
		FROM punctual.queues q
		CROSS JOIN generate_series(0, 2) p
		CROSS JOIN LATERAL (
		    SELECT s.scheduled_for
		    FROM punctual.schedules s
		    WHERE s.enabled AND s.lane = (q.id * 4 + p)::smallint AND s.next_run_at <= now()
		    ORDER BY s.next_run_at LIMIT 1) d`).Scan(&oldest); err != nil {
		return new(time.Time)
	}
	return oldest
}
