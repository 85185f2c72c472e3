package overview

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// Usage is what the runs of a job used on a day.
type Usage struct {
	ID        uuid.UUID  `json:"-"`
	Day       string     `json:"day" format:"date" doc:"The day, in UTC: that of the slots of the runs; of runs without a slot, that on which they were made." example:"2026-12-01"`
	JobID     *uuid.UUID `json:"job_id" format:"uuid" nullable:"true" doc:"The job, which may be deleted. Null: all jobs of the day but the 1,000 with the most attempts."`
	Job       *string    `json:"job" doc:"Name of the job when the day was summed. Null: all other jobs." example:"daily-invoice-gen"`
	Runs      int64      `json:"runs" doc:"Runs, without those of steps and without recorded skips." example:"24"`
	Attempts  int64      `json:"attempts" doc:"Attempts that have ended; of a workflow, those of its steps." example:"26"`
	Seconds   float64    `json:"seconds" doc:"How long these attempts took, together: from the start to the end of each, with completion async to the report of its target." example:"71.204"`
	Bytes     int64      `json:"bytes" doc:"Bytes kept with these runs: bodies of their own, results, and kept parts of responses." example:"1840"`
	CountedAt time.Time  `json:"counted_at" doc:"As of when. A day is summed every six hours, and 10 minutes, a day and a week after its end."`
}

// UsageCursor marks the cursors of usage: see pg.Page.
const UsageCursor byte = 'u'

var listOfUsage = pg.Listed[Usage]{
	What: "usage", Letter: UsageCursor, ID: `u.id`, Of: func(u Usage) uuid.UUID { return u.ID },
	Scan: pgx.RowToStructByPos[Usage],
}

// UsageKept is how long usage is kept.
const UsageKept = 400 * 24 * time.Hour

// Usage returns what a tenant used on the days from one to another, which is excluded: the newest day first, and the
// cursor of the next page.
func (b *Board) Usage(
	ctx context.Context, tenant int32, from, to time.Time, page pg.Page,
) (list []Usage, next string, err error) {
	var c pg.Conditions
	c.Add(`u.tenant = ?`, tenant)
	c.Add(`u.id >= ?`, domain.FirstRunID(from))
	c.Add(`u.id < ?`, domain.FirstRunID(to))
	return listOfUsage.Page(ctx, b.db.Callers.Reader(tenant), page, `
		SELECT u.id, u.day::text, u.job_id, u.job, u.runs, u.attempts, u.seconds, u.bytes, u.counted_at
		FROM punctual.daily_usage u`, c)
}

// usageTimeout bounds the summing of one day.
const usageTimeout = 10 * time.Minute

// The ages after its end at which a day is summed. Its partition may be removed an hour after the second.
const (
	usageSoon  = 10 * time.Minute
	usageLater = 24 * time.Hour
	usageLast  = 7 * 24 * time.Hour
	usageEvery = 6 * time.Hour // while it lasts
)

// nextUsage returns when to sum a day again; nil: never.
func nextUsage(day, now time.Time) *time.Time {
	end := day.AddDate(0, 0, 1)
	if now.Before(end) {
		return new(jobspec.Earlier(now.Add(usageEvery), end.Add(usageSoon)))
	}
	for _, age := range []time.Duration{usageSoon, usageLater, usageLast} {
		if at := end.Add(age); at.After(now) {
			return &at
		}
	}
	return nil
}

// CountUsage sums what the runs of one day used. The claim and the finish of a run do nothing for it: each run is read
// a few times, with its day. One replica does so at a time. left is true if there may be more to sum once wait has
// passed.
func (b *Board) CountUsage(ctx context.Context) (wait time.Duration, left bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	wait, left, err = b.alone(ctx, "counted_days", usageTimeout, func(tx *pg.Tx, now time.Time) (bool, error) {
		if err := pg.Exec(ctx, tx, `
			INSERT INTO punctual.counted_days (day)
			SELECT d::date FROM generate_series((now() AT TIME ZONE 'UTC')::date - 7, (now() AT TIME ZONE 'UTC')::date,
			                                    interval '1 day') d
			ON CONFLICT DO NOTHING`); err != nil {
			return false, err
		}
		var day time.Time
		err := tx.QueryRow(ctx, `
			SELECT day::timestamp AT TIME ZONE 'UTC' FROM punctual.counted_days
			WHERE next_at <= now() ORDER BY day DESC LIMIT 1`).Scan(&day)
		if some, err := pg.Some(err); !some {
			return false, err
		}
		return true, countUsage(ctx, tx, day.UTC(), now)
	})
	return wait, left, pg.Wrap("summing the usage of a day", err)
}

// countUsage sums a day in place of what was summed before, unless its successful runs are removed by now. That is
// looked up afterwards: a day that is whole then was whole before.
func countUsage(ctx context.Context, tx *pg.Tx, day, now time.Time) error {
	var b pgx.Batch
	b.Queue(`SAVEPOINT whole`)
	b.Queue(`DELETE FROM punctual.daily_usage WHERE day = $1::text::date`, day.Format(time.DateOnly))
	w := days.Window{From: day, Below: day.AddDate(0, 0, 1)}
	b.Queue(fmt.Sprintf(sumUsage, w.On(`r.id`), w.On(`a.run_id`), w.On(`d.run_id`)),
		day.Format(time.DateOnly), domain.ReasonRejected, domain.ReasonApprovalExpired)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	var whole bool
	if err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_catalog.pg_inherits
		               WHERE inhrelid = to_regclass('punctual.runs' || to_char($1::text::date, '_YYYYMMDD'))
		                 AND NOT inhdetachpending)`, day.Format(time.DateOnly)).Scan(&whole); err != nil {
		return err
	}
	if !whole {
		if err := pg.Exec(ctx, tx, `ROLLBACK TO SAVEPOINT whole`); err != nil {
			return err
		}
	}
	return pg.Exec(ctx, tx, `
		UPDATE punctual.counted_days SET next_at = coalesce($2::timestamptz, 'infinity') WHERE day = $1::text::date`,
		day.Format(time.DateOnly), nextUsage(day, now))
}

// sumUsage sums the runs of a day. A workflow's own run and a step that waits for approval send nothing: their targets
// have accepted them without an answer. What a workflow used is what its steps did.
const sumUsage = `
WITH used AS (
    SELECT r.tenant, r.job_id, r.step IS NOT NULL AS step, count(*) AS runs,
           count(*) FILTER (WHERE sent) AS attempts,
           coalesce(sum(extract(epoch FROM r.finished_at - r.started_at)) FILTER (WHERE sent), 0) AS seconds,
           0::bigint AS bytes
    FROM punctual.runs r
    CROSS JOIN LATERAL (
        SELECT coalesce(r.status = 'succeeded' AND r.started_at IS NOT NULL
                        AND NOT (r.accepted_at IS NOT NULL AND r.http_status IS NULL), false) AS sent) s
    WHERE %[1]s AND r.status <> 'skipped'
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT r.tenant, r.job_id, r.step IS NOT NULL, 0, count(*),
           coalesce(sum(extract(epoch FROM a.finished_at - a.started_at)), 0),
           coalesce(sum(punctual.payload_bytes(a.response)), 0)
    FROM punctual.attempts a
    JOIN punctual.runs r ON r.id = a.run_id AND %[1]s
    WHERE %[2]s AND (a.reason IS NULL OR a.reason NOT IN ($2, $3))
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT r.tenant, r.job_id, r.step IS NOT NULL, 0, 0, 0,
           sum(coalesce(punctual.payload_bytes(d.body), 0) + coalesce(punctual.payload_bytes(d.response), 0)
               + coalesce(punctual.payload_bytes(d.result), 0))
    FROM punctual.run_data d
    JOIN punctual.runs r ON r.id = d.run_id AND %[1]s
    WHERE %[3]s
    GROUP BY 1, 2, 3),
total AS (
    SELECT tenant, job_id, coalesce(sum(runs) FILTER (WHERE NOT step), 0) AS runs,
           coalesce(sum(attempts) FILTER (WHERE step), sum(attempts)) AS attempts,
           coalesce(sum(seconds) FILTER (WHERE step), sum(seconds)) AS seconds, sum(bytes) AS bytes
    FROM used
    GROUP BY 1, 2),
placed AS (
    SELECT tenant, runs, attempts, seconds, bytes,
           CASE WHEN row_number() OVER (PARTITION BY tenant ORDER BY attempts DESC, job_id) <= 1000
                THEN job_id END AS job_id
    FROM total)
INSERT INTO punctual.daily_usage (id, day, tenant, job_id, job, runs, attempts, seconds, bytes)
SELECT (left(replace(punctual.partition_bound($1::text::date)::text, '-', ''), 12)
        || left(md5(coalesce(p.job_id::text, '')), 20))::uuid,
       $1::text::date, p.tenant, p.job_id, (SELECT j.name FROM punctual.jobs j WHERE j.id = p.job_id),
       sum(p.runs), sum(p.attempts), sum(p.seconds), sum(p.bytes)
FROM placed p
GROUP BY p.tenant, p.job_id`
