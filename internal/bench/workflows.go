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
	var plain, steps []float64
	for round := range l.Rounds {
		n := l.Sizes.Workflows * workflowSteps
		plain = append(plain, l.burst(ctx, n, oneShot, fmt.Sprint("plain-", round), to, replica).perSecond)
		steps = append(steps, float64(n)/l.workflows(ctx, replica, to).Seconds())
	}
	l.figure("plain jobs", "runs/s", nil, plain...)
	l.figure("steps of workflows", "runs/s", nil, steps...)
	l.figure("steps of workflows, ratio to plain jobs", "×", atLeast(0.7), ratios(steps, plain)...)
}

// workflows creates workflows that begin at one instant, and returns how long it is until the last has ended.
func (l *lab) workflows(ctx context.Context, replica *process.Replica, to *target) time.Duration {
	path := fmt.Sprint("/workflow/", l.now().UnixNano())
	due, _ := l.herd(ctx, replica, l.Sizes.Workflows, func(due time.Time, try, i int) process.JobSpec {
		var steps []map[string]any
		for k := range workflowSteps {
			step := map[string]any{"name": fmt.Sprint("s", k), "target": map[string]any{"url": to.url(path)}}
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
	l.arrived(ctx, to, path, l.Sizes.Workflows*workflowSteps)
	l.must(await(ctx, "the last workflow", 5*time.Millisecond, func() (bool, error) {
		return tryQuery[bool](ctx, l, `
			SELECT NOT EXISTS (SELECT FROM punctual.workflows) AND NOT EXISTS (SELECT FROM punctual.claims)`)
	}))
	took := l.now().Sub(due)
	runs := query[int](ctx, l, `SELECT count(*) FROM punctual.runs WHERE scheduled_for = $1 AND status = 'succeeded'`, due)
	if expected := l.Sizes.Workflows * (workflowSteps + 1); runs != expected {
		l.must(fmt.Errorf("of %d runs %d have succeeded", expected, runs))
	}
	return took
}
