package bench

import (
	"context"
	"fmt"

	"punctual/httpapi/proc"
)

// runReplicas compares the burst on four replicas with the burst on one.
func runReplicas(ctx context.Context, l *lab) error {
	queues := fmt.Sprintf("--queues=default=%d", l.Sizes.Slots)
	first, err := l.serve(ctx, queues)
	if err != nil {
		return err
	}
	to, err := l.target(ctx)
	if err != nil {
		return err
	}
	var one, four []burst
	for round := range l.Rounds {
		l.say("round %d of %d: %d jobs, 1 replica", round+1, l.Rounds, l.Sizes.BurstJobs)
		b, err := l.burst(ctx, oneShot, fmt.Sprint("one-", round), []*proc.Replica{first}, to)
		if err != nil {
			return err
		}
		one = append(one, b)
		replicas := []*proc.Replica{first}
		for len(replicas) < 4 {
			r, err := l.serve(ctx, queues)
			if err != nil {
				return err
			}
			replicas = append(replicas, r)
		}
		l.say("round %d of %d: %d jobs, 4 replicas", round+1, l.Rounds, l.Sizes.BurstJobs)
		if b, err = l.burst(ctx, oneShot, fmt.Sprint("four-", round), replicas, to); err != nil {
			return err
		}
		four = append(four, b)
		for _, r := range replicas[1:] {
			if err := r.Stop(ctx); err != nil {
				return fmt.Errorf("stopping a replica: %w", err)
			}
		}
	}
	perSecond := func(b burst) float64 { return b.perSecond }
	l.figure("1 replica", "runs/s", nil, column(one, perSecond)...)
	l.figure("4 replicas", "runs/s", nil, column(four, perSecond)...)
	l.figure("4 replicas, ratio to 1", "×", atLeast(0.95), ratios(column(four, perSecond), column(one, perSecond))...)
	l.cpuFigure("1 replica, CPU of Postgres", "µs/run", nil, column(one, func(b burst) float64 { return b.postgres })...)
	l.cpuFigure("4 replicas, CPU of Postgres", "µs/run", nil, column(four, func(b burst) float64 { return b.postgres })...)
	return nil
}
