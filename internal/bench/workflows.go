package bench

import (
	"context"
	"fmt"
	"time"

	"punctual/internal/process"
)

// A workflow of the benchmark has four steps in a row, five times side by side.
const (
	sideBySide    = 5
	workflowSteps = 4 * sideBySide
)

// runWorkflows measures workflows that begin at one instant, and as many plain jobs as these have steps.
func runWorkflows(ctx context.Context, l *lab) {
	replica, to := l.setting(ctx)
	var plain, steps []burst
	for round := range l.Rounds {
		n := l.Sizes.Workflows * workflowSteps
		plain = append(plain, l.burst(ctx, n, oneShot, fmt.Sprint("plain-", round), to, replica))
		steps = append(steps, l.workflows(ctx, replica, to))
	}
	tell := func(of string, rounds []burst) {
		l.figure(of, "runs/s", nil, column(rounds, throughput)...)
		l.cpuFigure(of+", CPU of Postgres", "µs/run", nil, column(rounds, postgresTime)...)
		l.figure(of+", CPU of the replica", "µs/run", nil, column(rounds, replicaTime)...)
	}
	tell("plain jobs", plain)
	tell("steps of workflows", steps)
	l.figure("steps of workflows, ratio to plain jobs", "×", atLeast(0.7),
		ratios(column(steps, throughput), column(plain, throughput))...)
}

// workflows creates workflows that begin at one instant, and measures until the last has ended. What their own runs use
// counts for their steps.
func (l *lab) workflows(ctx context.Context, replica *process.Replica, to *target) burst {
	began := l.now().UnixNano()
	path := func(try int) string { return fmt.Sprintf("/workflow/%d-%d", began, try) } // a try may have been discarded
	due, try := l.herd(ctx, replica, l.Sizes.Workflows, func(due time.Time, try, i int) process.JobSpec {
		var steps []map[string]any
		for k := range workflowSteps {
			step := map[string]any{"name": fmt.Sprint("s", k), "target": map[string]any{"url": to.url(path(try))}}
			if k >= sideBySide {
				step["depends_on"] = []string{fmt.Sprint("s", k-sideBySide)}
			}
			steps = append(steps, step)
		}
		return process.JobSpec{
			"name": fmt.Sprintf("workflow-%d-%d-%d", due.Unix(), try, i), "schedule": oneShot(due), "steps": steps,
		}
	})
	l.until(ctx, due.Add(-100*time.Millisecond))
	before := l.meter(ctx, processes([]*process.Replica{replica}), to)
	l.arrived(ctx, to, path(try), l.Sizes.Workflows*workflowSteps)
	l.must(await(ctx, "the last workflow", 5*time.Millisecond, func() (bool, error) {
		return tryQuery[bool](ctx, l, `
			SELECT NOT EXISTS (SELECT FROM punctual.workflows) AND NOT EXISTS (SELECT FROM punctual.claims)`)
	}))
	took := l.now().Sub(due)
	after := l.meter(ctx, processes([]*process.Replica{replica}), to)
	runs := query[int](ctx, l, `SELECT count(*) FROM punctual.runs WHERE scheduled_for = $1 AND status = 'succeeded'`, due)
	if expected := l.Sizes.Workflows * (workflowSteps + 1); runs != expected {
		l.must(fmt.Errorf("of %d runs %d have succeeded", expected, runs))
	}
	return after.since(before, l.Sizes.Workflows*workflowSteps, took)
}
