package days

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"punctual/store/pg"
)

// MadeAhead is how many days in advance daily partitions are made.
const MadeAhead = 7

// Ensure makes the missing daily partitions from yesterday to MadeAhead days from now, and those of the days within the
// retention that passed while no replica ran. It returns how many it made.
func (d *Days) Ensure(ctx context.Context) (int, error) {
	var made int
	err := d.db.Conns(ctx).QueryRow(ctx, `
		WITH today AS (
			SELECT (now() AT TIME ZONE 'UTC')::date AS day, ((now() - $2::interval) AT TIME ZONE 'UTC')::date AS oldest),
		newest AS (SELECT max(to_date(substring(c.relname FROM '\d{8}'), 'YYYYMMDD')) AS day
		             FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
		            WHERE i.inhparent = 'punctual.runs'::regclass),
		missing AS (SELECT min(d)::date AS day
		              FROM today, newest,
		                   generate_series(greatest(least(today.day - 1, newest.day), today.oldest),
		                                   today.day + $1::int, interval '1 day') d,
		                   unnest(ARRAY['runs', 'attempts', 'run_data']) parent
		             WHERE NOT punctual.has_partition(parent, d::date))
		SELECT CASE WHEN missing.day IS NULL THEN 0 ELSE punctual.create_partitions(missing.day, today.day + $1::int) END
		  FROM today, missing`, MadeAhead, d.retention).Scan(&made)
	return made, pg.Wrap("making partitions", err)
}

// Ahead returns for how many days from now on, without a gap, there are partitions: MadeAhead if all is well, 0 if
// tomorrow's is missing, -1 if today's is.
func (d *Days) Ahead(ctx context.Context) (int, error) {
	var days int
	err := d.db.Conns(ctx).QueryRow(ctx, `
		SELECT coalesce(
			min(n) FILTER (WHERE NOT punctual.has_partition(parent, (now() AT TIME ZONE 'UTC')::date + n)),
			$1::int + 1) - 1
		  FROM generate_series(0, $1::int) n,
		       unnest(ARRAY['runs', 'attempts', 'run_data']) parent`, MadeAhead).Scan(&days)
	return days, pg.Wrap("counting the days that have partitions", err)
}

// IsMissing reports whether a write failed because there is no partition for a row.
func IsMissing(err error) bool {
	dbErr, is := errors.AsType[*pgconn.PgError](err)
	return is && dbErr.Code == "23514" && dbErr.ConstraintName == ""
}

// EnsureFor makes the partitions that are missing for runs of the given slots.
func (d *Days) EnsureFor(ctx context.Context, slots []time.Time) error {
	_, err := d.db.Conns(ctx).Exec(ctx, `
		SELECT punctual.create_partitions(d.day, d.day)
		FROM (SELECT DISTINCT (slot AT TIME ZONE 'UTC')::date AS day FROM unnest($1::timestamptz[]) AS slot) d`, slots)
	return pg.Wrap("making the partitions of slots", err)
}

// KeptSince is the first of the days that have partitions up to today without a gap. An older partition may still
// exist: for a run that has not ended, for a single slot of long ago, or for failures alone.
const KeptSince = `
	(WITH days AS (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
	                 FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
	                WHERE i.inhparent = 'punctual.runs'::regclass AND c.relname ~ '^runs_\d{8}$')
	 SELECT max(d.day)::timestamp AT TIME ZONE 'UTC' FROM days d
	 WHERE d.day <= (now() AT TIME ZONE 'UTC')::date AND NOT EXISTS (SELECT FROM days e WHERE e.day = d.day - 1))`
