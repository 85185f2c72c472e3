package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"punctual/internal/process"
)

// job is a job that posts a body to a URL; nil: no body.
func job(name string, schedule map[string]any, url string, body map[string]any) process.JobSpec {
	target := map[string]any{"url": url}
	if body != nil {
		target["body"] = body
	}
	return process.JobSpec{"name": name, "schedule": schedule, "target": target}
}

// numbered is a body that differs from job to job.
func numbered(n int) map[string]any { return map[string]any{"n": n} }

// herd creates n jobs that are due at one instant, and returns that instant. If they are not all created in time, herd
// discards them and tries again with more time.
func (l *lab) herd(
	ctx context.Context, replica *process.Replica, n int, define func(due time.Time, try, i int) process.JobSpec,
) (due time.Time, try int) {
	const tries = 4
	for try := range tries {
		lead := time.Duration(float64(l.perJob)*float64(n)*math.Pow(1.5, float64(try+1))) + 2*time.Second + l.spare
		due = l.nextSecond(lead)
		jobs := make([]process.JobSpec, n)
		for i := range jobs {
			jobs[i] = define(due, try, i)
		}
		began := time.Now()
		l.must(process.Create(ctx, replica.API, jobs))
		if n >= 100 { // too few to extrapolate from
			l.perJob = time.Since(began) / time.Duration(n)
		}
		if due.Sub(l.now()) > time.Second+l.spare {
			return due, try
		}
		l.say("%d jobs took %s to create, and the first were due by then; trying again", n,
			time.Since(began).Round(time.Millisecond))
		l.atRest(ctx)
	}
	l.must(fmt.Errorf("creating %d jobs took longer than allowed for, %d times", n, tries))
	return due, tries
}

// inTime ends the benchmark if what happened only after a time, at which event was.
func (l *lab) inTime(what string, until time.Time, event string) {
	if late := l.now().Sub(until); late > 0 {
		l.must(fmt.Errorf("%s %s after %s: this machine is too busy", what, late.Round(time.Millisecond), event))
	}
}

// atRest waits until nothing is due or in flight.
func (l *lab) atRest(ctx context.Context) {
	l.must(await(ctx, "everything to come to rest", 50*time.Millisecond, func() (bool, error) {
		return tryQuery[bool](ctx, l, `
			SELECT NOT EXISTS (SELECT FROM punctual.claims)
			    AND NOT EXISTS (SELECT FROM punctual.ready)
			    AND NOT EXISTS (SELECT FROM punctual.schedules WHERE enabled AND next_run_at <= now())`)
	}))
}

// succeeded checks the runs of a period, both ends included: there are as many as expected, each succeeded at its first
// attempt, and the path got as many requests. So each was sent exactly once.
func (l *lab) succeeded(ctx context.Context, from, to time.Time, at *target, path string, expected int) {
	const counts = `SELECT count(*), count(*) FILTER (WHERE status = 'succeeded' AND attempt = 1) FROM punctual.runs
		WHERE scheduled_for BETWEEN $1 AND $2
		    AND id BETWEEN punctual.partition_bound($1::date - 1) AND punctual.partition_bound($2::date + 2)`
	var runs, succeeded int
	l.must(l.conn.QueryRow(ctx, counts, from, to).Scan(&runs, &succeeded))
	a, err := at.of(ctx, path)
	l.must(err)
	if runs != expected || succeeded != expected || a.Count != expected {
		l.must(fmt.Errorf("of %d runs there are %d, %d of them succeeded at once, and %d requests came", expected, runs,
			succeeded, a.Count))
	}
}
