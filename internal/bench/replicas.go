package bench

import (
	"context"
	"fmt"

	"punctual/internal/process"
)

// runReplicas measures the burst with ever more replicas.
func runReplicas(ctx context.Context, l *lab) {
	g := newGrowth("replicas", powers(1, l.Sizes.ReplicasMost, 2))
	to := l.target(ctx)
	for round := range l.Rounds {
		var replicas []*process.Replica
		for _, s := range g.stages {
			for len(replicas) < s.n {
				replicas = append(replicas, l.serveSlots(ctx, l.Sizes.Slots))
			}
			l.say("round %d of %d: %d jobs, %s", round+1, l.Rounds, l.Sizes.BurstJobs, replicaCount(s.n))
			name := fmt.Sprintf("replicas-%d-%d", s.n, round)
			// A replica's first runs open its connections and plan its statements. No stage has more of that than others.
			l.burst(ctx, l.Sizes.BurstJobs/5, oneShot, name+"-first", to, replicas...)
			s.rounds = append(s.rounds, l.burst(ctx, l.Sizes.BurstJobs, oneShot, name, to, replicas...))
		}
		l.stop(ctx, replicas...)
	}
	one := g.stages[0].rounds
	for _, s := range g.stages {
		l.figure(replicaCount(s.n), "runs/s", nil, column(s.rounds, throughput)...)
		l.cpuFigure(replicaCount(s.n)+", CPU of Postgres", "µs/run", nil, column(s.rounds, postgresTime)...)
		l.figure(replicaCount(s.n)+", CPU of theirs", "µs/run", nil, column(s.rounds, replicaTime)...)
		var goal *Goal
		if s.n == 4 {
			goal = atLeast(0.95)
		}
		if s.n > 1 {
			l.figure(replicaCount(s.n)+", ratio to 1", "×", goal,
				ratios(column(s.rounds, throughput), column(one, throughput))...)
		}
	}
	l.plot(g.picture())
}

func replicaCount(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}
