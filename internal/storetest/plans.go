package storetest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/claim"
	"punctual/store/pg"
)

// Plan is a node of EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON).
type Plan struct {
	Node     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Compared float64 `json:"Rows Removed by Join Filter"`
	InVain   float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []Plan
}

// Scans returns the kinds of nodes that read a relation in the plan.
func (p Plan) Scans(relation string) (nodes []string) {
	if p.Relation == relation {
		nodes = append(nodes, p.Node)
	}
	for _, child := range p.Plans {
		nodes = append(nodes, child.Scans(relation)...)
	}
	return nodes
}

// AllCompared returns how many pairs of rows the joins of the plan have compared in vain.
func (p Plan) AllCompared() float64 {
	all := p.Compared * max(1, p.Loops)
	for _, child := range p.Plans {
		all += child.AllCompared()
	}
	return all
}

// Explain runs a statement, returns its plan with the pages that it read, and rolls its changes back.
func (c Replica) Explain(sql string, args ...any) Plan {
	c.T.Helper()
	var raw []byte
	err := c.DB.Callers.InTx(c.T.Context(), pg.Everybody, func(tx *pg.Tx) error {
		if err := tx.QueryRow(c.T.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&raw); err != nil {
			return err
		}
		return tx.Rollback(c.T.Context())
	})
	var plans []struct{ Plan Plan }
	if raw == nil {
		c.T.Fatal(err)
	}
	if err := json.Unmarshal(raw, &plans); err != nil || len(plans) != 1 {
		c.T.Fatalf("%d plans, error %v", len(plans), err)
	}
	return plans[0].Plan
}

// ExplainClaim runs the statement that locks the rows of a claim.
func (c Replica) ExplainClaim(of scheduler.Claim) Plan {
	c.T.Helper()
	sql, arguments := claim.Locking(of)
	return c.Explain(sql, arguments[1:]...) // without the argument that has it prepared, because the text is another one
}

// Fill makes n rows of schedules without their jobs. Every tenth has been due for 2 s; row i of the others is due in i
// seconds.
func (c Replica) Fill(n int) {
	c.T.Helper()
	c.Exec(`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
		SELECT gen_random_uuid(), at, at, 1, 1, $2::smallint * 4 + 1, true
		FROM (SELECT now() + CASE WHEN i % 10 = 0 THEN interval '-2 s' ELSE i * interval '1 s' END AS at
			FROM generate_series(1, $1::int) i) s`, n, c.Queue)
}

// selectScans counts the sequential scans of the tables that no statement of daily work may scan, once a table has more
// than 45 pages.
const selectScans = `
SELECT relname, seq_scan FROM pg_stat_user_tables
WHERE schemaname = 'punctual' AND pg_relation_size(relid) > 45 * 8192
  AND relname ~ '^(schedules|ready|exclusive|jobs|job_versions|runs_|attempts_|run_data_|audit_log)'`

// PlanModes are the values of plan_cache_mode under test. By default Postgres chooses between the plans of these two.
var PlanModes = []string{"force_custom_plan", "force_generic_plan"}

// OpenReplica opens a database with one connection.
func OpenReplica(t *testing.T, dsn string) Replica {
	t.Helper()
	return AsReplica(OpenFixture(t, store.Options{DatabaseURL: dsn, MaxConns: 1}))
}

// AnalysedOrNot tests a database that was never analysed, and again when it is. To fill it takes longer than the test.
func AnalysedOrNot(t *testing.T, fill func(c Replica), test func(t *testing.T, watch Replica)) {
	t.Helper()
	t.Parallel()
	dsn := pgtest.Clone(t)
	for _, state := range []struct {
		name    string
		arrange func(c Replica)
	}{{"never analysed", fill}, {"analysed", func(c Replica) { c.Exec(`ANALYZE`) }}} {
		t.Run(state.name, func(t *testing.T) {
			c := OpenReplica(t, dsn)
			state.arrange(c)
			test(t, c.Reopened(t, dsn))
		})
	}
}

// Reopened ends a replica, and opens its database again once all that it has read is counted.
func (c Replica) Reopened(t *testing.T, dsn string) Replica {
	t.Helper()
	c.Close()
	again := OpenReplica(t, dsn)
	again.awaitOthers()
	return again
}

// awaitOthers waits until the other sessions have ended. Only then all that they read is counted.
func (c Replica) awaitOthers() {
	c.T.Helper()
	c.Until("the other sessions to end", `SELECT count(*) = 0 FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND application_name <> 'pgtest'`)
}

// Scans returns how often sessions that have ended scanned each large table. A session reports its statistics when it
// ends.
func (c Replica) Scans() map[string]int64 {
	c.T.Helper()
	c.awaitOthers()
	counts, err := pg.Map[string, int64](c.T.Context(), c.DB.Callers, selectScans)
	c.Must(err)
	return counts
}

// WantNoScans fails the test if work on a connection of its own, with the given settings, scans a large table.
func (c Replica) WantNoScans(settings string, work func(worker Replica)) {
	c.T.Helper()
	before := c.Scans()
	worker := OpenReplica(c.T, c.Options.DatabaseURL+settings)
	work(worker)
	worker.Close()
	for table, n := range c.Scans() {
		if n > before[table] {
			c.T.Errorf("with %q, %s was scanned %d times", settings, table, n-before[table])
		}
	}
}

// PagesRead counts the pages of tables, whose names match a pattern, that are read on the replica's only connection.
func (c Replica) PagesRead(tables string, read func()) int {
	c.T.Helper()
	pages := func() int {
		c.Exec(`SELECT pg_stat_force_next_flush()`)
		return c.Count(`SELECT
				coalesce(sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)), 0)::int
			FROM pg_statio_user_tables
			WHERE schemaname = 'punctual' AND relname ~ $1`, tables)
	}
	before := pages()
	read()
	return pages() - before
}

// Grow adds jobs that are due in days, now and ten seconds ago, and runs that wait in ready.
func (c Replica) Grow() {
	prefix := "j" + strings.ReplaceAll(uuid.NewString(), "-", "")
	c.Many(8000, prefix, -1e15)
	c.Many(200, prefix+"-now", 0)
	c.Many(2000, prefix+"-ago", 10e9)
	c.Exec(`INSERT INTO punctual.exclusive (job_id) SELECT id FROM punctual.jobs LIMIT 3000 ON CONFLICT DO NOTHING`)
	c.Exec(`WITH made AS (
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
		FROM made`, c.Queue)
}

// Drain finishes all runs, empties ready and puts the schedules off, and so leaves dead rows.
func (c Replica) Drain() {
	c.Exec(`UPDATE punctual.schedules SET next_run_at = next_run_at + interval '1 day'`)
	c.Exec(`DELETE FROM punctual.ready`)
	c.Exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now()`)
}

// Day does a little of everything.
func (c Replica) Day() {
	c.T.Helper()
	ctx := c.T.Context()
	for range 2 { // a generic plan is made once
		job := c.Create("job-" + uuid.NewString())
		c.Get(job.Definition.Name)
		c.Trigger(job.Definition.Name)
		_, err := c.Claims.NextDue(ctx, scheduler.LookInto{{c.Queue}, {c.Queue}, {c.Queue}, {c.Queue}}, false)
		c.Must(err)
		var outcomes []domain.Outcome
		for _, b := range []domain.Batch{c.Claim(10, false), c.Claim(10, true), c.ClaimReady(10)} {
			for n, a := range b.Runs {
				if n == 0 {
					outcomes = append(outcomes, Failed(a))
					continue
				}
				outcomes = append(outcomes, Succeeded(a))
			}
		}
		c.Finish(outcomes...)
		shot := c.Create("shot-"+uuid.NewString(), Delay(time.Hour))
		c.Complete(shot.ID)
		c.Trigger(shot.ID.String())
		c.Edit(shot.ID.String(), Described("x"))
		c.Edit(job.ID.String(), Described("x"))
		c.Create(shot.Definition.Name)
		_, err = c.Replicas.Renew(ctx, c.ReplicaID, scheduler.Condition{})
		c.Must(err)
		_, err = c.Replicas.Recover(ctx, nil)
		Must(c.T, err)
	}
}

// Much writes a long history: 60,000 succeeded runs of the first tenant on two days, as many runs of steps, and one run
// of each rare kind, of slots at the beginning of these days. Two rows were made later than their slots of yesterday: a
// replay, and a skip that begins yesterday and ends today. A second tenant has no runs.
func (c Replica) Much() {
	c.T.Helper()
	const id = `(substr(punctual.partition_bound((now() AT TIME ZONE 'UTC')::date - i % 2)::text, 1, 14)
		|| '7' || substr(gen_random_uuid()::text, 16))::uuid`
	const slot = `((now() AT TIME ZONE 'UTC')::date - i % 2)::timestamp AT TIME ZONE 'UTC'`
	c.Exec(`INSERT INTO punctual.tenants (name) VALUES ('second')`)
	c.Many(100, "j", -1e15)
	c.Exec(`UPDATE punctual.jobs SET labels = '{"rare": "yes"}' WHERE name = 'j1'`)
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			status, trigger)
		SELECT ` + id + `, (SELECT id FROM punctual.jobs LIMIT 1), ` + slot + `, now(), now(), 1, 1, 5, 'succeeded',
			'schedule'
		FROM generate_series(1, 60000) i`)
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, fence, tenant, job_version,
			lane, status, reason, trigger, late)
		SELECT `+id+`, (SELECT id FROM punctual.jobs LIMIT 1), `+slot+`, now(),
			CASE WHEN u.status IN ('succeeded', 'dead', 'skipped', 'cancelled') THEN now() END,
			1, 1, 1, $1::smallint * 4 + 1, u.status, u.reason, u.trigger, u.late
		FROM (VALUES
			(1, 'dead', 'poison', 'schedule', false), (2, 'skipped', 'missed', 'schedule', false),
			(3, 'cancelled', 'replaced', 'schedule', false), (4, 'pending', NULL, 'manual', false),
			(5, 'running', NULL, 'schedule', false), (6, 'retrying', 'http_5xx', 'schedule', false),
			(7, 'succeeded', NULL, 'backfill', false), (8, 'succeeded', NULL, 'schedule', true))
			u(i, status, reason, trigger, late)`, c.Queue)
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, skipped_first, skipped_last,
			tenant, job_version, lane, status, reason, trigger)
		SELECT ` + id + `, (SELECT id FROM punctual.jobs LIMIT 1), u.slot, u.slot, now(), u.first, u.slot, 1, 1, 5,
			u.status, u.reason, u.trigger
		FROM (SELECT 0 AS i, date_trunc('day', now(), 'UTC') AS day) d,
			LATERAL (VALUES
				(day - interval '20 hours', NULL, 'succeeded', NULL, 'replay'),
				(day + interval '1 hour', day - interval '20 hours', 'skipped', 'paused', 'schedule'))
				u(slot, first, status, reason, trigger)`)
	// Workflows of 20 steps, one in 9 seconds of yesterday's evening. A step's id has the milliseconds of its workflow's.
	c.Exec(`INSERT INTO punctual.runs (id, job_id, parent_run, step, scheduled_for, due_at, finished_at, tenant,
			job_version, lane, status, trigger)
		SELECT (at.ms || to_char(s, 'FM8000') || substr(gen_random_uuid()::text, 19))::uuid, j.id,
			CASE WHEN s > 0 THEN (at.ms || '8000' || '-8000-000000000000')::uuid END, CASE WHEN s > 0 THEN 's' || s END,
			w.slot, now(), now(), 1, 1, 5, 'succeeded', CASE WHEN s > 0 THEN 'step' ELSE 'schedule' END
		FROM (SELECT id FROM punctual.jobs LIMIT 1) j,
			(SELECT i, date_trunc('day', now(), 'UTC') - i * interval '9 s' AS slot FROM generate_series(1, 3000) i) w,
			LATERAL (SELECT regexp_replace(lpad(to_hex((extract(epoch FROM w.slot) * 1000)::bigint), 12, '0'),
				'(.{8})(.{4})', '\1-\2-') AS ms) at,
			generate_series(0, 20) s`)
	c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT id, job_id, now(), tenant, lane
		FROM punctual.runs
		WHERE status IN ('pending', 'retrying')`)
	c.Exec(`INSERT INTO punctual.claims (id, replica, run_ids)
		SELECT gen_random_uuid(), gen_random_uuid(), array_agg(id)
		FROM punctual.runs
		WHERE status = 'running'`)
}
