package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unicode"

	"punctual/internal/process"
)

// A contender works the same loads as others: Punctual, or a peer that a program runs.
type contender interface {
	fmt.Stringer
	// prepare makes tables for a load, and its jobs if a worker may find them there.
	prepare(ctx context.Context, of load)
	// start starts to work what was prepared. It returns when the first job is due, if that is at a time. The workers
	// need not be ready yet.
	start(ctx context.Context, of load) (workers []*process.Process, due time.Time)
	// ready waits until the workers work.
	ready(ctx context.Context, workers []*process.Process)
	// finished reports whether nothing is left to do in the database.
	finished(ctx context.Context) (bool, error)
	// clear ends the workers and removes the tables, even if ctx has ended.
	clear(ctx context.Context) error
}

// load is what contenders work.
type load struct {
	url     string        // where each job posts to
	jobs    int           // jobs that are due once
	every   time.Duration // from one of them to the next, beginning some seconds from now; 0: all are due at once
	crons   int           // jobs that are due at every whole minute
	workers int           // processes
	slots   int           // of each process; 0: as many as it likes best
}

// peers is the setting of the benchmark of the same name.
type peers struct {
	*lab
	to     *target
	self   contender
	tuned  []contender
	plain  []contender // the same peers as they come
	rounds map[string][]float64
}

// RunPeers is Run for the benchmarks peers and, if it is named, peers-burst, which has the burst alone: half a minute a
// round. They measure Punctual and its peers with the same loads, in turns. Each program runs a peer, as testdata/peers
// describes.
func RunPeers(ctx context.Context, c Config, programs ...string) error {
	for _, program := range programs { // before hours of work
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	return run(ctx, c, []benchmark{
		{name: "peers", run: func(ctx context.Context, l *lab) {
			l.beside(ctx, programs, (*peers).bursts, (*peers).latenesses, (*peers).kills, (*peers).herds)
		}},
		{name: "peers-burst", onlyNamed: true, run: func(ctx context.Context, l *lab) {
			l.beside(ctx, programs, (*peers).bursts)
		}},
	})
}

// beside measures Punctual and its peers with some loads.
func (l *lab) beside(ctx context.Context, programs []string, loads ...func(p *peers, ctx context.Context, round int)) {
	l.spare = 4 * time.Second
	p := &peers{lab: l, rounds: map[string][]float64{}, self: &itself{lab: l}}
	for i, path := range programs {
		schema := fmt.Sprint("punctual_bench_peer_", string(rune('a'+i)))
		tuned, plain := newPeer(l, path, schema, "--tuned"), newPeer(l, path, schema+"_plain")
		for _, peer := range []*peer{tuned, plain} {
			peer.describe(ctx)
			defer func() { l.failed(peer.clear(ctx)) }()
		}
		p.tuned, p.plain = append(p.tuned, tuned), append(p.plain, plain)
		l.report.Peers = append(l.report.Peers, tuned.version)
	}
	p.to = l.target(ctx)
	for round := range l.Rounds {
		for _, load := range loads {
			load(p, ctx, round)
		}
	}
	p.figures()
}

// each measures contenders in turn, and ends what is left of each. Errors say what was measured of whom.
func (p *peers) each(ctx context.Context, round int, what string, of []contender, measure func(contender)) {
	for _, c := range turns(round, of...) {
		func() {
			p.doing = what + " of " + c.String()
			measured := false
			defer func() {
				if !measured {
					p.failed(c.clear(ctx))
				}
			}()
			measure(c)
			measured = true
			p.must(c.clear(ctx)) // what is left would be measured with the next one
		}()
	}
	p.doing = ""
}

// turns returns contenders in the order of a round, in which another one is first each time.
func turns(round int, all ...contender) []contender {
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}

// best returns Punctual and every peer, tuned.
func (p *peers) best() []contender { return append([]contender{p.self}, p.tuned...) }

// all returns Punctual and every peer, tuned and as it comes.
func (p *peers) all() []contender { return slices.Concat([]contender{p.self}, p.tuned, p.plain) }

// route returns a path of the target that no other measurement uses.
func route(prefix string, round int, c contender) string {
	letters := func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return '-'
	}
	return fmt.Sprintf("%s%d/%s", prefix, round, strings.Map(letters, c.String()))
}

// settle vacuums and analyses now rather than when autovacuum gets to it, and makes a checkpoint if it may.
func (l *lab) settle(ctx context.Context) {
	l.exec(ctx, `VACUUM (ANALYZE)`)
	_, _ = l.conn.Exec(ctx, `CHECKPOINT`)
	l.must(ctx.Err())
}
