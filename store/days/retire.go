package days

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

const (
	// detachPatience bounds the wait for transactions that still read a partition. Meanwhile no query waits for the
	// detach, but other detaches do.
	detachPatience = 3 * time.Second
	// retireFor is how long one pass goes on to further days. The other tidying shares its loop.
	retireFor = 30 * time.Second
	// retireTimeout bounds the copying of one day's failures.
	retireTimeout = 10 * time.Minute
	// lookAgain is how long until a day that is still needed is looked at again, because each look reads the whole day.
	lookAgain = time.Hour
)

// dayTable is one of the tables that hold a day of runs, attempts or run_data.
type dayTable struct {
	name, parent string
	state        string // attached, pending (its detach has begun) or detached
	failures     bool   // it holds only the runs that did not succeed
}

// oldDay is a day of runs, in UTC, with its tables.
type oldDay struct {
	day    string // 2006-01-02
	from   time.Time
	old    bool // older than the retention
	gone   bool // older than the failures' retention as well
	tables []dayTable
}

// The hour leaves time for runs that end after midnight, so that most days can be retired at the first look.
const selectOldDays = `
WITH tables AS (
    SELECT to_date(substring(c.relname FROM '\d{8}'), 'YYYYMMDD') AS day, c.relname::text AS name,
           substring(c.relname FROM '^(runs|attempts|run_data)') AS parent,
           CASE WHEN i.inhrelid IS NULL THEN 'detached'
                WHEN i.inhdetachpending THEN 'pending'
                ELSE 'attached' END AS state,
           c.relname ~ '_failures$' AS failures
      FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
     WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind = 'r'
       AND c.relname ~ '^(runs|attempts|run_data)_\d{8}(_failures)?$'),
aged AS (SELECT *, now() - (day + 1)::timestamp AT TIME ZONE 'UTC' - interval '1 hour' AS age FROM tables)
SELECT day, age >= $1::interval, age >= $2::interval, name, parent, state, failures
  FROM aged WHERE age >= $1::interval OR state = 'pending' ORDER BY day, parent DESC`

// Retire removes the days of runs that are older than the retention. Runs that succeeded are dropped with their
// day's partition. The others are kept in a partition of failures until they are older than the failures' retention.
// Retire goes on where an earlier pass was interrupted, on this replica or on another one. A day that cannot be removed
// holds up no other: the error names each such day.
func (d *Days) Retire(ctx context.Context) error {
	if !d.busy.TryLock() {
		return nil
	}
	defer d.busy.Unlock()
	old, err := d.old(ctx)
	if err != nil {
		return fmt.Errorf("looking for old partitions: %w", err)
	}
	begun := time.Now()
	var failed error
	for _, o := range old {
		if time.Since(begun) > retireFor {
			return failed // the rest follows in a minute
		}
		err := d.retire(ctx, o)
		if later(err) && ctx.Err() == nil {
			d.log.Warn(
				"an old partition could not be detached yet, because a query reads it or another replica is detaching it; tried again in a minute",
				"day", o.day, "error", err)
			return failed // while a detach is pending, no other of the same table can begin
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("retiring the runs of %s: %w", o.day, err))
		}
		if err != nil && pg.Code(err) == "" {
			break // not because of the day: the database is away, or the replica stops
		}
	}
	return failed
}

// old returns the days that may have something to remove, oldest first.
func (d *Days) old(ctx context.Context) ([]oldDay, error) {
	rows := pg.Query(ctx, d.db.Chores, selectOldDays, d.retention, d.failureRetention)
	var all []oldDay
	var o oldDay
	var t dayTable
	err := pg.Each(rows, []any{&o.from, &o.old, &o.gone, &t.name, &t.parent, &t.state, &t.failures}, func() {
		o.day = o.from.Format(time.DateOnly)
		if n := len(all); n == 0 || all[n-1].day != o.day {
			all = append(all, oldDay{day: o.day, from: o.from, old: o.old, gone: o.gone})
		}
		last := &all[len(all)-1]
		last.tables = append(last.tables, t)
	})
	return all, err
}

// goes reports whether a table is to be removed from the history.
func (o oldDay) goes(t dayTable) bool { return o.old && (o.gone || !t.failures) }

// retire does what is left to do for a day.
func (d *Days) retire(ctx context.Context, o oldDay) error {
	attached, left := false, false
	var ofRuns []string // the tables that hold the day's runs
	for _, t := range o.tables {
		if t.parent == "runs" {
			ofRuns = append(ofRuns, t.name)
		}
		if t.state == "pending" {
			// Whatever its age: until this is finished, nothing else of the same parent can be detached.
			if err := d.alter(ctx, t, "FINALIZE"); err != nil {
				return err
			}
		}
		attached = attached || o.goes(t) && t.state == "attached"
		left = left || o.goes(t) || o.old && t.state != "attached"
	}
	if !left {
		return nil
	}
	if waits, err := d.archives.Waits(ctx, o.from); err != nil {
		return err
	} else if waits {
		return d.attach(ctx, o)
	}
	if attached {
		if needed, err := d.needed(ctx, o); needed || err != nil {
			return err
		}
	}
	expected, may, err := d.archives.MayDrop(ctx, o.from, ofRuns)
	if err != nil {
		return err
	}
	if !may {
		return d.attach(ctx, o)
	}
	for _, t := range o.tables {
		if o.goes(t) && t.state == "attached" {
			if err := d.alter(ctx, t, "CONCURRENTLY"); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, retireTimeout)
	defer cancel()
	var kept *int64
	if err := d.db.Chores.QueryRow(ctx, `
		SELECT punctual.retire_partitions($1::text::date, $2, $3)`, o.day, !o.gone, expected).Scan(&kept); err != nil {
		return err
	}
	if kept != nil {
		d.log.Info("the runs of an old day were removed", "day", o.day, "failures_kept", *kept)
	}
	return nil
}

// attach lets a day stay whose removal has begun, so that its runs are seen again.
func (d *Days) attach(ctx context.Context, o oldDay) error {
	if !slices.ContainsFunc(o.tables, func(t dayTable) bool { return t.state != "attached" }) {
		return nil
	}
	return d.EnsureFor(ctx, d.db.Chores, []time.Time{o.from})
}

// alter begins or finishes the detach of a table. The detach cannot be part of a transaction, so it is one statement of
// the simple protocol. So the server cannot be told how long to wait, and the statement is cancelled from here. A
// detach that has begun then stays pending: new queries leave the partition out already.
func (d *Days) alter(ctx context.Context, t dayTable, how string) error {
	ctx, cancel := context.WithTimeout(ctx, detachPatience)
	defer cancel()
	_, err := d.db.Chores.Exec(ctx, fmt.Sprintf(`
		ALTER TABLE punctual.%s DETACH PARTITION punctual.%s %s`, t.parent, t.name, how), pgx.QueryExecModeSimpleProtocol)
	return err
}

// needed reports whether a day must stay as it is: because a run of it has not ended, or because a very late slot's run
// ended within the retention, or because a one-shot's slot in it has yet to fire. So ready, claims and exclusive never
// name a run that was removed while it mattered.
func (d *Days) needed(ctx context.Context, o oldDay) (bool, error) {
	if time.Until(d.stays[o.day]) > 0 {
		return true, nil
	}
	retention := d.retention
	if o.gone {
		retention = d.failureRetention
	}
	var needed bool
	err := d.db.Chores.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM punctual.runs
		               WHERE `+Window{From: o.from, Below: o.from.AddDate(0, 0, 1)}.On(`id`)+`
		                  AND (finished_at IS NULL OR finished_at > now() - $2::interval))
		    OR EXISTS (SELECT FROM punctual.schedules s
		               JOIN punctual.jobs j ON j.id = s.job_id
		               WHERE j.kind IN ('at', 'delay')
		                  AND s.scheduled_for >= $1::text::timestamp AT TIME ZONE 'UTC'
		                  AND s.scheduled_for < ($1::text::date + 1)::timestamp AT TIME ZONE 'UTC')`,
		o.day, retention).Scan(&needed)
	if err != nil {
		return false, fmt.Errorf("looking for runs that have not ended: %w", err)
	}
	if needed {
		d.stays[o.day] = time.Now().Add(lookAgain)
	} else {
		delete(d.stays, o.day)
	}
	return needed, nil
}

// later reports whether an error means that a transaction reads the partition, or that another replica is retiring it.
func later(err error) bool {
	switch pg.Code(err) {
	case "":
		return errors.Is(err, context.DeadlineExceeded)
	case "55P03", "57014", "40P01", // lock not available, cancelled, deadlock
		"55000", "42P01": // a detach of the same parent is pending; the table is no partition any more
		return true
	}
	return false
}
