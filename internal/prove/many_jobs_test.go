//prove:claims

package prove

import (
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// changedOnce counts the jobs that were paused exactly once, by their versions and by the audit log.
const changedOnce = `
SELECT count(*) FROM punctual.jobs j
WHERE state = 'paused' AND version = 2
  AND 1 = (SELECT count(*) FROM punctual.audit_log a WHERE a.job_id = j.id AND a.action = 'job.pause')`

// kill -9 of the replica that pauses many jobs. Each job is changed once.
func TestAPauseOfManyJobsOutlivesItsReplica(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	first := serve(t, dsn)
	const jobs = 300
	create(t, first.API, many(jobs, "job", w.URL+"/hook", process.JobSpec{
		"schedule": every("5s"),
		"labels":   map[string]any{"team": "x"},
	})...)
	create(t, first.API, job("other", w.URL+"/hook", process.JobSpec{"schedule": every("1h")}))
	o := do[operation](t, first.API, "POST", "/v1/jobs/pause", map[string]any{
		"filter": map[string]any{"labels": map[string]any{"team": "x"}}, "max_per_second": 200,
	})
	if o.Matched != jobs {
		t.Errorf("%d jobs, want %d", o.Matched, jobs)
	}
	conn := connect(t, dsn)
	await(t, "the first batch", func() bool {
		return query[int](t, conn, `SELECT done FROM punctual.operations`) > 0
	})
	first.Kill()
	if n := query[int](t, conn, `SELECT done FROM punctual.operations`); n == jobs {
		t.Error("the operation was over before its replica was killed")
	}
	second := serve(t, dsn)
	o = finished(t, second.API, o.ID)
	if o.State != "done" || o.Done != jobs || o.Failed != 0 {
		t.Errorf("%+v", o)
	}
	if n := query[int](t, conn, changedOnce); n != jobs {
		t.Errorf("%d of %d jobs were changed once", n, jobs)
	}
	verify(t, atRest(t, dsn, w), Conditions{})
	proven(t, dsn)
	stop(t, second)
}

// 400 firing jobs are paused and resumed, among triggers, cancels and replays. Nothing deadlocks, doubles or is stuck.
//
// All of them, again and again. They are of every overlap policy.
func TestAllJobsArePausedAndResumedWhileEverybodyMeddles(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	const jobs = 400
	start := nextSecond(3 * time.Second)
	create(t, fleet[0].API, racers(w, jobs, process.JobSpec{
		"schedule": everyUntil("2s", start, start.Add(8*time.Second)),
		"retry":    map[string]any{"max_attempts": 1},
	})...)

	// A batch holds its jobs until it is committed, which a slow machine may take seconds for: then a caller is told.
	done := meddlers(t, 4, fleet, jobs, problem.CodeLocked)
	takeTurns(t, fleet[0].API, start.Add(10*time.Second))
	done()
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true})
	noDeadlock(t, connect(t, dsn))
	neverSaid(t, "a tick failed", fleet...)
	neverSaid(t, "operations failed", fleet...)
	stop(t, fleet...)
}

// takeTurns pauses all jobs and resumes them, again and again, until the given time, and three times at least.
func takeTurns(t *testing.T, api *client.Client, until time.Time) {
	t.Helper()
	everything := map[string]any{"filter": map[string]any{"name": "racer-"}}
	for turns := 0; turns < 3 || time.Now().Before(until); turns++ {
		for _, action := range []string{"pause", "resume"} {
			o := finished(t, api, do[operation](t, api, "POST", "/v1/jobs/"+action, everything).ID)
			if o.State != "done" {
				t.Errorf("%s: %+v", action, o)
			}
		}
	}
}
