package overview_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// The overview, and what goes with it, reads by index, whatever the statistics are. So does the counting of hours.
func TestTheOverviewScansNoLargeTable(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	var job uuid.UUID
	AnalysedOrNot(t, func(c Replica) {
		c.Grow()
		job = Value[uuid.UUID](c.Fixture, `SELECT job_id FROM punctual.runs LIMIT 1`)
		c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
				attempts, resolved_at)
			SELECT id, job_id, tenant, 'x', 1, now(), 'manual', 1, CASE WHEN ascii(right(id::text, 1)) % 2 = 0 THEN now() END
			FROM punctual.runs`)
		c.Exec(`INSERT INTO punctual.hourly_runs (hour, tenant, round, succeeded, dead, cancelled, skipped, unended, lateness)
			SELECT date_trunc('hour', now(), 'UTC') - h * interval '1 hour', i, 1, 1, 0, 0, 0, 0, array_fill(1, ARRAY[60])
			FROM generate_series(0, 30) h, generate_series(2, 300) i`)
	}, func(t *testing.T, watch Replica) {
		const rest = `SELECT coalesce(sum(seq_scan), 0)::int
			FROM pg_stat_user_tables
			WHERE relname IN ('dead_letters', 'hourly_runs')`
		watch.Scans() // it waits for the other sessions to end
		before := watch.Count(rest)
		for _, plans := range PlanModes {
			watch.WantNoScans("&plan_cache_mode="+plans, func(reader Replica) {
				for range 2 { // a generic plan is made once
					lookAround(reader, job)
				}
			})
		}
		if n := watch.Count(rest) - before; n > 0 {
			t.Errorf("dead letters or counted hours were scanned %d times", n)
		}
	})
}

// lookAround reads what a first page shows, and counts an hour.
func lookAround(c Replica, job uuid.UUID) {
	c.T.Helper()
	ctx := c.T.Context()
	check := func(n int, err error) {
		c.T.Helper()
		if err != nil || n == 0 {
			c.T.Fatalf("%d, %v", n, err)
		}
	}
	c.Exec(`UPDATE punctual.counted_hours SET next_at = now() - interval '1 s'`)
	batches := 0
	for left := true; left && batches < 50; batches++ {
		_, more, err := c.Overview.CountHours(ctx)
		check(1, err)
		left = more
	}
	check(batches/24, nil)
	f, err := c.Overview.Overview(ctx, 1)
	check(min(f.Overdue.Slots, len(f.Failing.Jobs), len(f.Day.Hours)), err)
	failing, err := c.Overview.FailingJobs(ctx, 1)
	check(len(failing), err)
	overdue, err := c.Overview.OverdueJobs(ctx, 1)
	check(len(overdue), err)
	page := pg.Page{Limit: 50}
	for _, among := range [][]uuid.UUID{nil, failing, overdue} {
		list, _, err := c.Jobs.ListJobs(ctx, 1, jobs.Filter{Among: among, Recent: 20, Page: page})
		check(len(list), err)
	}
	stats, err := c.Runs.JobStats(ctx, 1, job.String())
	check(1+stats.Runs, err)
	_, _, err = c.ForgetOld(ctx, "hourly_runs")
	check(1, err)
	if time.Since(f.AsOf) > time.Hour {
		c.T.Errorf("as of %s", f.AsOf)
	}
}
