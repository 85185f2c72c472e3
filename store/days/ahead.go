package days

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/store/pg"
)

// MadeAhead is how many days in advance daily partitions are made.
const MadeAhead = 7

// Ensure makes the missing daily partitions from yesterday to MadeAhead days from now, and those of the days within the
// retention that passed while no replica ran. Each day is a transaction of its own, so that many days take no more
// locks than one. It returns how many it made.
func (d *Days) Ensure(ctx context.Context, q pg.Querier) (int, error) {
	missing, err := pg.All(ctx, q, pgx.RowTo[string], `
		WITH today AS (
			SELECT (now() AT TIME ZONE 'UTC')::date AS day, ((now() - $2::interval) AT TIME ZONE 'UTC')::date AS oldest),
		newest AS (SELECT max(to_date(substring(c.relname FROM '\d{8}'), 'YYYYMMDD')) AS day
		             FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
		            WHERE i.inhparent = 'punctual.runs'::regclass)
		SELECT DISTINCT d::date::text AS day
		  FROM today, newest,
		       generate_series(greatest(least(today.day - 1, newest.day), today.oldest),
		                       today.day + $1::int, interval '1 day') d,
		       unnest(ARRAY['runs', 'attempts', 'run_data']) parent
		 WHERE NOT punctual.has_partition(parent, d::date)
		 ORDER BY day`, MadeAhead, d.retention)
	made := 0
	for _, day := range missing {
		var n int
		if err := q.QueryRow(ctx, `
			SELECT punctual.create_partitions($1::text::date, $1::text::date)`, day).Scan(&n); err != nil {
			return made, fmt.Errorf("making the partitions of %s: %w", day, err)
		}
		made += n
	}
	return made, pg.Wrap("looking for missing partitions", err)
}

// Ahead returns for how many days from now on, without a gap, there are partitions: MadeAhead if all is well, 0 if
// tomorrow's is missing, -1 if today's is.
func (d *Days) Ahead(ctx context.Context) (int, error) {
	var days int
	err := d.db.Chores.QueryRow(ctx, `
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
func (d *Days) EnsureFor(ctx context.Context, q pg.Querier, slots []time.Time) error {
	made := map[time.Time]bool{}
	for _, slot := range slots {
		day := dayOf(slot)
		if made[day] {
			continue
		}
		if err := pg.Exec(ctx, q, `
			SELECT punctual.create_partitions($1::text::date, $1::text::date)`, day.Format(time.DateOnly)); err != nil {
			return fmt.Errorf("making the partitions of %s: %w", day.Format(time.DateOnly), err)
		}
		made[day] = true
	}
	return nil
}

// KeptSince is the first of the days that have partitions up to today without a gap. An older partition may still
// exist: for a run that has not ended, for a single slot of long ago, for failures alone, or for runs that were
// imported from an archive.
const KeptSince = `
	(WITH days AS (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
	                 FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
	                WHERE i.inhparent = 'punctual.runs'::regclass AND c.relname ~ '^runs_\d{8}$'
	                  AND NOT EXISTS (SELECT FROM punctual.archives a
	                                  WHERE a.day = to_date(right(c.relname, 8), 'YYYYMMDD') AND a.dropped_at IS NOT NULL))
	 SELECT max(d.day)::timestamp AT TIME ZONE 'UTC' FROM days d
	 WHERE d.day <= (now() AT TIME ZONE 'UTC')::date AND NOT EXISTS (SELECT FROM days e WHERE e.day = d.day - 1))`
