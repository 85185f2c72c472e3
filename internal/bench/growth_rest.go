package bench

import (
	"context"
	"slices"
)

// runRest measures the cost of a run with ever more stored jobs that are not due.
func runRest(ctx context.Context, l *lab) error {
	g := newGrowth("jobs at rest", powers(l.Sizes.RestLeast, l.Sizes.RestMost, 100))
	g.limit = atMost(1.3)
	f, err := l.field(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	return l.grow(ctx, g, f, func(n, until int) error { return f.rest(ctx, n+1, until) })
}

// runHistory measures the cost of a run with ever more finished runs in the history.
func runHistory(ctx context.Context, l *lab) error {
	g := newGrowth("runs of history", slices.Compact([]int{0, l.Sizes.HistoryLeast, l.Sizes.HistoryMost}))
	g.linear = true
	f, err := l.field(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.rest(ctx, 1, l.Sizes.RestLeast); err != nil {
		return err
	}
	return l.grow(ctx, g, f, func(n, until int) error { return f.history(ctx, until-n) })
}
