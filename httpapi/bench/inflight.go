package bench

import (
	"context"
	"fmt"
	"math"
	"syscall"
	"time"

	"punctual/httpapi/proc"
)

// runInFlight keeps many requests in flight on one replica at once: the target answers none before all are there.
func runInFlight(ctx context.Context, l *lab) error {
	n := l.Sizes.InFlight
	if err := allowFiles(uint64(n) + 500); err != nil {
		return err
	}
	replica, err := l.serve(ctx, fmt.Sprintf("--queues=default=%d", n))
	if err != nil {
		return err
	}
	to, err := l.target(ctx)
	if err != nil {
		return err
	}
	l.say("%d requests at a time", n)
	path := func(try int) string { return fmt.Sprintf("/hold/%d/%d", n, try) }
	due, try, err := l.herd(ctx, replica, n, func(due time.Time, try, i int) proc.JobSpec {
		return proc.JobSpec{
			"name": fmt.Sprintf("held-%d-%d", try, i), "schedule": oneShot(due), "timeout": "10m",
			"target": map[string]any{"url": to.url(path(try)), "body": map[string]any{"n": i}},
		}
	})
	if err != nil {
		return err
	}
	if err := l.arrived(ctx, to, path(try), n); err != nil {
		return err
	}
	there := l.now().Sub(due)
	if err := l.atRest(ctx); err != nil {
		return err
	}
	const errorsSQL = `SELECT (SELECT count(*) FROM punctual.attempts) + (SELECT count(*) FROM punctual.runs WHERE scheduled_for = $1 AND status <> 'succeeded')`
	failed, err := query[float64](ctx, l, errorsSQL, due)
	if err != nil {
		return err
	}
	if failed == 0 {
		if err := l.succeeded(ctx, due, due, to, path(try), n); err != nil {
			return err
		}
	}
	megabytes := math.NaN()
	if _, most, ok := proc.Resident(replica.PID()); ok {
		megabytes = float64(most) / 1e6
	}
	l.figure(fmt.Sprintf("%d in flight, errors", n), "attempts", atMost(0), failed)
	l.figure(fmt.Sprintf("%d in flight, resident, at most", n), "MB", atMost(600), megabytes)
	l.figure(fmt.Sprintf("from due until %d are in flight", n), "s", nil, there.Seconds())
	return nil
}

// allowFiles lets this process and those it starts open as many files, connections among them.
func allowFiles(n uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Cur >= n && limit.Max >= n {
		return nil
	}
	raised := syscall.Rlimit{Cur: n, Max: max(n, limit.Max)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil {
		return fmt.Errorf("a process of this user may open %d files, and %d are needed: as root, ulimit -Hn %d before, or LimitNOFILE= of the service", limit.Max, n, n)
	}
	return nil
}
