package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"punctual/internal/process"
)

// A stage is one point of a growth benchmark: the burst measured with n things stored.
type stage struct {
	n      int
	rounds []burst
}

// growth measures how the cost of a burst grows with the number of something.
type growth struct {
	of     string // the things that grow in number, such as "jobs at rest"
	stages []*stage
	limit  *Goal // on the CPU of Postgres: the ratio of the largest stage to the smallest
}

// newGrowth returns a growth with a stage for each number, and no rounds yet.
func newGrowth(of string, numbers []int) *growth {
	g := &growth{of: of}
	for _, n := range numbers {
		g.stages = append(g.stages, &stage{n: n})
	}
	return g
}

// powers returns the numbers from least to most, each times as large as the one before. It always includes most.
func powers(least, most, times int) (numbers []int) {
	for n := least; n < most; n *= times {
		numbers = append(numbers, n)
	}
	return append(numbers, most)
}

// grown reports the figures of a growth.
func (l *lab) grown(g *growth) {
	first, last := g.stages[0], g.stages[len(g.stages)-1]
	for _, s := range g.stages {
		l.cpuFigure(fmt.Sprintf("%s %s, CPU of Postgres", short(float64(s.n)), g.of), "µs/run", nil,
			column(s.rounds, postgresTime)...)
		l.figure(fmt.Sprintf("%s %s, CPU of replicas", short(float64(s.n)), g.of), "µs/run", nil,
			column(s.rounds, replicaTime)...)
		l.figure(fmt.Sprintf("%s %s", short(float64(s.n)), g.of), "runs/s", nil, column(s.rounds, throughput)...)
	}
	ratio := fmt.Sprintf("ratio of %s to %s", short(float64(last.n)), short(float64(first.n)))
	l.cpuFigure("CPU of Postgres, "+ratio, "×", g.limit,
		ratios(column(last.rounds, postgresTime), column(first.rounds, postgresTime))...)
	l.figure("runs/s, "+ratio, "×", nil, ratios(column(last.rounds, throughput), column(first.rounds, throughput))...)
}

// short formats a number for people: 12.5, 500, 10 k, 2.5 M.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// field is the setting of a growth benchmark: one replica, a target, and a seeder that fills the schema.
type field struct {
	*seeder
	replica *process.Replica
	to      *target
}

// field prepares the setting. It starts the replica first, so that work which a replica does once for all jobs at its
// start meets no jobs.
func (l *lab) field(ctx context.Context) (f field) {
	f.replica, f.to = l.setting(ctx)
	var err error
	f.seeder, err = newSeeder(ctx, l.db.dsn, l.say)
	l.must(err)
	return f
}

// rest seeds jobs that never fire.
func (f field) rest(ctx context.Context, first, last int) error {
	return f.jobs(ctx, seed{
		prefix:  "rest",
		first:   first,
		last:    last,
		tenants: defaultTenant,
		url:     "https://example.com/hooks/reports",
	})
}

// grow measures a growth, one stage after the other, and reports it. Before each stage, add stores more things: there
// are n, and until are to be there.
func (l *lab) grow(ctx context.Context, g *growth, f field, add func(n, until int) error) {
	there := 0
	for _, s := range g.stages {
		l.must(add(there, s.n))
		there = s.n
		for round := range l.Rounds {
			l.must(f.settle(ctx))
			l.say("round %d of %d with %s: %d jobs", round+1, l.Rounds, short(float64(s.n)), l.Sizes.GrowthJobs)
			name := fmt.Sprintf("%s-%d-%d", l.name, s.n, round)
			s.rounds = append(s.rounds, l.burst(ctx, l.Sizes.GrowthJobs, oneShot, name, f.to, f.replica))
		}
	}
	l.grown(g)
}

// runRest measures the cost of a run with ever more stored jobs that are not due.
func runRest(ctx context.Context, l *lab) {
	g := newGrowth("jobs at rest", powers(l.Sizes.RestLeast, l.Sizes.RestMost, 100))
	g.limit = atMost(1.3)
	f := l.field(ctx)
	defer f.close()
	l.grow(ctx, g, f, func(n, until int) error { return f.rest(ctx, n+1, until) })
}

// runHistory measures the cost of a run with ever more finished runs in the history.
func runHistory(ctx context.Context, l *lab) {
	g := newGrowth("runs of history", slices.Compact([]int{0, l.Sizes.HistoryLeast, l.Sizes.HistoryMost}))
	f := l.field(ctx)
	defer f.close()
	l.must(f.rest(ctx, 1, l.Sizes.RestLeast))
	l.grow(ctx, g, f, func(n, until int) error { return f.history(ctx, until-n) })
}
