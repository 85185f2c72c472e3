package overview

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
	"punctual/store/runs"
)

// Lateness is how long after they were due runs were sent.
type Lateness struct {
	Runs int64    `json:"runs" doc:"How many runs it is of: those that were sent, and whose first attempt is their latest. Backfills and replays are left out." example:"14291"`
	P50  *float64 `json:"p50_s" doc:"Half of these runs were sent no later than this after they were due: in seconds, to within 10 %, and at least 0.001. Null: there are none." example:"0.00218"`
	P99  *float64 `json:"p99_s" doc:"The same for 99 % of these runs." example:"0.0247"`
}

func (t tally) lateFor() Lateness {
	return Lateness{Runs: t.lateness.count(), P50: t.lateness.quantile(0.5), P99: t.lateness.quantile(0.99)}
}

// DayOfRuns is what became of the runs of the last 24 hours.
type DayOfRuns struct {
	From      time.Time  `json:"from" doc:"Beginning of the first hour."`
	CountedAt *time.Time `json:"counted_at" doc:"As of when the newest hour was counted, which happens each minute. Runs of the minute before that are not counted yet. Null: nothing is counted yet."`
	runs.Outcomes
	Lateness Lateness     `json:"lateness" doc:"How long after they were due runs were sent."`
	Hours    []HourOfRuns `json:"hours" doc:"The hours, the oldest first. The last one is not over."`
}

// HourOfRuns is what became of the runs of one hour. The hour of a run is that of its slot. The hour of a run without a
// slot, such as a replay, and of a skip is that in which it was made.
type HourOfRuns struct {
	Hour      time.Time  `json:"hour" doc:"Beginning of the hour."`
	CountedAt *time.Time `json:"counted_at" doc:"As of when it was counted. Null: it is not counted yet. An hour is counted again up to five times after its end, for runs that end late or are sent late: the last time a day later."`
	runs.Outcomes
	Lateness Lateness `json:"lateness" doc:"How long after they were due runs were sent."`
}

// selectDay reads the counts of a tenant for the last hours.
var selectDay = fmt.Sprintf(`
SELECT w.hour, h.counted_at, coalesce(r.succeeded, 0), coalesce(r.dead, 0), coalesce(r.cancelled, 0),
       coalesce(r.skipped, 0), coalesce(r.unended, 0), coalesce(r.lateness, '{}')
FROM (SELECT date_trunc('hour', now(), 'UTC') - n * interval '1 hour' AS hour FROM generate_series(0, %d) n) w
LEFT JOIN punctual.counted_hours h ON h.hour = w.hour AND h.shown > 0
LEFT JOIN punctual.hourly_runs r ON r.hour = w.hour AND r.tenant = $1 AND r.round = h.shown
ORDER BY w.hour`, shownHours-1)

// queueDay queues the statement that reads the last 24 hours of a tenant.
func queueDay(b *pgx.Batch, day *DayOfRuns, tenant int32) {
	b.Queue(selectDay, pg.Prepared{}, tenant).Query(func(rows pgx.Rows) error {
		var sum, t tally
		var h HourOfRuns
		_, err := pgx.ForEachRow(rows, append([]any{&h.Hour, &h.CountedAt}, t.into()...), func() error {
			sum.merge(t)
			t.Rate()
			h.Outcomes, h.Lateness = t.Outcomes, t.lateFor()
			day.Hours = append(day.Hours, h)
			if h.CountedAt != nil {
				day.CountedAt = h.CountedAt
			}
			t, h = tally{}, HourOfRuns{}
			return nil
		})
		if len(day.Hours) > 0 {
			day.From = day.Hours[0].Hour
		}
		sum.Rate()
		day.Outcomes, day.Lateness = sum.Outcomes, sum.lateFor()
		return err
	})
}
