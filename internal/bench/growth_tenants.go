package bench

import (
	"context"
	"fmt"
	"time"

	"punctual/internal/process"
)

// runTenants measures the cost of a run when the same number of due jobs belongs to ever more tenants.
func runTenants(ctx context.Context, l *lab) {
	g := newGrowth("tenants with due jobs", powers(1, l.Sizes.TenantsMost, 10))
	f := l.field(ctx)
	defer f.close()
	tenants := l.tenants(ctx, f.replica, l.Sizes.TenantsMost)
	for round := range l.Rounds {
		for _, s := range g.stages {
			l.say("round %d of %d with %s: %d jobs", round+1, l.Rounds, short(float64(s.n)), l.Sizes.GrowthJobs)
			s.rounds = append(s.rounds, l.shared(ctx, f, tenants[:s.n], round))
		}
	}
	l.grown(g)
}

// tenants creates n tenants as callers do, so that each has what a tenant has from the start: its signing secret, too.
func (l *lab) tenants(ctx context.Context, replica *process.Replica, n int) []int32 {
	for i := range n {
		tenant := map[string]any{"name": fmt.Sprint("tenant-", i)}
		if _, err := replica.API.Do(ctx, "POST", "/v1/tenants", tenant, nil); err != nil {
			l.must(fmt.Errorf("creating tenants: %w", err))
		}
	}
	return query[[]int32](ctx, l, `
		SELECT array_agg(id ORDER BY id) FROM punctual.tenants WHERE name LIKE 'tenant-%'`)
}

// shared measures a burst whose jobs are dealt out to the tenants in turn.
func (l *lab) shared(ctx context.Context, f field, tenants []int32, round int) burst {
	n, name := l.Sizes.GrowthJobs, fmt.Sprintf("shared-%d-%d", len(tenants), round)
	path := "/burst/" + name
	due := l.nextSecond(3*time.Second + time.Duration(n)*300*time.Microsecond) // several times as long as seeding takes
	l.must(f.jobs(ctx, seed{
		prefix:  name,
		first:   1,
		last:    n,
		tenants: tenants,
		url:     f.to.url(path),
		at:      due,
	}))
	l.must(f.settle(ctx))
	l.inTime(fmt.Sprintf("%d jobs were there", n), due.Add(-time.Second), "they should have been")
	return l.measured(ctx, due, path, n, f.to, f.replica)
}
