package bench

import (
	"context"
	"fmt"

	"punctual/internal/process"
)

// runReplicas measures the burst with ever more replicas. Bare loops in as many processes are beside it. What these
// cost more than one loop does, processes take from each other, whatever they do.
func runReplicas(ctx context.Context, l *lab) {
	l.vacuums()
	g := newGrowth("replicas", powers(1, l.Sizes.ReplicasMost, 2))
	to := l.target(ctx)
	loops := map[int][]float64{}
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
			loops[s.n] = append(loops[s.n], l.bareLoops(ctx, to, "/bare/"+name, s.n))
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
		l.figure(replicaCount(s.n)+", CPU of as many bare loops", "µs/request", nil, loops[s.n]...)
		if s.n > 1 {
			l.cpuFigure(replicaCount(s.n)+", CPU of theirs and of Postgres, ratio to 1", "×", nil,
				ratios(column(s.rounds, ownTime), column(one, ownTime))...)
			l.figure(replicaCount(s.n)+", CPU of as many bare loops, ratio to 1", "×", nil, ratios(loops[s.n], loops[1])...)
			l.figure(replicaCount(s.n)+", ratio to 1", "×", goal,
				ratios(column(s.rounds, throughput), column(one, throughput))...)
		}
	}
}

func ownTime(b burst) float64 { return b.replica + b.postgres }

// bareLoops runs bare loops with our own client in several processes, which share the requests. It returns the
// processor time of theirs that a request took, in microseconds.
func (l *lab) bareLoops(ctx context.Context, to *target, path string, processes int) float64 {
	var used float64
	for _, r := range l.bareTogether(ctx, to, path, processes, "--own") {
		used += r.CPU
	}
	return 1e6 * used / float64(l.Sizes.BurstJobs/processes*processes)
}

func replicaCount(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}
