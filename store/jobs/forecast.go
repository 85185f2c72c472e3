package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"punctual/scheduler/forecast"
	"punctual/store/pg"
)

// Forecast is what is to come in a window, by the jobs as they were at one instant.
type Forecast struct {
	forecast.Forecast
	AsOf   time.Time
	Broken int // jobs whose schedules this binary cannot read: they are not counted
}

// The statements of Forecast read the next slot and the schedule of the jobs that may have slots before an instant, and
// lock nothing. Jobs that are paused or have no slot left are not enabled. Most definitions set no jitter, and to look
// for it in a definition costs as much as to read the schedule, so it is looked for only where there may be one.
const selectForecast = `
SELECT s.job_id, s.scheduled_for, v.definition -> 'schedule',
       CASE WHEN v.definition::text LIKE '%"jitter"%' THEN v.definition ->> 'jitter' END
FROM punctual.schedules s
LEFT JOIN punctual.job_versions v ON v.job_id = s.job_id AND v.version = s.version
WHERE s.enabled AND s.scheduled_for < $1`

// The index of due slots by tenant begins with the lane, and every lane is here. So a tenant of few jobs costs little,
// however many jobs there are.
const selectForecastOfTenant = selectForecast + ` AND s.tenant = $2
  AND s.lane = ANY (ARRAY(SELECT (q.id * 4 + p)::smallint FROM punctual.queues q, generate_series(0, 3) p))`

// selectForecastOfDated counts the dated runs of each job and step, of a tenant or of pg.Everybody.
const selectForecastOfDated = `
SELECT d.job_id, floor(extract(epoch FROM d.due_at - $3) / extract(epoch FROM $4::interval))::int AS step, count(*)
FROM punctual.dated d
JOIN punctual.jobs j ON j.id = d.job_id AND j.state = 'active'
WHERE d.due_at >= $3 AND d.due_at < $1 AND (d.tenant = $2 OR $2 = $5)
  AND d.lane = ANY (ARRAY(SELECT (q.id * 4 + p)::smallint FROM punctual.queues q, generate_series(0, 3) p))
GROUP BY 1, 2`

// Forecast counts the slots and the dated runs of all enabled jobs of a tenant, or of pg.Everybody, in a window. It
// reads each job once, while Postgres sends the jobs, and keeps none of them.
func (s *Jobs) Forecast(ctx context.Context, tenant int32, w forecast.Window) (f Forecast, err error) {
	r, err := pg.PastSnapshot(ctx, s.db.Callers, tenant, func(ctx context.Context, tx pg.Snapshot) (*forecasting, error) {
		r := &forecasting{jobs: s, builder: forecast.New(w, ctx.Err), plans: map[string]*forecast.Plan{}}
		if err := tx.QueryRow(ctx, beginForecast).Scan(&r.asOf, nil, nil); err != nil {
			return nil, err
		}
		sql, args := selectForecast, []any{w.To}
		if tenant != pg.Everybody {
			sql, args = selectForecastOfTenant, append(args, tenant)
		}
		if err := r.read(pg.Query(ctx, tx, sql, args...)); err != nil {
			return nil, err
		}
		return r, pg.Each3(pg.Query(ctx, tx, selectForecastOfDated, w.To, tenant, w.From, w.Step, pg.Everybody),
			r.builder.AddRuns)
	})
	if err != nil {
		return Forecast{}, fmt.Errorf("reading the schedules: %w", err)
	}
	f.AsOf, f.Broken = r.asOf.UTC(), r.broken
	if f.Forecast, err = r.builder.Forecast(); err != nil {
		return Forecast{}, fmt.Errorf("counting slots: %w", err)
	}
	return f, s.name(ctx, tenant, f.Busiest)
}

// beginForecast keeps the read to one process of Postgres, which leaves the processors to the claims, and ends it even
// if this process cannot.
const beginForecast = `
SELECT ` + pg.Now + `, set_config('max_parallel_workers_per_gather', '0', true),
       set_config('statement_timeout', '30s', true)`

// forecasting is one read of all schedules.
type forecasting struct {
	jobs    *Jobs
	asOf    time.Time
	builder *forecast.Builder
	plans   map[string]*forecast.Plan // by the text of schedule and jitter; nil: this binary cannot read it
	broken  int
	text    []byte
}

// mostPlans bounds the plans that are kept by their texts.
const mostPlans = 50_000

func (r *forecasting) read(rows pgx.Rows) error {
	type text = pgtype.DriverBytes // valid until the next row
	return pg.Each4(rows, func(id uuid.UUID, next time.Time, schedule, jitter text) {
		if p := r.plan(schedule, jitter); p != nil {
			r.builder.Add(id, p, next)
		} else {
			r.broken++
		}
	})
}

// plan returns the plan of a schedule; nil if this binary cannot read it.
func (r *forecasting) plan(schedule, jitter []byte) *forecast.Plan {
	r.text = append(append(append(r.text[:0], schedule...), 0), jitter...)
	p, known := r.plans[string(r.text)]
	if known {
		return p
	}
	if t, err := r.jobs.definitions.Timetable(schedule, jitter); err == nil {
		p = r.builder.Plan(t)
	}
	if len(r.plans) >= mostPlans {
		clear(r.plans)
	}
	r.plans[string(r.text)] = p
	return p
}

// name fills in the names of the jobs of busy steps.
func (s *Jobs) name(ctx context.Context, tenant int32, busiest []forecast.BusyStep) error {
	jobs := map[uuid.UUID][]*forecast.BusyJob{}
	for _, busy := range busiest {
		for i := range busy.Most {
			job := &busy.Most[i]
			jobs[job.ID] = append(jobs[job.ID], job)
		}
	}
	ids := slices.Collect(maps.Keys(jobs))
	_, err := pg.Past(ctx, s.db.Callers, tenant, func(ctx context.Context, q pg.Source) (any, error) {
		rows := pg.Query(ctx, q, `
			SELECT j.id, j.name, t.name
			FROM punctual.jobs j JOIN punctual.tenants t ON t.id = j.tenant
			WHERE j.id = ANY ($1) AND (j.tenant = $2 OR $2 = $3::integer)`, ids, tenant, pg.Everybody)
		return nil, pg.Wrap("reading the names of jobs", pg.Each3(rows, func(id uuid.UUID, name, tenant string) {
			for _, job := range jobs[id] {
				job.Name, job.Tenant = name, tenant
			}
		}))
	})
	return err
}
