package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/names"
	"punctual/store/pg"
)

// Outcomes says what became of runs.
type Outcomes struct {
	Succeeded   int64    `json:"succeeded" doc:"Runs that succeeded." example:"14288"`
	Dead        int64    `json:"dead" doc:"Runs that died. GET /v1/runs?status=dead lists them." example:"12"`
	Cancelled   int64    `json:"cancelled" doc:"Runs that were cancelled. GET /v1/runs?status=cancelled lists them." example:"0"`
	Skipped     int64    `json:"skipped" doc:"Recorded skips; one may stand for several slots. GET /v1/runs?status=skipped lists them." example:"3"`
	Unended     int64    `json:"unended" doc:"Runs that had not ended when they were counted." example:"1"`
	SuccessRate *float64 `json:"success_rate" doc:"Share of successes among the runs that succeeded or died. Null: there are none." example:"0.9992"`
}

// Add counts runs with a status.
func (o *Outcomes) Add(status domain.Status, n int64) {
	switch status {
	case domain.StatusSucceeded:
		o.Succeeded += n
	case domain.StatusDead:
		o.Dead += n
	case domain.StatusCancelled:
		o.Cancelled += n
	case domain.StatusSkipped:
		o.Skipped += n
	default:
		o.Unended += n
	}
}

// Rate fills in the rate of success.
func (o *Outcomes) Rate() {
	if ended := o.Succeeded + o.Dead; ended > 0 {
		o.SuccessRate = new(float64(o.Succeeded) / float64(ended))
	}
}

// mostStats is how many runs of a job JobStats reads at most, and statsSpan how far back.
const (
	mostStats = 1000
	statsSpan = 24 * time.Hour
)

// JobStats says how the runs of a job went lately.
type JobStats struct {
	JobID    uuid.UUID `json:"job_id" format:"uuid" doc:"The job." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Job      string    `json:"job" doc:"Its name." example:"daily-invoice-gen"`
	From     time.Time `json:"from" doc:"How far back the runs were read: 24 hours, or to the slot of the oldest of 1,000 runs."`
	Runs     int       `json:"runs" maximum:"1000" doc:"How many runs and recorded skips were read: the newest since then, up to 1,000." example:"288"`
	Complete bool      `json:"complete" doc:"Whether these are all of the last 24 hours." example:"true"`
	Outcomes
	Duration Percentiles `json:"duration" doc:"How long the latest attempts of the runs took that succeeded or died."`
	Lateness Percentiles `json:"lateness" doc:"How long after they were due runs were sent: those whose first attempt is their latest. Backfills and replays are left out."`
}

// Percentiles say how long durations are, in seconds.
type Percentiles struct {
	Runs int      `json:"runs" doc:"How many runs it is of." example:"285"`
	P50  *float64 `json:"p50_s" doc:"Half of them took no longer, in seconds. Null: there are none." example:"1.371"`
	P95  *float64 `json:"p95_s" doc:"95 % of them took no longer." example:"4.208"`
	Max  *float64 `json:"max_s" doc:"The longest." example:"9.114"`
}

// took is how long, in seconds, the latest attempt of a run r took that has ended. A run that ended while it waited has
// no duration.
const took = `CASE WHEN r.status = 'succeeded' OR r.status = 'dead' AND r.reason NOT IN ('expired', 'unreachable')
             THEN date_part('epoch', r.finished_at - r.started_at) END`

// LateFor is how late a run r was first sent, as an SQL interval. started_at is of the latest attempt. Backfills and
// replays wait for their turn by design.
const LateFor = `CASE WHEN r.attempt = 1 AND r.trigger NOT IN ('backfill', 'replay')
             THEN r.started_at - r.due_at END`

// statsOf is the key of the runs of the job.
var statsOf = days.Job(`$1::uuid`)

var selectStats = fmt.Sprintf(`
SELECT count(*), (array_agg(r.scheduled_for ORDER BY r.id))[1],
       count(*) FILTER (WHERE r.status = 'succeeded'), count(*) FILTER (WHERE r.status = 'dead'),
       count(*) FILTER (WHERE r.status = 'cancelled'), count(*) FILTER (WHERE r.status = 'skipped'),
       count(*) FILTER (WHERE r.finished_at IS NULL),
       count(r.took), percentile_disc(ARRAY[0.5, 0.95, 1]) WITHIN GROUP (ORDER BY r.took),
       count(r.late), percentile_disc(ARRAY[0.5, 0.95, 1]) WITHIN GROUP (ORDER BY r.late)
FROM (SELECT r.id, r.scheduled_for, r.status, r.finished_at, %s AS took, date_part('epoch', %s) AS late
      FROM punctual.runs r
      WHERE %s AND %s AND r.id >= $3 AND r.tenant = $2 AND r.step IS NULL
      %s LIMIT %d) r`, took, LateFor, statsOf.From(`r`, `$3`), statsOf.To(`r`), statsOf.Order(`r`, days.NewestFirst),
	mostStats)

// JobStats returns how the runs of a job went in the last 24 hours. It reads the newest 1,000 at most. The error is
// pg.ErrNotFound if the tenant has no such job.
func (s *Runs) JobStats(ctx context.Context, tenant int32, job string) (JobStats, error) {
	return pg.Past(ctx, s.db.Callers, tenant, func(ctx context.Context, q pg.Source) (st JobStats, err error) {
		if st.JobID, err = names.Find(ctx, q, tenant, job); err != nil {
			return st, err
		}
		err = q.QueryRow(ctx, `
			SELECT j.name, `+pg.Now+` - $3::interval FROM punctual.jobs j
			WHERE j.id = $1 AND j.tenant = $2 AND j.state <> 'deleted'`, st.JobID, tenant, statsSpan).Scan(&st.Job, &st.From)
		if err != nil {
			return st, pg.Found(err, "job %q", job)
		}
		var oldest *time.Time
		var durations, lateness []float64
		var b pgx.Batch
		b.Queue(days.InOrder)
		b.Queue(selectStats, st.JobID, tenant, domain.FirstRunID(st.From)).QueryRow(pg.IntoPlaces(
			&st.Runs, &oldest, &st.Succeeded, &st.Dead, &st.Cancelled, &st.Skipped, &st.Unended,
			&st.Duration.Runs, &durations, &st.Lateness.Runs, &lateness))
		if err = q.SendBatch(ctx, &b).Close(); err != nil {
			return st, fmt.Errorf("reading the runs of job %q: %w", job, err)
		}
		if st.Complete = st.Runs < mostStats; !st.Complete && oldest != nil {
			st.From = *oldest
		}
		st.Rate()
		st.Duration.fill(durations)
		st.Lateness.fill(lateness)
		return st, nil
	})
}

// fill takes p50, p95 and the maximum; none if there are no durations.
func (p *Percentiles) fill(of []float64) {
	if len(of) == 3 {
		p.P50, p.P95, p.Max = &of[0], &of[1], &of[2]
	}
}
