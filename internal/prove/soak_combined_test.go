//prove:soaks

package prove

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
)

// meddled runs a mix on a fleet of three until the last slot, while callers meddle and the limits of the tenant change.
// Meanwhile it calls fault with the time of the last slot, and afterwards then. It returns when everything is at rest.
func meddled(
	t *testing.T, rng *rand.Rand, fleetDSN, dsn string, length time.Duration,
	fault func(rng *rand.Rand, until time.Time), then func(),
) (*besieged, Facts) {
	t.Helper()
	b := newBesieged(t, fleetDSN)
	for range 3 {
		b.join(&member{dsn: fleetDSN})
	}
	m := mixed(int(length.Seconds()))
	names, until := b.burden(m), m.end()
	var busy sync.WaitGroup
	faults := rand.New(rand.NewPCG(rng.Uint64(), 2))
	busy.Go(func() { fault(faults, until) })
	busy.Go(repeat(t, rng.Uint64(), until, 100*time.Millisecond, 600*time.Millisecond, func(rng *rand.Rand) {
		b.meddle(rng, names)
	}))
	busy.Go(repeat(t, rng.Uint64(), until, time.Second, 5*time.Second, b.relimit))
	busy.Wait()
	then()
	b.lift()
	await(t, "the last slots", func() bool { return time.Now().After(until) })
	conn := connect(t, dsn)
	await(t, "all slots to be claimed", func() bool {
		return query[bool](t, conn, `
			SELECT NOT EXISTS (SELECT FROM punctual.schedules WHERE enabled AND next_run_at <= now())`)
	})
	return b, atRest(t, dsn, b.witness)
}

// relimit changes the limits of the tenant. The database may be away.
func (b *besieged) relimit(rng *rand.Rand) {
	limits := []string{
		"max_concurrent_runs = 3, max_runs_per_second = NULL", "max_concurrent_runs = NULL, max_runs_per_second = 20",
		"max_concurrent_runs = NULL, max_runs_per_second = NULL",
	}
	sql := `UPDATE punctual.tenants SET ` + limits[rng.IntN(len(limits))] + ` WHERE name = 'default'`
	if err := b.execute(sql); err == nil {
		b.note("change of limits")
	}
}

// lift removes the limits, and retries until it succeeds.
func (b *besieged) lift() {
	await(b.t, "the limits to be lifted", func() bool {
		return b.execute(`
			UPDATE punctual.tenants
			SET max_concurrent_runs = NULL, max_runs_per_second = NULL
			WHERE name = 'default'`) == nil
	})
}

// The database's clock is stepped, behind PgBouncer, while callers edit, pause, trigger, replay and backfill.
//
// Limits apply, too.
func TestSoakAClockThatIsSteppedBehindPgBouncer(t *testing.T) {
	length, rng := soak(t), seeded(t)
	t.Parallel()
	clock := pgtest.NewClock(t)
	server := pgtest.NewServer(t, privatepg.Config{Env: clock.Env})
	t.Cleanup(func() { neverCrashed(t, server) })
	dsn := pgtest.Database(t, server)
	bouncer := pgtest.PgBouncer(t, server, dsn, "default_pool_size = 30")
	steps := 0
	b, f := meddled(t, rng, bouncer, dsn, max(length/5, 20*time.Second), func(rng *rand.Rand, until time.Time) {
		repeat(t, rng.Uint64(), until, time.Second, 8*time.Second, func(rng *rand.Rand) {
			clock.Step(time.Duration(rng.IntN(41)-20) * time.Second)
			steps++
		})()
	}, func() { clock.Step(0) })
	verify(t, f, Conditions{ClockSteps: true})
	t.Logf("%d steps of the clock", steps)
	b.checkDated(f)
	b.report(f)
	stop(t, b.live()...)
}

// The synchronous standby is promoted in the middle of that load.
func TestSoakAFailoverWhileCallersMeddle(t *testing.T) {
	length, rng := soak(t), seeded(t)
	t.Parallel()
	primary := pgtest.NewServer(t, privatepg.Config{})
	dsn := pgtest.Doomed(t, primary)
	standby := pgtest.NewStandby(t, primary, "")
	configure(t, primary, `synchronous_standby_names = '*'`)
	b, f := meddled(t, rng, pgtest.Either(t, dsn, primary, standby), pgtest.TCP(t, standby, dsn),
		max(length/5, 20*time.Second), func(rng *rand.Rand, until time.Time) {
			pass(t, time.Until(until)/2)
			failOver(t, primary, standby)
		}, func() {})
	verify(t, f, Conditions{})
	b.checkDated(f)
	b.report(f)
	stop(t, b.live()...)
}
