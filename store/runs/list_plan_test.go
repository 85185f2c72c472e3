package runs_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/runs"
)

// A list of runs, by any filter, reads only the rows that it shows.
//
// The cost does not depend on the history of other tenants, nor on the tenant's other runs.
//
//prove:data
func TestAPageOfRunsIsReadAsItIsShown(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	yes := true
	AnalysedOrNot(t, Replica.Much, func(t *testing.T, watch Replica) {
		job := Value[uuid.UUID](watch.Fixture, `SELECT job_id FROM punctual.runs LIMIT 1`) // that of all the runs
		workflow := Value[uuid.UUID](watch.Fixture, `SELECT parent_run FROM punctual.runs WHERE step = 's7' LIMIT 1`)
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
			n := watch.PagesRead(`^(runs_|ready$|claims$)`, func() {
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
