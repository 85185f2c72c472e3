package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
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

// The replica that works on an operation is killed. Another one goes on, and each job is changed once.
func TestAPauseOfManyJobsOutlivesItsReplica(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	first := serve(t, dsn)
	const jobs = 300
	var specs []process.JobSpec
	for i := range jobs {
		specs = append(specs, job(fmt.Sprint("job-", i), w.URL+"/hook", process.JobSpec{
			"schedule": map[string]any{"every": "5s"}, "labels": map[string]any{"team": "x"},
		}))
	}
	create(t, first.API, specs...)
	create(t, first.API, job("other", w.URL+"/hook", process.JobSpec{"schedule": map[string]any{"every": "1h"}}))
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
	await(t, "the end of the operation", func() bool {
		o = do[operation](t, second.API, "GET", "/v1/operations/"+o.ID, nil)
		return o.State != "running"
	})
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

// Jobs of every overlap policy fire every second. Meanwhile some clients trigger, cancel and replay their runs, and one
// pauses and resumes all of them. There must be no deadlock, no double and no wedge.
func TestAllJobsArePausedAndResumedWhileEverybodyMeddles(t *testing.T) {
	exhaustive(t, "takes a quarter of a minute")
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	fleet := []*process.Replica{serve(t, dsn), serve(t, dsn), serve(t, dsn)}
	w.Script("/fails", Answer{Status: 404})
	w.Script("/slow", Answer{Delay: 300 * time.Millisecond})
	const jobs = 400
	start := nextSecond(3 * time.Second)
	var specs []process.JobSpec
	for i := range jobs {
		specs = append(specs, job(fmt.Sprint("racer-", i), w.URL+[]string{"/prompt", "/slow", "/fails"}[i%3], process.JobSpec{
			"concurrency_policy": []string{"allow", "forbid", "replace", "wait"}[i%4],
			"schedule": map[string]any{
				"every": "2s", "starts_at": start.UTC().Format(time.RFC3339),
				"ends_at": start.Add(8 * time.Second).UTC().Format(time.RFC3339),
			},
			"retry": map[string]any{"max_attempts": 1},
		}))
	}
	create(t, fleet[0].API, specs...)

	meddling, done := context.WithCancel(t.Context())
	defer done()
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			// A batch holds its jobs until it is committed, which a slow machine may take seconds for: then a caller is told.
			rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
			meddle(meddling, t, fleet[i%len(fleet)].API, rng, jobs, problem.CodeLocked)
		})
	}
	takeTurns(t, fleet[0].API, start.Add(10*time.Second))
	done()
	clients.Wait()
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true})
	if n := query[int](t, connect(t, dsn), `
		SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
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
			o := do[operation](t, api, "POST", "/v1/jobs/"+action, everything)
			await(t, "the end of a "+action+" of all jobs", func() bool {
				o = do[operation](t, api, "GET", "/v1/operations/"+o.ID, nil)
				return o.State != "running"
			})
			if o.State != "done" {
				t.Errorf("%s: %+v", action, o)
			}
		}
	}
}
