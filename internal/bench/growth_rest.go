package bench

import "context"

// nowhere is the target of jobs that never fire.
const nowhere = "https://example.com/hooks/reports"

// runRest measures the cost of a run with ever more stored jobs that are not due.
func runRest(ctx context.Context, l *lab) error {
	g := newGrowth("jobs at rest", powers(l.Sizes.RestLeast, l.Sizes.RestMost, 100))
	g.limit = atMost(1.3)
	f, err := l.field(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	there := 0
	for i := range g.stages {
		s := &g.stages[i]
		if err := f.jobs(ctx, seed{
			prefix:  "rest",
			first:   there + 1,
			last:    s.n,
			tenants: defaultTenant,
			url:     nowhere,
		}); err != nil {
			return err
		}
		there = s.n
		if err := l.rounds(ctx, s, f); err != nil {
			return err
		}
	}
	return l.grown(g)
}

// runHistory measures the cost of a run with ever more finished runs in the history.
func runHistory(ctx context.Context, l *lab) error {
	g := newGrowth("runs of history", nil)
	g.linear = true
	for _, n := range []int{0, l.Sizes.HistoryLeast, l.Sizes.HistoryMost} {
		if len(g.stages) == 0 || n > g.stages[len(g.stages)-1].n {
			g.stages = append(g.stages, stage{n: n})
		}
	}
	f, err := l.field(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.jobs(ctx, seed{
		prefix:  "rest",
		first:   1,
		last:    l.Sizes.RestLeast,
		tenants: defaultTenant,
		url:     nowhere,
	}); err != nil {
		return err
	}
	there := 0
	for i := range g.stages {
		s := &g.stages[i]
		if err := f.history(ctx, s.n-there); err != nil {
			return err
		}
		there = s.n
		if err := l.rounds(ctx, s, f); err != nil {
			return err
		}
	}
	return l.grown(g)
}
