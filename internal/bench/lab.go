package bench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/process"
)

// lab is the setting of one benchmark: an empty schema, processes that end with the benchmark, and the report.
type lab struct {
	Config
	db     *scratch
	report *report
	name   string        // name of the benchmark
	conn   *pgx.Conn     // for queries between measurements
	offset time.Duration // how far the database's clock is ahead of this machine's
	perJob time.Duration // how long creating one job took last time
	spare  time.Duration // the least that a herd still has to wait when its jobs are there, besides a second

	processes []*process.Process
}

// patience is how long a benchmark waits for a state that must come, before it gives up.
const patience = 10 * time.Minute

// run runs a benchmark in an empty schema, and ends the processes that it started.
func (l *lab) run(ctx context.Context, work func(context.Context, *lab) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.say("preparing")
	if err := l.db.fresh(ctx); err != nil {
		return err
	}
	if l.conn, err = connect(ctx, l.db.dsn); err != nil {
		return err
	}
	defer func() { _ = l.conn.Close(context.WithoutCancel(ctx)) }()
	defer l.killAll()
	if err := l.readClock(ctx); err != nil {
		return err
	}
	return work(ctx, l)
}

// readClock notes how far the database's clock is ahead of this machine's. It uses the fastest of ten exchanges.
func (l *lab) readClock(ctx context.Context) error {
	shortest := time.Hour
	for range 10 {
		before := time.Now()
		there, err := query[time.Time](ctx, l, `SELECT clock_timestamp()`)
		if err != nil {
			return err
		}
		if took := time.Since(before); took < shortest {
			shortest, l.offset = took, there.Sub(before.Add(took/2))
		}
	}
	if l.offset.Abs() < shortest { // within the error of the measurement: take them for the same clock
		l.offset = 0
	}
	return nil
}

// now returns the database's time.
func (l *lab) now() time.Time { return time.Now().Add(l.offset) }

// nextSecond returns a whole second of the database's time, at least lead from now.
func (l *lab) nextSecond(lead time.Duration) time.Time {
	return l.now().Add(lead).Truncate(time.Second).Add(time.Second).UTC()
}

// say reports progress.
func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.Notes, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), l.name, fmt.Sprintf(format, args...))
}

// figure reports the median of the rounds. A nil target means that the figure has no target.
func (l *lab) figure(name, unit string, target *Goal, rounds ...float64) {
	l.report.add(Figure{Benchmark: l.name, Name: name, Unit: unit, Target: target, Rounds: rounds})
}

// cpuFigure reports processor time of Postgres, which cannot be measured if Postgres runs elsewhere.
func (l *lab) cpuFigure(name, unit string, target *Goal, rounds ...float64) {
	l.report.add(Figure{Benchmark: l.name, Name: name, Unit: unit, Target: target, Rounds: rounds, Absent: l.db.noCPU})
}

// serve starts a replica of this binary. The replica ends with the benchmark at the latest.
func (l *lab) serve(ctx context.Context, flags ...string) (*process.Replica, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := process.Serve(ctx, l.Binary, l.db.dsn, flags...)
	if err != nil {
		return nil, err
	}
	l.processes = append(l.processes, r.Process)
	return r, nil
}

// serveSlots starts a replica with n worker slots.
func (l *lab) serveSlots(ctx context.Context, n int) (*process.Replica, error) {
	return l.serve(ctx, fmt.Sprintf("--queues=default=%d", n))
}

// setting starts what most benchmarks need: a replica, and a target for its jobs.
func (l *lab) setting(ctx context.Context) (replica *process.Replica, to *target, err error) {
	if replica, err = l.serveSlots(ctx, l.Sizes.Slots); err != nil {
		return nil, nil, err
	}
	to, err = l.target(ctx)
	return replica, to, err
}

// stop stops replicas before the end of the benchmark.
func stop(ctx context.Context, replicas ...*process.Replica) error {
	for _, r := range replicas {
		if err := r.Stop(ctx); err != nil {
			return fmt.Errorf("stopping a replica: %w", err)
		}
	}
	return nil
}

// launch starts another process of this binary. It too ends with the benchmark.
func (l *lab) launch(args ...string) (*process.Process, error) {
	p, err := process.Launch(l.Binary, nil, args...)
	if err != nil {
		return nil, err
	}
	l.processes = append(l.processes, p)
	return p, nil
}

// killAll ends the processes, so that no connection blocks dropping the schema.
func (l *lab) killAll() {
	for _, p := range l.processes {
		p.Kill()
	}
}

// query reads one value.
func query[T any](ctx context.Context, l *lab, sql string, args ...any) (v T, err error) {
	if err := l.conn.QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		return v, fmt.Errorf("%s: %w", strings.Join(strings.Fields(sql), " "), err)
	}
	return v, nil
}

// await polls until the condition holds.
func await(ctx context.Context, what string, every time.Duration, condition func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited in vain for %s", what))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if done, err := condition(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// until waits for an instant of the database's clock.
func (l *lab) until(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(at.Sub(l.now())):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// resident returns how much memory a process occupies now, and the most that it ever did, in megabytes; NaN where it
// cannot be read.
func resident(pid int) (now, most float64) {
	if now, most, ok := process.Resident(pid); ok {
		return float64(now) / 1e6, float64(most) / 1e6
	}
	return math.NaN(), math.NaN()
}

// cpu returns the processor time, in seconds, that a process and its children have used; NaN where it cannot be read.
func cpu(pid int) float64 {
	if used, ok := process.CPU(pid); ok && pid != 0 {
		return used.Seconds()
	}
	return math.NaN()
}
