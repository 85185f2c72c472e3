package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
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

	vacuumed bool // what a burst's load leaves to autovacuum is done before it is due

	processes []*process.Process
	doing     string  // what errors begin with; empty: nothing
	errs      []error // why the benchmark could not measure
}

// patience is how long a benchmark waits for a state that must come, before it gives up.
const patience = 10 * time.Minute

// run runs a benchmark in an empty schema, and ends the processes that it started. The benchmark has a goroutine of its
// own, which must can end.
func (l *lab) run(ctx context.Context, work func(context.Context, *lab)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.say("preparing")
		l.must(l.db.fresh(ctx))
		var err error
		l.conn, err = connect(ctx, l.db.dsn)
		l.must(err)
		defer func() { _ = l.conn.Close(context.WithoutCancel(ctx)) }()
		defer l.killAll()
		l.readClock(ctx)
		work(ctx, l)
	}()
	<-ended
	return errors.Join(l.errs...)
}

// must ends the benchmark if it cannot measure, as t.Fatal ends a test: only the benchmark's own goroutine may call it.
func (l *lab) must(err error) {
	if err != nil {
		l.failed(err)
		runtime.Goexit()
	}
}

// failed notes why the benchmark could not measure, and goes on. A nil error is none.
func (l *lab) failed(err error) {
	if err == nil {
		return
	}
	if l.doing != "" {
		err = fmt.Errorf("%s: %w", l.doing, err)
	}
	l.errs = append(l.errs, err)
}

// readClock notes how far the database's clock is ahead of this machine's. It uses the fastest of ten exchanges.
func (l *lab) readClock(ctx context.Context) {
	shortest := time.Hour
	for range 10 {
		before := time.Now()
		there := query[time.Time](ctx, l, `SELECT clock_timestamp()`)
		if took := time.Since(before); took < shortest {
			shortest, l.offset = took, there.Sub(before.Add(took/2))
		}
	}
	if l.offset.Abs() < shortest { // within the error of the measurement: take them for the same clock
		l.offset = 0
	}
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

// serve starts a replica. The replica ends with the benchmark at the latest.
func (l *lab) serve(ctx context.Context, flags ...string) *process.Replica {
	return l.serveWith(ctx, nil, flags...)
}

// serveWith is serve with variables of the environment.
func (l *lab) serveWith(ctx context.Context, env []string, flags ...string) *process.Replica {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := process.ServeWith(ctx, l.Binary, l.db.dsn, env, flags...)
	l.must(err)
	l.processes = append(l.processes, r.Process)
	return r
}

// serveSlots starts a replica with n worker slots.
func (l *lab) serveSlots(ctx context.Context, n int) *process.Replica {
	return l.serve(ctx, fmt.Sprintf("--queues=default=%d", n))
}

// setting starts what most benchmarks need: a replica, and a target for its jobs.
func (l *lab) setting(ctx context.Context) (*process.Replica, *target) {
	return l.serveSlots(ctx, l.Sizes.Slots), l.target(ctx)
}

// stop stops replicas before the end of the benchmark.
func (l *lab) stop(ctx context.Context, replicas ...*process.Replica) {
	for _, r := range replicas {
		if err := r.Stop(ctx); err != nil {
			l.must(fmt.Errorf("stopping a replica: %w", err))
		}
	}
}

// launch starts a process of this program: see Helper. It too ends with the benchmark.
func (l *lab) launch(args ...string) *process.Process {
	itself, err := os.Executable()
	l.must(err)
	p, err := process.Launch(itself, nil, args...)
	l.must(err)
	l.processes = append(l.processes, p)
	return p
}

// killAll ends the processes, so that no connection blocks dropping the schema.
func (l *lab) killAll() {
	for _, p := range l.processes {
		p.Kill()
	}
}

// query reads one value.
func query[T any](ctx context.Context, l *lab, sql string, args ...any) T {
	v, err := tryQuery[T](ctx, l, sql, args...)
	l.must(err)
	return v
}

// tryQuery is query for what a server may not have.
func tryQuery[T any](ctx context.Context, l *lab, sql string, args ...any) (v T, err error) {
	if err := l.conn.QueryRow(ctx, sql, args...).Scan(&v); err != nil {
		return v, fmt.Errorf("%s: %w", strings.Join(strings.Fields(sql), " "), err)
	}
	return v, nil
}

// exec runs a statement.
func (l *lab) exec(ctx context.Context, sql string, args ...any) {
	_, err := l.conn.Exec(ctx, sql, args...)
	l.must(err)
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
func (l *lab) until(ctx context.Context, at time.Time) {
	select {
	case <-time.After(at.Sub(l.now())):
	case <-ctx.Done():
		l.must(ctx.Err())
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
