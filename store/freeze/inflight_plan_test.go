package freeze_test

import (
	"testing"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// What is in flight is looked up run by run, however long the history is. The test counts pages of the database, not
// time.
func TestRunsInFlightAreCountedWithoutTheHistory(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	AnalysedOrNot(t, func(c Replica) {
		c.Many(100, "due", 0)
		c.Claim(100, false)
		c.Exec(`
			INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, started_at, finished_at, tenant, job_version,
				lane, attempt, status, trigger, fence)
			SELECT (substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7' || substr(gen_random_uuid()::text, 16))::uuid,
			       gen_random_uuid(), now(), now(), now(), now(), $1, 1, 5, 1, 'succeeded', 'manual', 1
			FROM (SELECT lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') AS ms) n,
			     generate_series(1, 40000)`, c.Tenant)
	}, func(t *testing.T, watch Replica) {
		for name, count := range map[string]func(Replica) (int, error){
			"the freeze": func(c Replica) (int, error) {
				state, err := c.Freezes.FreezeState(t.Context(), c.Tenant)
				return state.InFlight, err
			},
			"the queues of a tenant": func(c Replica) (int, error) {
				queues, _, err := c.Fleet.QueueDepths(t.Context(), c.Tenant)
				Must(t, err)
				return queues[0].InFlight, nil
			},
			"the queues": func(c Replica) (int, error) {
				queues, _, err := c.Fleet.QueueDepths(t.Context(), 0)
				Must(t, err)
				return queues[0].InFlight, nil
			},
		} {
			read := watch.PagesRead(`^runs`, func() {
				if n, err := count(watch); err != nil || n != 100 {
					t.Errorf("%s: %d in flight, %v", name, n, err)
				}
			})
			if read > 1500 {
				t.Errorf("%s: %d pages were read", name, read)
			}
		}
	})
}

// The few jobs in a state are found without reading the others.
func TestJobsInAStateAreFoundByIndex(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Clone(t)
	c := OpenReplica(t, dsn)
	c.Many(20_000, "active", -1e15)
	c.Exec(`UPDATE punctual.jobs SET state = 'paused', paused_at = now() WHERE name IN ('active-7', 'active-9')`)
	c.Exec(`UPDATE punctual.schedules s SET completed_at = now(), enabled = false, scheduled_for = NULL, next_run_at = NULL
		FROM punctual.jobs j WHERE j.id = s.job_id AND j.name IN ('active-8', 'active-10', 'active-12')`)
	c.Many(3, "once", -1e15, At(c.Clock()))
	c.Exec(`DELETE FROM punctual.schedules s USING punctual.jobs j WHERE j.id = s.job_id AND j.kind = 'at'`)
	c.Exec(`ANALYZE punctual.jobs, punctual.schedules, punctual.job_versions`)
	watch := c.Reopened(t, dsn)
	for state, want := range map[domain.JobState]int{
		domain.JobPaused: 2, domain.JobCompleted: 6, domain.JobActive: 20,
	} {
		read := watch.PagesRead(`^(jobs|schedules|job_versions)$`, func() {
			list, _, err := watch.Jobs.ListJobs(t.Context(), watch.Tenant, jobs.Filter{State: state, Page: pg.Page{Limit: 20}})
			if err != nil || len(list) != want {
				t.Errorf("%s: %d jobs, %v", state, len(list), err)
			}
		})
		if read > 1000 {
			t.Errorf("%s: %d pages were read", state, read)
		}
	}
}
