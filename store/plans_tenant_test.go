package store

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler/forecast"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Row-level security does not keep reads for a tenant from using indexes.
func TestReadsForATenantScanNoLargeTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	c := openClaimer(t, dsn)
	c.grow()
	c.exec(`UPDATE punctual.jobs SET labels = jsonb_build_object('n', name)`)
	c.exec(`INSERT INTO punctual.audit_log (id, resource_id, job_id, at, tenant, action, actor_kind, name)
		SELECT gen_random_uuid(), id, id, now(), tenant, 'job.create', 'system', name FROM punctual.jobs`)
	c.exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts)
		SELECT id, job_id, tenant, 'x', 1, now(), 'manual', 1 FROM punctual.runs`)
	few := c
	few.tenant = c.theirs("few")
	few.create("often", every(time.Minute))
	c.exec(`ANALYZE`)
	var name string
	var job, run uuid.UUID
	if err := c.db.Pool().QueryRow(t.Context(), `SELECT j.name, j.id, r.id
		FROM punctual.jobs j
		JOIN punctual.runs r ON r.job_id = j.id LIMIT 1`).Scan(&name, &job, &run); err != nil {
		t.Fatal(err)
	}
	c.Close()
	watch := openClaimer(t, dsn)
	before := watch.scans()
	reader := openClaimer(t, dsn)
	ctx := t.Context()
	page := pg.Page{Limit: 20}
	for what, read := range map[string]func() (int, error){
		"jobs": func() (int, error) { l, _, err := reader.ListJobs(ctx, 1, jobs.Filter{Page: page}); return len(l), err },
		"jobs by prefix": func() (int, error) {
			l, _, err := reader.ListJobs(ctx, 1, jobs.Filter{NamePrefix: name, Page: page})
			return len(l), err
		},
		"jobs by label": func() (int, error) {
			l, _, err := reader.ListJobs(ctx, 1, jobs.Filter{Labels: map[string]string{"n": name}, Page: page})
			return len(l), err
		},
		"job by id":   func() (int, error) { _, err := reader.GetJob(ctx, 1, job.String()); return 1, err },
		"job by name": func() (int, error) { _, err := reader.GetJob(ctx, 1, name); return 1, err },
		"runs": func() (int, error) {
			l, _, err := reader.ListRuns(ctx, 1, runs.Filter{Page: page})
			return len(l), err
		},
		"runs of a job": func() (int, error) {
			l, _, err := reader.ListRuns(ctx, 1, runs.Filter{Job: name, Page: page})
			return len(l), err
		},
		"run": func() (int, error) { _, err := reader.GetRun(ctx, 1, run); return 1, err },
		"dead letters": func() (int, error) {
			l, _, err := reader.ListDeadLetters(ctx, 1, letters.DeadLetterFilter{Page: page})
			return len(l), err
		},
		"groups of dead letters": func() (int, error) {
			l, _, err := reader.ListGroups(ctx, 1, letters.DeadLetterFilter{Page: page})
			return len(l), err
		},
		"changes": func() (int, error) {
			l, _, err := reader.Audit.List(ctx, 1, audit.Filter{Page: page})
			return len(l), err
		},
		"changes of a job": func() (int, error) {
			l, _, err := reader.Audit.List(ctx, 1, audit.Filter{Job: name, Page: page})
			return len(l), err
		},
		"a forecast of another tenant, who has few jobs": func() (int, error) {
			now := time.Now()
			f, err := reader.Forecast(ctx, few.tenant, forecast.Window{From: now, To: now.Add(time.Hour), Step: time.Minute})
			return f.Jobs, err
		},
		"an explanation": func() (int, error) {
			_, err := reader.ExplainJob(ctx, 1, name, func(*time.Location) (time.Time, error) { return time.Now(), nil })
			return 1, err
		},
	} {
		if n, err := read(); err != nil || n == 0 {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	reader.Close()
	for table, n := range watch.scans() {
		if n > before[table] {
			t.Errorf("%s was scanned %d times", table, n-before[table])
		}
	}
}
