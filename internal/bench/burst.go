package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"punctual/internal/process"
)

// burst holds the figures of one round. NaN means that the figure could not be measured.
type burst struct {
	perSecond                 float64
	postgres, replica, target float64 // processor time, microseconds per run
	wal                       float64 // bytes per run
}

// runBurst measures jobs that are all due at one instant: one-shots, recurring jobs of one schedule, and crons of which
// each has an expression of its own. It compares them with bare loops that post the same number of requests: one with a
// fixed client, one with the client of a replica.
func runBurst(ctx context.Context, l *lab) {
	l.vacuums()
	replica, to := l.setting(ctx)
	var once, recurring, crons []burst
	// Each burst is compared with the bare loop right after it, because the machine changes.
	var bare, own, bareToo, bareAfterCrons bareRounds
	var onceAfter, recurringAfter []float64
	for round := range l.Rounds {
		l.say("round %d of %d: %d jobs", round+1, l.Rounds, l.Sizes.BurstJobs)
		once = append(once, l.burst(ctx, l.Sizes.BurstJobs, oneShot, fmt.Sprint("once-", round), to, replica))
		bare.measure(ctx, l, to, fmt.Sprint("/bare/", round))
		onceAfter = append(onceAfter, l.vacuumOf(ctx, l.Sizes.BurstJobs))
		own.measure(ctx, l, to, fmt.Sprint("/bare-own/", round), "--own")
		recurring = append(recurring, l.burst(ctx, l.Sizes.BurstJobs, daily, fmt.Sprint("daily-", round), to, replica))
		bareToo.measure(ctx, l, to, fmt.Sprint("/bare-too/", round))
		recurringAfter = append(recurringAfter, l.vacuumOf(ctx, l.Sizes.BurstJobs))
		crons = append(crons, l.burstOf(ctx, l.Sizes.BurstJobs, cronOfItsOwn, fmt.Sprint("crons-", round), to, replica))
		bareAfterCrons.measure(ctx, l, to, fmt.Sprint("/bare-crons/", round))
		l.vacuumOf(ctx, l.Sizes.BurstJobs)
	}
	l.figure("bare loop", "requests/s", nil, bare.perSecond...)
	l.figure("bare loop, CPU", "µs/request", nil, bare.cpu...)
	l.figure("bare loop after recurring jobs", "requests/s", nil, bareToo.perSecond...)
	l.figure("bare loop, own client", "requests/s", nil, own.perSecond...)
	l.figure("bare loop, own client, CPU", "µs/request", nil, own.cpu...)
	l.bursts("one-shots", once, bare)
	l.figure("one-shots, ratio to the bare loop with our own client", "×", nil,
		ratios(column(once, throughput), own.perSecond)...)
	l.cpuFigure("one-shots, CPU of the vacuum afterwards", "µs/run", nil, onceAfter...)
	l.bursts("recurring", recurring, bareToo)
	l.cpuFigure("recurring, CPU of the vacuum afterwards", "µs/run", nil, recurringAfter...)
	l.figure("crons of their own", "runs/s", nil, column(crons, throughput)...)
	l.figure("crons of their own, ratio to the bare loop", "×", nil,
		ratios(column(crons, throughput), bareAfterCrons.perSecond)...)
	l.figure("crons of their own, CPU of the replica", "µs/run", nil, column(crons, replicaTime)...)
	l.hot(ctx, replica)
}

// bareRounds are the rounds of one of the bare loops.
type bareRounds struct{ perSecond, cpu []float64 }

func (r *bareRounds) measure(ctx context.Context, l *lab, to *target, path string, flags ...string) {
	result := l.bare(ctx, to, path, flags...)
	n := float64(l.Sizes.BurstJobs)
	r.perSecond, r.cpu = append(r.perSecond, n/result.Seconds), append(r.cpu, 1e6*result.CPU/n)
}

// bursts reports the throughput of bursts, and what a run of them costs.
func (l *lab) bursts(of string, rounds []burst, bare bareRounds) {
	perSecond := column(rounds, throughput)
	l.figure(of, "runs/s", nil, perSecond...)
	l.figure(of+", ratio to the bare loop", "×", atLeast(0.55), ratios(perSecond, bare.perSecond)...)
	l.cpuFigure(of+", CPU of Postgres", "µs/run", atMost(60), column(rounds, postgresTime)...)
	l.figure(of+", CPU of the replica", "µs/run", nil, column(rounds, replicaTime)...)
	l.figure(of+", CPU of the target", "µs/run", nil, column(rounds, func(b burst) float64 { return b.target })...)
	l.figure(of+", WAL", "bytes/run", nil, column(rounds, func(b burst) float64 { return b.wal })...)
}

func throughput(b burst) float64   { return b.perSecond }
func postgresTime(b burst) float64 { return b.postgres }
func replicaTime(b burst) float64  { return b.replica }

func column(rounds []burst, of func(burst) float64) (values []float64) {
	for _, b := range rounds {
		values = append(values, of(b))
	}
	return values
}

// ratios divides a by b, element by element. The result is NaN where b is zero, which happens because processor time
// comes in steps of 10 ms.
func ratios(a, b []float64) (values []float64) {
	for i := range a {
		ratio := math.NaN()
		if b[i] != 0 {
			ratio = a[i] / b[i]
		}
		values = append(values, ratio)
	}
	return values
}

// oneShot and daily return schedules whose first slot is at due.
func oneShot(due time.Time) map[string]any { return map[string]any{"at": due.Format(time.RFC3339Nano)} }

func daily(due time.Time) map[string]any {
	return map[string]any{"every": "24h", "starts_at": due.Format(time.RFC3339)}
}

// cronOfItsOwn returns a schedule whose first slot is at due, as that of no other of 65,536 jobs: each has another set
// of further hours, none of which is near.
func cronOfItsOwn(due time.Time, i int) map[string]any {
	due = due.UTC()
	hours := fmt.Sprint(due.Hour())
	for bit := range 16 {
		if i>>bit&1 == 1 {
			hours += fmt.Sprintf(",%d", (due.Hour()+4+bit)%24)
		}
	}
	return map[string]any{"cron": fmt.Sprintf("%d %d %s * * *", due.Second(), due.Minute(), hours)}
}

// invoices is a job of a burst. The body is burstBody.
func invoices(name string, schedule map[string]any, url string) process.JobSpec {
	made := job(name, schedule, url, map[string]any{"range": "yesterday", "kind": "invoices"})
	made["jitter"] = "0s"
	return made
}

// burst creates n jobs that are due at one instant. It measures from that instant until every request is answered and
// every run's end is committed, which is when the last lease is gone.
func (l *lab) burst(
	ctx context.Context, n int, schedule func(time.Time) map[string]any, name string, to *target,
	replicas ...*process.Replica,
) burst {
	return l.burstOf(ctx, n, func(due time.Time, _ int) map[string]any { return schedule(due) }, name, to, replicas...)
}

// burstOf is burst with a schedule for each job.
func (l *lab) burstOf(
	ctx context.Context, n int, schedule func(due time.Time, i int) map[string]any, name string, to *target,
	replicas ...*process.Replica,
) burst {
	path := func(try int) string { return fmt.Sprintf("/burst/%s-%d", name, try) }
	due, try := l.herd(ctx, replicas[0], n, func(due time.Time, try, i int) process.JobSpec {
		return invoices(fmt.Sprintf("%s-%d-%d", name, try, i), schedule(due, i), to.url(path(try)))
	})
	if l.vacuumed {
		l.exec(ctx, `VACUUM (ANALYZE)`)
		l.inTime("the load was vacuumed", due.Add(-time.Second/2), "it should have been")
	}
	return l.measured(ctx, due, path(try), n, to, replicas...)
}

// measured measures n runs that are due at one instant and send to one path. The caller has created their jobs.
func (l *lab) measured(
	ctx context.Context, due time.Time, path string, n int, to *target, replicas ...*process.Replica,
) burst {
	l.until(ctx, due.Add(-100*time.Millisecond))
	before := l.meter(ctx, processes(replicas), to)
	l.arrived(ctx, to, path, n)
	l.must(await(ctx, "the last lease", 5*time.Millisecond, func() (bool, error) {
		return tryQuery[bool](ctx, l, `SELECT NOT EXISTS (SELECT FROM punctual.claims)`)
	}))
	took := l.now().Sub(due)
	after := l.meter(ctx, processes(replicas), to)
	l.succeeded(ctx, due, due, to, path, n)
	l.say("runs finished in each second: %v", query[[]int64](ctx, l, `
		SELECT array_agg(n ORDER BY s)
		FROM (SELECT floor(extract(epoch FROM finished_at - scheduled_for)) AS s, count(*) AS n
		      FROM punctual.runs
		      WHERE scheduled_for = $1
		      GROUP BY s) AS seconds`, due))
	return after.since(before, n, took)
}

// vacuums has what a burst's load leaves to autovacuum done before the burst is due, and leaves time for it. Autovacuum
// would else do it in the middle of some bursts: it took 15 % of Postgres's time in one that was profiled.
func (l *lab) vacuums() { l.vacuumed, l.spare = true, 4*time.Second }

// vacuumOf does what n runs leave to autovacuum, and returns how much of Postgres's time each took of it, in
// microseconds.
func (l *lab) vacuumOf(ctx context.Context, n int) float64 {
	before := cpu(l.db.postmaster)
	l.exec(ctx, `VACUUM (ANALYZE) punctual.runs, punctual.schedules, punctual.claims, punctual.completions`)
	return 1e6 * (cpu(l.db.postmaster) - before) / float64(n)
}

// since returns what n runs have used, and how fast they were.
func (m meter) since(before meter, n int, took time.Duration) burst {
	each := 1 / float64(n)
	return burst{
		perSecond: float64(n) / took.Seconds(),
		postgres:  1e6 * (m.postgres - before.postgres) * each,
		replica:   1e6 * (m.replicas - before.replicas) * each,
		target:    1e6 * (m.target - before.target) * each,
		wal:       (m.wal - before.wal) * each,
	}
}

// meter is what has been used so far: seconds of processor time, and bytes of WAL.
type meter struct{ postgres, replicas, target, wal float64 }

func processes(replicas []*process.Replica) (all []*process.Process) {
	for _, r := range replicas {
		all = append(all, r.Process)
	}
	return all
}

func (l *lab) meter(ctx context.Context, replicas []*process.Process, to *target) (m meter) {
	m.postgres, m.target = cpu(l.db.postmaster), cpu(to.PID())
	for _, r := range replicas {
		m.replicas += cpu(r.PID())
	}
	m.wal = l.wal(ctx)
	return m
}

// wal returns how many bytes of WAL were ever written; NaN where Postgres does not tell, as some managed services.
func (l *lab) wal(ctx context.Context) float64 {
	written, err := tryQuery[float64](ctx, l, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`)
	if err != nil {
		return math.NaN()
	}
	return written
}

// hot reports the share of updates of runs that wrote no index. It stops the replica first: a Postgres session reports
// its last statistics when it ends.
func (l *lab) hot(ctx context.Context, replica *process.Replica) {
	l.stop(ctx, replica)
	percent := query[*float64](ctx, l, `
		SELECT 100 * sum(n_tup_hot_upd)::float8 / nullif(sum(n_tup_upd), 0)
		FROM pg_stat_user_tables
		WHERE schemaname = 'punctual' AND relname LIKE 'runs\_2%'`)
	if percent == nil { // this server does not keep these statistics
		percent = new(math.NaN())
	}
	l.figure("HOT updates of runs", "%", nil, *percent)
}
