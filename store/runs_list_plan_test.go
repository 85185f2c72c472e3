package store

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/store/runs"
)

// much writes a long history: 60,000 succeeded runs of the first tenant on two days, as many runs of steps, and one run
// of each rare kind, of slots at the beginning of these days. Two rows were made later than their slots of yesterday: a
// replay, and a skip that begins yesterday and ends today. A second tenant has no runs.
func (c claimer) much() {
	c.t.Helper()
	const id = `(substr(punctual.partition_bound((now() AT TIME ZONE 'UTC')::date - i % 2)::text, 1, 14)
		|| '7' || substr(gen_random_uuid()::text, 16))::uuid`
	const slot = `((now() AT TIME ZONE 'UTC')::date - i % 2)::timestamp AT TIME ZONE 'UTC'`
	c.exec(`INSERT INTO punctual.tenants (name) VALUES ('second')`)
	c.many(100, "j", -1e15)
	c.exec(`UPDATE punctual.jobs SET labels = '{"rare": "yes"}' WHERE name = 'j1'`)
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			status, trigger)
		SELECT ` + id + `, (SELECT id FROM punctual.jobs LIMIT 1), ` + slot + `, now(), now(), 1, 1, 5, 'succeeded',
			'schedule'
		FROM generate_series(1, 60000) i`)
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, fence, tenant, job_version,
			lane, status, reason, trigger, late)
		SELECT `+id+`, (SELECT id FROM punctual.jobs LIMIT 1), `+slot+`, now(),
			CASE WHEN u.status IN ('succeeded', 'dead', 'skipped', 'cancelled') THEN now() END,
			1, 1, 1, $1::smallint * 4 + 1, u.status, u.reason, u.trigger, u.late
		FROM (VALUES
			(1, 'dead', 'poison', 'schedule', false), (2, 'skipped', 'missed', 'schedule', false),
			(3, 'cancelled', 'replaced', 'schedule', false), (4, 'pending', NULL, 'manual', false),
			(5, 'running', NULL, 'schedule', false), (6, 'retrying', 'http_5xx', 'schedule', false),
			(7, 'succeeded', NULL, 'backfill', false), (8, 'succeeded', NULL, 'schedule', true))
			u(i, status, reason, trigger, late)`, c.queue)
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, skipped_first, skipped_last,
			tenant, job_version, lane, status, reason, trigger)
		SELECT ` + id + `, (SELECT id FROM punctual.jobs LIMIT 1), u.slot, u.slot, now(), u.first, u.slot, 1, 1, 5,
			u.status, u.reason, u.trigger
		FROM (SELECT 0 AS i, date_trunc('day', now(), 'UTC') AS day) d,
			LATERAL (VALUES
				(day - interval '20 hours', NULL, 'succeeded', NULL, 'replay'),
				(day + interval '1 hour', day - interval '20 hours', 'skipped', 'paused', 'schedule'))
				u(slot, first, status, reason, trigger)`)
	// Workflows of 20 steps, one in 9 seconds of yesterday's evening. A step's id has the milliseconds of its workflow's.
	c.exec(`INSERT INTO punctual.runs (id, job_id, parent_run, step, scheduled_for, due_at, finished_at, tenant,
			job_version, lane, status, trigger)
		SELECT (at.ms || to_char(s, 'FM8000') || substr(gen_random_uuid()::text, 19))::uuid, j.id,
			CASE WHEN s > 0 THEN (at.ms || '8000' || '-8000-000000000000')::uuid END, CASE WHEN s > 0 THEN 's' || s END,
			w.slot, now(), now(), 1, 1, 5, 'succeeded', CASE WHEN s > 0 THEN 'step' ELSE 'schedule' END
		FROM (SELECT id FROM punctual.jobs LIMIT 1) j,
			(SELECT i, date_trunc('day', now(), 'UTC') - i * interval '9 s' AS slot FROM generate_series(1, 3000) i) w,
			LATERAL (SELECT regexp_replace(lpad(to_hex((extract(epoch FROM w.slot) * 1000)::bigint), 12, '0'),
				'(.{8})(.{4})', '\1-\2-') AS ms) at,
			generate_series(0, 20) s`)
	c.exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT id, job_id, now(), tenant, lane
		FROM punctual.runs
		WHERE status IN ('pending', 'retrying')`)
	c.exec(`INSERT INTO punctual.claims (id, replica, run_ids)
		SELECT gen_random_uuid(), gen_random_uuid(), array_agg(id)
		FROM punctual.runs
		WHERE status = 'running'`)
}

// The cost of a page of runs depends on the length of the page. It does not depend on the history of other tenants, nor
// on the tenant's other runs.
func TestAPageOfRunsIsReadAsItIsShown(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	yes := true
	analysedOrNot(t, claimer.much, func(t *testing.T, watch claimer) {
		job := value[uuid.UUID](watch.crud, `SELECT job_id FROM punctual.runs LIMIT 1`) // that of all the runs
		workflow := value[uuid.UUID](watch.crud, `SELECT parent_run FROM punctual.runs WHERE step = 's7' LIMIT 1`)
		yesterday := time.Now().UTC().Truncate(24 * time.Hour).Add(-24 * time.Hour)
		morning, afternoon := yesterday.Add(3*time.Hour), yesterday.Add(15*time.Hour)
		for _, tt := range []struct {
			name   string
			filter runs.Filter
			runs   int // how many runs the first tenant sees
		}{
			{"no filter", runs.Filter{}, 20},
			{"status succeeded", runs.Filter{Status: domain.StatusSucceeded}, 20},
			{"status dead", runs.Filter{Status: domain.StatusDead}, 1},
			{"status skipped", runs.Filter{Status: domain.StatusSkipped}, 2},
			{"status cancelled", runs.Filter{Status: domain.StatusCancelled}, 1},
			{"status pending", runs.Filter{Status: domain.StatusPending}, 1},
			{"status running", runs.Filter{Status: domain.StatusRunning}, 1},
			{"status retrying", runs.Filter{Status: domain.StatusRetrying}, 1},
			{"a reason", runs.Filter{Reason: domain.ReasonPoison}, 1},
			{"a reason that there is none of", runs.Filter{Reason: domain.ReasonGone}, 0},
			{"a reason and a status", runs.Filter{Reason: domain.ReasonPoison, Status: domain.StatusDead}, 1},
			{"a trigger", runs.Filter{Trigger: domain.TriggerBackfill}, 1},
			{"steps", runs.Filter{Trigger: domain.TriggerStep}, 20},
			{"the steps of a workflow", runs.Filter{Workflow: &workflow}, 20},
			{"late", runs.Filter{Late: &yes}, 1},
			{"a job, dead", runs.Filter{JobID: &job, Status: domain.StatusDead}, 1},
			{"a job, skipped", runs.Filter{JobID: &job, Status: domain.StatusSkipped}, 2},
			{"a job, pending", runs.Filter{JobID: &job, Status: domain.StatusPending}, 1},
			{"a job, running", runs.Filter{JobID: &job, Status: domain.StatusRunning}, 1},
			{"a job, a reason that there is none of", runs.Filter{JobID: &job, Reason: domain.ReasonGone}, 0},
			{"before all", runs.Filter{To: &yesterday}, 0},
			{"yesterday", runs.Filter{From: &yesterday, To: &afternoon}, 20},
			{"a morning without slots", runs.Filter{From: &morning, To: &afternoon}, 2},
			{"a job, a morning without slots", runs.Filter{JobID: &job, From: &morning, To: &afternoon}, 2},
			{"paused, a morning", runs.Filter{Reason: domain.ReasonPaused, From: &morning, To: &afternoon}, 1},
			{"skipped, a morning", runs.Filter{Status: domain.StatusSkipped, From: &morning, To: &afternoon}, 1},
			{"running, a morning", runs.Filter{Status: domain.StatusRunning, From: &morning, To: &afternoon}, 0},
			{"a job", runs.Filter{JobID: &job}, 20},
			{"a job, succeeded", runs.Filter{JobID: &job, Status: domain.StatusSucceeded}, 20},
		} {
			// Unfinished runs are found by ready and claims.
			n := watch.pagesRead(`^(runs_|ready$|claims$)`, func() {
				tt.filter.Limit = 20
				for tenant, want := range map[int32]int{1: tt.runs, 2: 0} {
					runs, _, err := watch.Runs.ListRuns(t.Context(), tenant, tt.filter)
					if err != nil || len(runs) != want {
						t.Errorf("%s: tenant %d has %d runs, want %d (%v)", tt.name, tenant, len(runs), want, err)
					}
				}
			})
			if n > 1000 {
				t.Errorf("%s: %d pages were read", tt.name, n)
			}
		}
	})
}
