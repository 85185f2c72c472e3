//prove:soaks

package prove

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// drawnOutPath answers some requests at once and others after seconds. The runs of its jobs are due together with
// those of all others, so claims have long and short requests.
const drawnOutPath = "/drawn-out"

// drawnOut returns jobs whose requests take long at times. They may overlap, or must not.
func (b *besieged) drawnOut(m mix) (jobs []process.JobSpec) {
	b.witness.Cycle(drawnOutPath,
		Answer{Delay: 8 * time.Second}, Answer{}, Answer{Delay: 3 * time.Second}, Answer{Status: 503}, Answer{})
	for i := range 3 {
		for _, policy := range []string{"allow", "forbid", "wait"} {
			spec := m.everySecond()
			spec["concurrency_policy"], spec["timeout"] = policy, "30s"
			jobs = append(jobs, job(fmt.Sprint("drawn-out-", policy, "-", i), b.witness.URL+drawnOutPath, spec))
		}
	}
	return jobs
}

// failLossily lets the standby fall behind for some seconds, crashes the primary and promotes the standby. What the
// database acknowledged in between is lost. It returns that time.
func (b *besieged) failLossily(rng *rand.Rand, primary, standby *privatepg.Server) Span {
	defer b.away(time.Now())
	began := time.Now()
	configure(b.t, standby, `primary_conninfo = ''`)
	pause(b.t, rng, time.Second, 6*time.Second)
	must(b.t, primary.Crash())
	pause(b.t, rng, 0, 5*time.Second)
	pgtest.Promote(b.t, standby)
	b.note("failover that loses commits")
	return Span{began, time.Now()}
}

// withoutLost returns the facts without the requests inside the lag whose attempts the new primary knows nothing of.
func (f Facts) withoutLost(lag Span) (_ Facts, lost int) {
	seen := len(f.Requests)
	f.Requests = slices.DeleteFunc(f.Requests, func(q Request) bool {
		return during([]Span{lag}, q.At) && unrecorded(f, q)
	})
	return f, seen - len(f.Requests)
}

// Failovers to a standby that lags, while callers interfere and replicas are killed.
//
// Lost outcomes are found. Each round has servers of its own.
func TestSoakFailoversThatLoseOutcomes(t *testing.T) {
	length, rng := soak(t), seeded(t)
	t.Parallel()
	for began, round := time.Now(), 1; time.Since(began) < length/2; round++ {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) { failoverUnderLoad(t, rng) })
	}
}

func failoverUnderLoad(t *testing.T, rng *rand.Rand) {
	primary := pgtest.NewServer(t, privatepg.Config{})
	dsn := pgtest.Doomed(t, primary)
	standby := pgtest.NewStandby(t, primary, "")
	both := pgtest.Either(t, dsn, primary, standby)
	b := newBesieged(t, both)
	for range 3 {
		b.join(&member{dsn: both})
	}
	m := mixed(30)
	names, until := b.burden(m, b.drawnOut(m)...), m.end()
	var lag Span
	var busy sync.WaitGroup
	faults := rand.New(rand.NewPCG(rng.Uint64(), 2))
	busy.Go(func() {
		pause(t, faults, 8*time.Second, 15*time.Second)
		replicated(t, primary)
		lag = b.failLossily(faults, primary, standby)
	})
	busy.Go(repeat(t, rng.Uint64(), until, 100*time.Millisecond, 600*time.Millisecond, func(rng *rand.Rand) {
		b.meddle(rng, names)
	}))
	busy.Go(repeat(t, rng.Uint64(), until, 5*time.Second, 15*time.Second, func(rng *rand.Rand) {
		defer b.fault("kill -9")()
		at := b.members[rng.IntN(len(b.members))]
		at.replica.Kill()
		b.set(at, nil)
		b.start(at)
	}))
	busy.Wait()
	await(t, "the last slots", func() bool { return time.Now().After(until) })

	promoted := pgtest.TCP(t, standby, dsn)
	f, lost := atRest(t, promoted, b.witness).withoutLost(lag)
	verify(t, f, Conditions{})
	b.report(f)
	t.Logf("%d requests inside the lag are not on record; outcomes that were lost and found: %d", lost,
		query[int](t, connect(t, promoted), `
			SELECT count(*) FROM punctual.attempts WHERE error LIKE 'the database has lost%'`))
	proven(t, promoted)
	stop(t, b.live()...)
}
