package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/forecast"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// listed counts what a list shows.
func listed[T any](list []T, _ string, err error) (int, error) { return len(list), err }

// Row-level security does not keep reads for a tenant from using indexes.
func TestReadsForATenantScanNoLargeTable(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	t.Parallel()
	dsn := pgtest.Clone(t)
	c := OpenReplica(t, dsn)
	c.Grow()
	c.Exec(`UPDATE punctual.jobs SET labels = jsonb_build_object('n', name)`)
	c.Exec(`INSERT INTO punctual.audit_log (id, resource_id, job_id, at, tenant, action, actor_kind, name)
		SELECT gen_random_uuid(), id, id, now(), tenant, 'job.create', 'system', name FROM punctual.jobs`)
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts)
		SELECT id, job_id, tenant, 'x', 1, now(), 'manual', 1 FROM punctual.runs`)
	c.Create("reminder", Never)
	c.Pend("reminder", 5000, time.Hour, time.Hour)
	dated := uuid.MustParse(c.Text(`SELECT run_id FROM punctual.dated LIMIT 1`))
	few := c
	few.Tenant = c.Theirs("few")
	few.Create("often", Every(time.Minute))
	c.Exec(`ANALYZE`)
	var name string
	var job, run uuid.UUID
	if err := c.DB.Callers.QueryRow(t.Context(), `SELECT j.name, j.id, r.id
		FROM punctual.jobs j
		JOIN punctual.runs r ON r.job_id = j.id LIMIT 1`).Scan(&name, &job, &run); err != nil {
		t.Fatal(err)
	}
	c.Close()
	watch := OpenReplica(t, dsn)
	ctx := t.Context()
	page := pg.Page{Limit: 20}
	watch.WantNoScans("", func(reader Replica) {
		for what, read := range map[string]func() (int, error){
			"jobs": func() (int, error) { return listed(reader.Jobs.ListJobs(ctx, 1, jobs.Filter{Page: page})) },
			"jobs by prefix": func() (int, error) {
				return listed(reader.Jobs.ListJobs(ctx, 1, jobs.Filter{NamePrefix: name, Page: page}))
			},
			"jobs by label": func() (int, error) {
				return listed(reader.Jobs.ListJobs(ctx, 1, jobs.Filter{Labels: map[string]string{"n": name}, Page: page}))
			},
			"job by id":     func() (int, error) { _, err := reader.Jobs.GetJob(ctx, 1, job.String()); return 1, err },
			"job by name":   func() (int, error) { _, err := reader.Jobs.GetJob(ctx, 1, name); return 1, err },
			"runs":          func() (int, error) { return listed(reader.Runs.ListRuns(ctx, 1, runs.Filter{Page: page})) },
			"runs of a job": func() (int, error) { return listed(reader.Runs.ListRuns(ctx, 1, runs.Filter{Job: name, Page: page})) },
			"run":           func() (int, error) { _, err := reader.Runs.GetRun(ctx, 1, run); return 1, err },
			"dated run":     func() (int, error) { _, err := reader.Runs.GetRun(ctx, 1, dated); return 1, err },
			"dead letters": func() (int, error) {
				return listed(reader.Letters.ListDeadLetters(ctx, 1, letters.DeadLetterFilter{Page: page}))
			},
			"groups of dead letters": func() (int, error) {
				return listed(reader.Letters.ListGroups(ctx, 1, letters.DeadLetterFilter{Page: page}))
			},
			"changes": func() (int, error) { return listed(reader.Audit.List(ctx, 1, audit.Filter{Page: page})) },
			"changes of a job": func() (int, error) {
				return listed(reader.Audit.List(ctx, 1, audit.Filter{Job: name, Page: page}))
			},
			"changes by a key": func() (int, error) {
				_, _, err := reader.Audit.List(ctx, 1, audit.Filter{Key: new(uuid.New()), From: time.Now(), Page: page})
				return 1, err
			},
			"changes by an actor": func() (int, error) {
				_, _, err := reader.Audit.List(ctx, 1, audit.Filter{Actor: "alice", Page: page})
				return 1, err
			},
			"versions of a job": func() (int, error) { return listed(reader.Jobs.ListVersions(ctx, 1, name, page)) },
			"a version": func() (int, error) {
				v, err := reader.Jobs.GetVersion(ctx, 1, name, 1, 1)
				return len(v.Definition), err
			},
			"a forecast of another tenant, who has few jobs": func() (int, error) {
				now := time.Now()
				f, err := reader.Jobs.Forecast(
					ctx, few.Tenant, forecast.Window{From: now, To: now.Add(time.Hour), Step: time.Minute},
				)
				return f.Jobs, err
			},
			"an explanation": func() (int, error) {
				_, err := reader.History.ExplainJob(
					ctx, 1, name, func(*time.Location) (time.Time, error) { return time.Now(), nil },
				)
				return 1, err
			},
		} {
			if n, err := read(); err != nil || n == 0 {
				t.Errorf("%s: %d, %v", what, n, err)
			}
		}
	})
}
