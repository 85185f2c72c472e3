//prove:chains

package prove

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/scheduler/failpoint"
	"punctual/store/runs"
)

// diamond is a workflow of four steps, with one that runs whatever becomes of the others.
func diamond(name, url string, more process.JobSpec) process.JobSpec {
	step := func(name string, on ...string) map[string]any {
		return map[string]any{"name": name, "target": map[string]any{"url": url + "/" + name}, "depends_on": on}
	}
	last := step("last", "join")
	last["when"] = "ended"
	spec := process.JobSpec{
		"name":  name,
		"steps": []any{step("first"), step("left", "first"), step("right", "first"), step("join", "left", "right"), last},
		"retry": map[string]any{"max_attempts": 6, "initial_backoff": "200ms", "multiplier": 1, "max_backoff": "1s"},
	}
	for field, value := range more {
		spec[field] = value
	}
	return spec
}

// kill -9 at each step by which a workflow continues. Each of its steps is done once.
//
// A workflow of five, killed at each of the first five times.
func TestADiamondSurvivesAKillAtEachStep(t *testing.T) {
	t.Parallel()
	points := []failpoint.Point{failpoint.ReadyCommitted, failpoint.FinishBegun, failpoint.FinishCommitted}
	for _, point := range append(points, workflowPoints()...) {
		for nth := 1; nth <= 5; nth++ {
			if nth > 1 && (point == failpoint.WorkflowWritten || point == failpoint.WorkflowLooked) {
				continue // most steps need no chore
			}
			t.Run(fmt.Sprint(point, ":", nth), func(t *testing.T) {
				t.Parallel()
				dsn, w := pgtest.DSN(t), newWitness(t)
				victim := fatal(t, dsn, point, nth, "kill")
				create(t, victim.API, diamond("diamond", w.URL, nil))
				last(t, victim, "/v1/jobs/diamond/trigger", nil)
				if code := ended(t, "the replica that runs the workflow", victim.Process); code != -1 {
					t.Fatalf("exit code %d", code)
				}
				survivor := serve(t, dsn)
				f := atRest(t, dsn, w)
				verify(t, f, Conditions{})
				for _, r := range f.Runs {
					if r.Status != "succeeded" {
						t.Errorf("run %s of step %q is %s (%s)", r.ID, r.Step, r.Status, r.Reason)
					}
				}
				if len(f.Runs) != 6 {
					t.Errorf("%d runs, want that of the workflow and five of steps", len(f.Runs))
				}
				proven(t, dsn)
				stop(t, survivor)
			})
		}
	}
}

// kill -9 while an approval decision is written or answered. It counts once.
func TestADecisionCountsOnceThoughItsReplicaDies(t *testing.T) {
	t.Parallel()
	for _, point := range []failpoint.Point{failpoint.CallbackLocked, failpoint.CallbackCommitted} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			dsn, w := pgtest.DSN(t), newWitness(t)
			victim := fatal(t, dsn, point, 1, "kill")
			flow := diamond("approved", w.URL, nil)
			step := flow["steps"].([]any)[1].(map[string]any)
			delete(step, "target")
			step["approval"] = map[string]any{}
			create(t, victim.API, flow)
			run := do[runs.Run](t, victim.API, "POST", "/v1/jobs/approved/trigger", nil)
			conn, path := connect(t, dsn), "/v1/runs/"+run.ID.String()+"/approve"
			await(t, "a step to wait for approval", func() bool {
				return query[bool](t, conn, `SELECT EXISTS (SELECT FROM punctual.ready WHERE waits = 'person')`)
			})
			if _, err := victim.API.Do(t.Context(), "POST", path, nil, nil); err == nil {
				t.Error("the replica that dies has answered")
			}
			survivor := serve(t, dsn)
			status, err := survivor.API.Do(t.Context(), "POST", path, nil, nil)
			if committed := point == failpoint.CallbackCommitted; committed != (status == http.StatusConflict) {
				t.Errorf("the second decision is answered %d, %v", status, err)
			}
			f := atRest(t, dsn, w)
			verify(t, f, Conditions{})
			if n := query[int](t, conn, `
				SELECT count(*) FILTER (WHERE status = 'succeeded') + 100 * (
				    SELECT count(*) FROM punctual.audit_log WHERE action = 'run.approve')
				FROM punctual.runs`); n != 106 {
				t.Errorf("of the workflow and its five steps %d have succeeded, after %d decisions", n%100, n/100)
			}
			proven(t, dsn)
			stop(t, survivor)
		})
	}
}

func workflowPoints() []failpoint.Point {
	return slices.DeleteFunc(slices.Clone(failpoint.Points), func(p failpoint.Point) bool {
		return !strings.HasPrefix(string(p), "workflow-")
	})
}

// A workflow of fifty steps measures the time from a step's end to the next request.
//
//prove:other
func TestAChainOfFiftyStepsOnAnIdleReplica(t *testing.T) {
	t.Parallel()
	const steps = 50
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	var list []any
	for i := range steps {
		step := map[string]any{"name": fmt.Sprint("s", i), "target": map[string]any{"url": fmt.Sprint(w.URL, "/s", i)}}
		if i > 0 {
			step["depends_on"] = []string{fmt.Sprint("s", i-1)}
		}
		list = append(list, step)
	}
	create(t, r.API, process.JobSpec{"name": "steps", "steps": list})
	do[any](t, r.API, "POST", "/v1/jobs/steps/trigger", nil)
	f := atRest(t, dsn, w)
	var median, slowest time.Duration
	must(t, connect(t, dsn).QueryRow(t.Context(), `
		SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took), max(took)
		FROM (SELECT started_at - lag(finished_at) OVER (ORDER BY started_at) AS took
		      FROM punctual.runs WHERE step IS NOT NULL) steps`).Scan(&median, &slowest))
	t.Logf("from the end of a step to the next request: median %s, slowest %s", median, slowest)
	verify(t, f, Conditions{})
	proven(t, dsn)
}

// A cancel of a workflow reaches its requests, also on other replicas.
func TestACancelOfAWorkflowReachesItsSteps(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	w.Script("/left", Answer{Hang: true, Delay: patience})
	first, second := serve(t, dsn), serve(t, dsn)
	create(t, first.API, diamond("diamond", w.URL, nil))
	run := do[runs.Run](t, first.API, "POST", "/v1/jobs/diamond/trigger", nil)
	await(t, "a step to hang", func() bool { return len(w.At("/left")) == 1 && len(w.At("/right")) == 1 })
	do[any](t, second.API, "POST", "/v1/runs/"+run.ID.String()+"/cancel", nil)
	f := atRest(t, dsn, w)
	want := map[string]string{"": "cancelled", "first": "succeeded", "left": "cancelled", "right": "succeeded"}
	for _, r := range f.Runs {
		if want := want[r.Step]; r.Status != want {
			t.Errorf("run %s of step %q is %s, want %s", r.ID, r.Step, r.Status, want)
		}
	}
	proven(t, dsn)
	stop(t, first)
	stop(t, second)
}
