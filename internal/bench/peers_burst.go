package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"punctual/internal/process"
)

// bursts measures how fast contenders work jobs that are all due, beside the bare loops.
func (p *peers) bursts(ctx context.Context, round int) {
	p.say("round %d of %d: a burst of %d jobs", round+1, p.Rounds, p.Sizes.BurstJobs)
	var bare, own bareRounds
	bare.measure(ctx, p.lab, p.to, fmt.Sprint("/bare/", round))
	own.measure(ctx, p.lab, p.to, fmt.Sprint("/bare-own/", round), "--own")
	p.note("burst", bareLoop, bare.perSecond[0])
	p.note("burst", ownLoop, own.perSecond[0])
	p.note("burst, CPU of the worker", bareLoop, bare.cpu[0])
	p.note("burst, CPU of the worker", ownLoop, own.cpu[0])
	perSecond := map[contender]float64{}
	p.each(ctx, round, "a burst", p.best(), func(c contender) {
		b, memory := p.burstOf(ctx, round, c)
		perSecond[c] = b.perSecond
		p.note("burst", c, b.perSecond)
		p.note("burst, ratio to the bare loop", c, b.perSecond/bare.perSecond[0])
		p.note("burst, CPU of Postgres", c, b.postgres)
		p.note("burst, CPU of the worker", c, b.replica)
		p.note("burst, WAL", c, b.wal)
		p.note("burst, memory of the worker after it", c, memory)
	})
	for _, c := range p.tuned {
		p.note("burst, Punctual's ratio to it", c, perSecond[p.self]/perSecond[c])
	}
}

// burstOf measures from the first request until nothing is left to do in the database. Starting is not measured.
func (p *peers) burstOf(ctx context.Context, round int, c contender) (b burst, megabytes float64) {
	n, path := p.Sizes.BurstJobs, route("/burst/", round, c)
	workers, _ := p.begin(ctx, c, load{url: p.to.url(path), jobs: n, workers: 1})
	p.must(p.came(ctx, workers, path, 1, 2*time.Millisecond))
	before := p.meter(ctx, workers, p.to)
	p.must(p.came(ctx, workers, path, n, 20*time.Millisecond))
	p.must(await(ctx, "the end of the last job", 5*time.Millisecond, func() (bool, error) { return c.finished(ctx) }))
	ended, after := time.Now(), p.meter(ctx, workers, p.to)
	megabytes, _ = resident(workers[0].PID())
	a, err := p.to.of(ctx, path)
	p.must(err)
	if a.Count != n {
		p.must(fmt.Errorf("%d requests came, want %d", a.Count, n))
	}
	return after.since(before, n, ended.Sub(a.First)), megabytes
}

// begin prepares a load and starts to work it.
func (p *peers) begin(ctx context.Context, c contender, of load) ([]*process.Process, time.Time) {
	c.prepare(ctx, of)
	return c.start(ctx, of)
}

// came waits until n requests have come to a path. The workers must be alive for as long.
func (p *peers) came(
	ctx context.Context, workers []*process.Process, path string, n int, every time.Duration,
) error {
	return await(ctx, fmt.Sprintf("%d requests at %s", n, path), every, func() (bool, error) {
		for _, w := range workers {
			if err := alive("a worker", w); err != nil {
				return false, err
			}
		}
		a, err := p.to.of(ctx, path)
		return a.Count >= n, err
	})
}

// latenesses measures how long after their time jobs arrive that are due one after the other.
func (p *peers) latenesses(ctx context.Context, round int) {
	p.say("round %d of %d: %d jobs a second for %d s", round+1, p.Rounds, p.Sizes.PeerRate, p.Sizes.PeerSeconds)
	p.each(ctx, round, "lateness", p.all(), func(c contender) {
		late, inTime := p.latenessOf(ctx, round, c)
		for tries := 1; !inTime; tries++ {
			if tries == 4 {
				p.must(errNotReady)
			}
			p.must(c.clear(ctx))
			p.spare *= 2
			p.say("%s: %v; trying again with more time", c, errNotReady)
			late, inTime = p.latenessOf(ctx, round, c)
		}
		p.note("lateness, p50", c, quantile(late, 0.5))
		p.note("lateness, p99", c, quantile(late, 0.99))
		p.note("lateness, earliest", c, quantile(late, 0))
	})
}

// errNotReady says that jobs were due before the worker was ready.
var errNotReady = errors.New("the first job was due before the worker was ready")

// latenessOf returns false if the worker was not ready in time.
func (p *peers) latenessOf(ctx context.Context, round int, c contender) (late []float64, inTime bool) {
	n, path := p.Sizes.PeerRate*p.Sizes.PeerSeconds, route(fmt.Sprintf("/late/%s-", p.spare), round, c)
	every := time.Second / time.Duration(p.Sizes.PeerRate)
	workers, due := p.begin(ctx, c, load{url: p.to.url(path), jobs: n, every: every, workers: 1})
	c.ready(ctx, workers)
	if p.now().After(due) {
		return nil, false
	}
	p.must(p.came(ctx, workers, path, n, 20*time.Millisecond))
	return p.lateness(ctx, p.to, path, n), true
}
