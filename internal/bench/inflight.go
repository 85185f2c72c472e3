package bench

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"punctual/internal/process"
)

// held is what one replica uses with n requests in flight.
type held struct {
	n                 int
	failed, megabytes float64 // failed attempts; most resident memory
	there             float64 // seconds from due until all were in flight
	busy              burst   // a burst over n worker slots
}

// runInFlight keeps ever more requests in flight at once on one replica. The target answers none of them before all
// have arrived.
func runInFlight(ctx context.Context, l *lab) {
	l.must(allowFiles(uint64(l.Sizes.InFlight) + 500))
	to := l.target(ctx)
	var sweep []held
	for _, n := range powers(1, l.Sizes.InFlight, 10) {
		sweep = append(sweep, l.held(ctx, to, n))
	}
	for _, h := range sweep {
		var most *Goal
		if h.n == l.Sizes.InFlight {
			most = atMost(600)
		}
		l.figure(fmt.Sprintf("%d in flight, errors", h.n), "attempts", atMost(0), h.failed)
		l.figure(fmt.Sprintf("%d in flight, resident, at most", h.n), "MB", most, h.megabytes)
		l.figure(fmt.Sprintf("from due until %d are in flight", h.n), "s", nil, h.there)
		l.figure(fmt.Sprintf("%d at a time", h.n), "runs/s", nil, h.busy.perSecond)
		l.figure(fmt.Sprintf("%d at a time, CPU of the replica", h.n), "µs/run", nil, h.busy.replica)
		l.cpuFigure(fmt.Sprintf("%d at a time, CPU of Postgres", h.n), "µs/run", nil, h.busy.postgres)
	}
}

// held measures one replica with n requests in flight, and then another with n worker slots and a longer backlog.
func (l *lab) held(ctx context.Context, to *target, n int) (h held) {
	l.say("%d requests at a time", n)
	h.n = n
	// Twice the worker slots: slots that a busy machine claims later than OlderThan may take no more than half of them.
	replica := l.serveSlots(ctx, 2*n)
	l.hold(ctx, replica, to, &h)
	_, h.megabytes = resident(replica.PID())
	l.stop(ctx, replica)
	replica = l.serveSlots(ctx, n)
	// The cost of a run shows only over many runs. So the burst takes a while, even if few requests are in flight at a
	// time.
	jobs := min(max(40*n, 400), l.Sizes.GrowthJobs)
	h.busy = l.burst(ctx, jobs, oneShot, fmt.Sprint("busy-", n), to, replica)
	l.stop(ctx, replica)
	return h
}

// hold keeps n requests in flight together.
func (l *lab) hold(ctx context.Context, replica *process.Replica, to *target, h *held) {
	n := h.n
	path := func(try int) string { return fmt.Sprintf("/hold/%d/%d", n, try) }
	due, try := l.herd(ctx, replica, n, func(due time.Time, try, i int) process.JobSpec {
		slow := job(fmt.Sprintf("held-%d-%d-%d", n, try, i), oneShot(due), to.url(path(try)), numbered(i))
		slow["timeout"] = "10m"
		return slow
	})
	l.arrived(ctx, to, path(try), n)
	h.there = l.now().Sub(due).Seconds()
	l.atRest(ctx)
	h.failed = query[float64](ctx, l, `
		SELECT (SELECT count(*) FROM punctual.attempts) +
		       (SELECT count(*) FROM punctual.runs WHERE scheduled_for = $1 AND status <> 'succeeded')`, due)
	if h.failed == 0 {
		l.succeeded(ctx, due, due, to, path(try), n)
	}
}

// allowFiles lets this process and its children open at least n files, which include connections.
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
		return fmt.Errorf("a process of this user may open %d files, and %d are needed: "+
			"as root, ulimit -Hn %d before, or LimitNOFILE= of the service", limit.Max, n, n)
	}
	return nil
}
