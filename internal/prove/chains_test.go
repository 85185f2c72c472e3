//prove:chains

package prove

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
	"punctual/scheduler/failpoint"
)

// kill -9 as the end of a run that triggers another is written. The other is triggered once.
//
// Before, while and after it is written, as a finish and as a callback.
func TestAKillAtTheEndOfARunThatTriggersLosesNothing(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		point failpoint.Point
		nth   int
	}{
		{failpoint.CallbackLocked, 1}, {failpoint.ChainWritten, 1}, {failpoint.CallbackCommitted, 1}, // the end of load
		{failpoint.FinishBegun, 2}, {failpoint.ChainWritten, 2}, {failpoint.FinishCommitted, 2}, // the end of check
	} {
		t.Run(fmt.Sprint(at.point, ":", at.nth), func(t *testing.T) {
			t.Parallel()
			dsn, w := pgtest.DSN(t), newWitness(t)
			w.Script(longPath, Answer{Status: 202})
			var serving atomic.Pointer[process.Replica]
			work(t, w, func() []*process.Replica { return []*process.Replica{serving.Load()} })
			victim := fatal(t, dsn, at.point, at.nth, "kill")
			serving.Store(victim)
			next := func(name string) process.JobSpec {
				return process.JobSpec{"completion": "async", "then": []map[string]any{{"job": name, "when": "ended"}}}
			}
			create(t, victim.API, job("report", w.URL+"/report", process.JobSpec{}))
			check := next("report")
			delete(check, "completion")
			create(t, victim.API, job("check", w.URL+"/check", check))
			create(t, victim.API, job("load", w.URL+longPath, next("check")))
			last(t, victim, "/v1/jobs/load/trigger", nil)
			if code := ended(t, "the replica that ends a run", victim.Process); code != -1 {
				t.Fatalf("exit code %d", code)
			}
			survivor := serve(t, dsn)
			serving.Store(survivor)
			await(t, "the last request", func() bool { return len(w.At("/report")) > 0 })
			atRest(t, dsn, w)
			if got := query[string](t, connect(t, dsn), `
				SELECT string_agg(job || ' ' || status, ', ' ORDER BY id) FROM punctual.run_history`,
			); got != "load succeeded, check succeeded, report succeeded" {
				t.Errorf("the runs: %s", got)
			}
			proven(t, dsn)
			stop(t, survivor)
		})
	}
}

// A chain of fifty jobs measures the time from a run's end to the request that it triggers.
//
//prove:other
func TestAChainOfFiftyJobsOnAnIdleReplica(t *testing.T) {
	t.Parallel()
	const jobs = 50
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	for i := jobs; i > 0; i-- {
		more := process.JobSpec{}
		if i < jobs {
			more["then"] = []map[string]any{{"job": fmt.Sprint("link-", i+1)}}
		}
		create(t, r.API, job(fmt.Sprint("link-", i), fmt.Sprint(w.URL, "/link-", i), more))
	}
	do[any](t, r.API, "POST", "/v1/jobs/link-1/trigger", nil)
	await(t, "the request of the last job", func() bool { return len(w.At(fmt.Sprint("/link-", jobs))) == 1 })
	var median, slowest time.Duration
	must(t, connect(t, dsn).QueryRow(t.Context(), `
		SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took), max(took)
		FROM (SELECT n.started_at - u.finished_at AS took
		      FROM punctual.runs n JOIN punctual.runs u ON u.id = n.caused_by) steps`).Scan(&median, &slowest))
	t.Logf("from the end of a run to the next request: median %s, slowest %s", median, slowest)
	atRest(t, dsn, w)
	proven(t, dsn)
}
