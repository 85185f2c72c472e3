package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"punctual/internal/process"
)

// highLimit is a limit that never binds.
const highLimit = 1_000_000

// slowly is the response time of the target in the test of max_concurrent_runs.
const slowly = 20 * time.Millisecond

// runLimits compares the burst of a tenant without limits with the same burst under limits that never bind. It also
// measures how much a limit that binds lets through when several replicas share it.
func runLimits(ctx context.Context, l *lab) {
	l.vacuums()
	var fleet []*process.Replica
	for range 3 {
		fleet = append(fleet, l.serveSlots(ctx, l.Sizes.Slots))
	}
	to := l.target(ctx)
	l.limitThatBind(ctx, fleet, to)
	l.stop(ctx, fleet[1:]...)
	l.limitThatDoNot(ctx, fleet[0], to)
}

// limit sets the limits of the API's tenant; 0 removes a limit. Replicas notice within two seconds, and a herd is due
// later than that.
func (l *lab) limit(ctx context.Context, concurrent, perSecond int) {
	l.exec(ctx, `
		UPDATE punctual.tenants
		SET max_concurrent_runs = nullif($1::int, 0), max_runs_per_second = nullif($2::int, 0)
		WHERE name = 'default'`, concurrent, perSecond)
}

func (l *lab) limitThatDoNot(ctx context.Context, replica *process.Replica, to *target) {
	var free, limited []burst
	for round := range l.Rounds {
		turns := []int{0, highLimit}
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for _, most := range turns {
			l.say("round %d of %d: %d jobs, limits of %d", round+1, l.Rounds, l.Sizes.BurstJobs, most)
			l.limit(ctx, most, most)
			b := l.burst(ctx, l.Sizes.BurstJobs, oneShot, fmt.Sprintf("limits-%d-%d", most, round), to, replica)
			if most == 0 {
				free = append(free, b)
			} else {
				limited = append(limited, b)
			}
		}
	}
	l.figure("no limits", "runs/s", nil, column(free, throughput)...)
	l.figure("limits that never bind", "runs/s", nil, column(limited, throughput)...)
	l.figure("limits that never bind, ratio to none", "×", atLeast(0.9),
		ratios(column(limited, throughput), column(free, throughput))...)
	l.cpuFigure("no limits, CPU of Postgres", "µs/run", nil, column(free, postgresTime)...)
	l.cpuFigure("limits that never bind, CPU of Postgres", "µs/run", nil, column(limited, postgresTime)...)
}

func (l *lab) limitThatBind(ctx context.Context, fleet []*process.Replica, to *target) {
	n := l.Sizes.LimitedJobs
	most, perSecond := max(1, n/100), max(1, n/5)
	l.say("%d jobs on 3 replicas, %d at once", n, most)
	l.limit(ctx, most, 0)
	path := fmt.Sprintf("/slow/%s/limits", slowly)
	took := l.limited(ctx, fleet, to, path, n)
	a, err := to.of(ctx, path)
	l.must(err)
	l.figure("3 replicas, most at once of those allowed", "×", atMost(1), float64(a.Most)/float64(most))
	l.figure("3 replicas, at once on average of those allowed", "×", nil,
		float64(n)*slowly.Seconds()/took.Seconds()/float64(most))

	l.say("%d jobs on 3 replicas, %d in a second", n, perSecond)
	l.limit(ctx, 0, perSecond)
	path = "/late/limits"
	took = l.limited(ctx, fleet, to, path, n)
	late := l.lateness(ctx, to, path, n)
	// The target of 2 includes the burst that the limit allows.
	l.figure("3 replicas, most in a second of those allowed", "×", atMost(2),
		float64(mostInASecond(late))/float64(perSecond))
	l.figure("3 replicas, in a second on average of those allowed", "×", nil,
		float64(n)/took.Seconds()/float64(perSecond))
}

// limited measures how long n jobs take that are due at one instant.
func (l *lab) limited(ctx context.Context, fleet []*process.Replica, to *target, path string, n int) time.Duration {
	due, _ := l.herd(ctx, fleet[0], n, func(due time.Time, try, i int) process.JobSpec {
		return job(fmt.Sprintf("%s-%d-%d", path[1:5], try, i), oneShot(due), to.url(path), nil)
	})
	b := l.measured(ctx, due, path, n, to, fleet...)
	return time.Duration(float64(n) / b.perSecond * float64(time.Second))
}

// mostInASecond returns the largest number of the given instants, in milliseconds, that lie within one second.
func mostInASecond(at []float64) (most int) {
	slices.Sort(at)
	first := 0
	for i := range at {
		for at[i]-at[first] >= 1000 {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
