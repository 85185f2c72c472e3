package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// selectScans counts the sequential scans of the tables that no statement of daily work may scan, once a table has more
// than 45 pages.
const selectScans = `
SELECT relname, seq_scan FROM pg_stat_user_tables
WHERE schemaname = 'punctual' AND pg_relation_size(relid) > 45 * 8192
  AND relname ~ '^(schedules|ready|exclusive|jobs|job_versions|runs_|attempts_|run_data_|audit_log)'`

// planModes are the values of plan_cache_mode under test. By default Postgres chooses between the plans of these two.
var planModes = []string{"force_custom_plan", "force_generic_plan"}

// The test does what a replica and its API do all day long, except the lists of jobs and runs, in all plan modes and
// with several states of the statistics. Postgres counts a sequential scan when it begins, whether or not it reaches
// the table's end.
func TestDailyWorkScansNoLargeTable(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	type state struct {
		name    string
		arrange func(c claimer)
	}
	analyse := func(c claimer) { c.exec(`ANALYZE`) }
	for name, states := range map[string][]state{ // one after the other in one database
		"first never analysed": {
			{"never analysed", claimer.grow},
			{"drained and analysed", func(c claimer) { c.drain(); analyse(c) }},
			{"drained, analysed and full again", claimer.grow},
		},
		"first analysed": {
			{"analysed when empty", func(c claimer) { analyse(c); c.grow() }},
			{"analysed", analyse},
			{"drained", claimer.drain},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Clone(t)
			for _, state := range states {
				t.Run(state.name, func(t *testing.T) {
					c := openClaimer(t, dsn)
					state.arrange(c)
					c.Close()
					watch := openClaimer(t, dsn)
					for _, plans := range planModes {
						watch.wantNoScans("&plan_cache_mode="+plans, claimer.day)
					}
				})
			}
		})
	}
}

// openClaimer opens a database with one connection.
func openClaimer(t *testing.T, dsn string) claimer {
	t.Helper()
	return asClaimer(openCRUD(t, Options{DatabaseURL: dsn, MaxConns: 1}))
}

// analysedOrNot tests a database that was never analysed, and again when it is. To fill it takes longer than the test.
func analysedOrNot(t *testing.T, fill func(c claimer), test func(t *testing.T, watch claimer)) {
	t.Helper()
	t.Parallel()
	dsn := pgtest.Clone(t)
	for _, state := range []struct {
		name    string
		arrange func(c claimer)
	}{{"never analysed", fill}, {"analysed", func(c claimer) { c.exec(`ANALYZE`) }}} {
		t.Run(state.name, func(t *testing.T) {
			c := openClaimer(t, dsn)
			state.arrange(c)
			c.Close() // so that what it read is counted
			test(t, openClaimer(t, dsn))
		})
	}
}

// scans returns how often sessions that have ended scanned each large table. A session reports its statistics when it
// ends.
func (c claimer) scans() map[string]int64 {
	c.t.Helper()
	c.until("the other sessions to end", `SELECT count(*) = 0 FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND application_name <> 'pgtest'`)
	counts, err := pg.Map[string, int64](c.t.Context(), c.DB.Callers, selectScans)
	c.must(err)
	return counts
}

// wantNoScans fails the test if work on a connection of its own, with the given settings, scans a large table.
func (c claimer) wantNoScans(settings string, work func(worker claimer)) {
	c.t.Helper()
	before := c.scans()
	worker := openClaimer(c.t, c.Options.DatabaseURL+settings)
	work(worker)
	worker.Close()
	for table, n := range c.scans() {
		if n > before[table] {
			c.t.Errorf("with %q, %s was scanned %d times", settings, table, n-before[table])
		}
	}
}

// pagesRead counts the pages of tables, whose names match a pattern, that are read on the claimer's only connection.
func (c claimer) pagesRead(tables string, read func()) int {
	c.t.Helper()
	pages := func() int {
		c.exec(`SELECT pg_stat_force_next_flush()`)
		return c.count(`SELECT
				coalesce(sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)), 0)::int
			FROM pg_statio_user_tables
			WHERE schemaname = 'punctual' AND relname ~ $1`, tables)
	}
	before := pages()
	read()
	return pages() - before
}

// grow adds jobs that are due in days, now and ten seconds ago, and runs that wait in ready.
func (c claimer) grow() {
	prefix := "j" + strings.ReplaceAll(uuid.NewString(), "-", "")
	c.many(8000, prefix, -1e15)
	c.many(200, prefix+"-now", 0)
	c.many(2000, prefix+"-ago", 10e9)
	c.exec(`INSERT INTO punctual.exclusive (job_id) SELECT id FROM punctual.jobs LIMIT 3000 ON CONFLICT DO NOTHING`)
	c.exec(`WITH made AS (
			INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger)
			SELECT (substr(punctual.partition_bound((now() AT TIME ZONE 'UTC')::date)::text, 1, 14)
					|| '7' || substr(gen_random_uuid()::text, 16))::uuid,
				id, now(), now(), 1, 1, $1::smallint * 4 + 1, 'pending', 'manual'
			FROM punctual.jobs
			LIMIT 3000
			RETURNING id, job_id, lane),
		data AS (INSERT INTO punctual.run_data (run_id, headers) SELECT id, '{}' FROM made)
		INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT id, job_id, now() + (row_number() OVER () - 100) * interval '1 min', 1, lane
		FROM made`, c.queue)
}

// drain finishes all runs, empties ready and puts the schedules off, and so leaves dead rows.
func (c claimer) drain() {
	c.exec(`UPDATE punctual.schedules SET next_run_at = next_run_at + interval '1 day'`)
	c.exec(`DELETE FROM punctual.ready`)
	c.exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now()`)
}

// day does a little of everything.
func (c claimer) day() {
	c.t.Helper()
	ctx := c.t.Context()
	for range 2 { // a generic plan is made once
		job := c.create("job-" + uuid.NewString())
		c.get(job.Definition.Name)
		c.trigger(job.Definition.Name)
		_, err := c.Claims.NextDue(ctx, scheduler.LookInto{{c.queue}, {c.queue}, {c.queue}, {c.queue}}, false)
		c.must(err)
		var outcomes []domain.Outcome
		for _, b := range []domain.Batch{c.claim(10, false), c.claim(10, true), c.claimReady(10)} {
			for n, a := range b.Runs {
				if n == 0 {
					outcomes = append(outcomes, failed(a))
					continue
				}
				outcomes = append(outcomes, succeeded(a))
			}
		}
		c.finish(outcomes...)
		shot := c.create("shot-"+uuid.NewString(), delay(time.Hour))
		c.complete(shot.ID)
		c.trigger(shot.ID.String())
		c.edit(shot.ID.String(), described("x"))
		c.edit(job.ID.String(), described("x"))
		c.create(shot.Definition.Name)
		_, err = c.Claims.Renew(ctx, c.replica, scheduler.Condition{})
		c.must(err)
		_, err = c.Claims.Recover(ctx, nil)
		must(c.t, err)
	}
}
