//prove:targets

package prove

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// 10,000 jobs are due at a target that is down. Few attempts are used up, and other jobs are punctual.
//
// For five minutes. When the target is up again, it gets its requests at the pace at which it answers.
func TestSoakATargetIsDownForFiveMinutes(t *testing.T) {
	soak(t)
	t.Parallel()
	const jobs, slots, down = 10_000, 200, 5 * time.Minute
	dsn, w, dead := pgtest.DSN(t), newWitness(t), newDeadPort(t)
	r := serve(t, dsn, fmt.Sprintf("--queues=default=%d", slots))
	start := nextSecond(15 * time.Second)
	create(t, r.API, many(jobs, "down", "http://"+dead.addr+"/hook", process.JobSpec{"schedule": oneShot(start)})...)
	well := herd{start: start, cronJobs: 5, seconds: int(down.Seconds())}
	create(t, r.API, well.jobs(w.URL)...)
	await(t, "the instant", func() bool { return time.Now().After(start) })
	pass(t, time.Until(start.Add(down)))

	conn := connect(t, dsn)
	burnt := query[int](t, conn, `SELECT count(*) FROM punctual.attempts`)
	waiting := query[int](t, conn, `SELECT count(*) FROM punctual.ready`)
	target := dead.open()
	up := time.Now()
	target.Script("/hook", Answer{Delay: 50 * time.Millisecond})
	awaitFor(t, 5*time.Minute, "all runs to succeed", func() bool { return target.Len() >= jobs })
	drained := time.Since(up)

	f := atRest(t, dsn, w)
	f.Requests = append(f.Requests, target.Requests()...)
	slices.SortStableFunc(f.Requests, func(a, b Request) int { return a.At.Compare(b.At) })
	verify(t, f, Conditions{})
	for _, run := range f.Runs {
		if run.Status != "succeeded" {
			t.Errorf("run %s is %s", run.ID, run.Status)
		}
	}
	requests := target.Requests()
	ramps(t, requests[:300])
	second := 0
	for i, j := 0, 0; i < len(requests); i++ {
		for requests[i].At.Sub(requests[j].At) > time.Second {
			j++
		}
		second = max(second, i-j+1)
	}
	healthy := lateOfRequests(w.Requests())
	t.Logf("down for %s: %d attempts burnt and %d runs waiting of %d; up again: all sent in %s, "+
		"at most %d open at once and %d in a second; others' p99 lateness %s",
		down, burnt, waiting, jobs, drained.Round(time.Second), mostOpen(requests), second, quantile(healthy, 0.99))
	if burnt > 10+2*slots+2*int(down/(5*time.Second)) { // the requests in flight when the breaker opens, and the probes
		t.Errorf("%d attempts were burnt", burnt)
	}
	if p99 := quantile(healthy, 0.99); p99 > 2*time.Second {
		t.Errorf("others were %s late", p99)
	}
	stop(t, r)
}

// lateOfRequests returns, sorted, how late the requests of jobs without jitter came.
func lateOfRequests(requests []Request) (late []time.Duration) {
	for _, q := range requests {
		late = append(late, q.At.Sub(q.ScheduledFor))
	}
	slices.Sort(late)
	return late
}
