package bench

import (
	"context"
	"fmt"
	"time"

	"punctual/internal/process"
)

// runSteady measures the time from due to the request's arrival at the target: for a lone job on an idle replica, and
// for one-shots that are due one after the other at a steady rate.
func runSteady(ctx context.Context, l *lab) {
	replica, to := l.setting(ctx)
	lone := l.lone(ctx, replica, to)
	l.figure("one lone job, median", "ms", atMost(20), lone...)
	l.figure(fmt.Sprintf("one lone job, worst of %d", len(lone)), "ms", nil, quantile(lone, 1))

	n, interval := l.Sizes.SteadyRate*l.Sizes.SteadySeconds, time.Second/time.Duration(l.Sizes.SteadyRate)
	l.say("%d jobs, one every %s", n, interval)
	path := func(try int) string { return fmt.Sprint("/late/steady-", try) }
	first, try := l.herd(ctx, replica, n, func(due time.Time, try, i int) process.JobSpec {
		at := due.Add(time.Duration(i) * interval)
		return job(fmt.Sprintf("steady-%d-%d", try, i), oneShot(at), to.url(path(try)), numbered(i))
	})
	last := first.Add(time.Duration(n-1) * interval)
	l.done(ctx, first, last, to, path(try), n)
	late := l.lateness(ctx, to, path(try), n)
	load := fmt.Sprintf("%d fires/s for %d s", l.Sizes.SteadyRate, l.Sizes.SteadySeconds)
	l.figure(load+", p50", "ms", atMost(10), quantile(late, 0.5))
	l.figure(load+", p99", "ms", atMost(100), quantile(late, 0.99))
	l.figure(load+", worst", "ms", nil, quantile(late, 1))
}

// lone measures single jobs that become due at different fractions of a second, while nothing else is going on.
func (l *lab) lone(ctx context.Context, replica *process.Replica, to *target) []float64 {
	l.say("%d lone jobs", l.Sizes.LoneJobs)
	const path = "/late/lone"
	first := l.now()
	for i := range l.Sizes.LoneJobs {
		due := l.nextSecond(time.Second).Add(time.Duration(i) * 137 * time.Millisecond % time.Second)
		lone := job(fmt.Sprint("lone-", i), oneShot(due), to.url(path), nil)
		l.must(process.Create(ctx, replica.API, []process.JobSpec{lone}))
		l.until(ctx, due)
		l.arrived(ctx, to, path, i+1)
	}
	l.done(ctx, first, l.now(), to, path, l.Sizes.LoneJobs)
	return l.lateness(ctx, to, path, l.Sizes.LoneJobs)
}

// arrived waits until n requests have come to a path.
func (l *lab) arrived(ctx context.Context, to *target, path string, n int) {
	l.must(await(ctx, fmt.Sprintf("%d requests at %s", n, path), 20*time.Millisecond, func() (bool, error) {
		a, err := to.of(ctx, path)
		return a.Count >= n, err
	}))
}

// done waits until n requests have come to a path and nothing is in flight, and checks that each run was sent once.
func (l *lab) done(ctx context.Context, from, until time.Time, to *target, path string, n int) {
	l.arrived(ctx, to, path, n)
	l.atRest(ctx)
	l.succeeded(ctx, from, until, to, path, n)
}
