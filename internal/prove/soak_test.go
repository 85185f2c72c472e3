//prove:soaks

package prove

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
)

// soak begins a soak test and returns how long it must last. Only make soak runs these tests, not make test.
func soak(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("SOAK")
	if text == "" {
		t.Skip("runs by `make soak` only")
	}
	length, err := time.ParseDuration(text)
	if err != nil || length < 10*time.Second {
		t.Fatalf("SOAK=%q: write a duration of at least 10s, such as 10m", text)
	}
	return length
}

// seeded returns a random source, and logs its seed. SEED=… repeats a test.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SEED=%q: write a whole number", text)
		}
	}
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func pause(t testing.TB, rng *rand.Rand, least, most time.Duration) {
	pass(t, least+time.Duration(rng.Int64N(int64(most-least)+1)))
}

// repeat returns a function that calls work over and over until a time, with pauses in between.
func repeat(t testing.TB, seed uint64, until time.Time, least, most time.Duration, work func(*rand.Rand)) func() {
	rng := rand.New(rand.NewPCG(seed, 1))
	return func() {
		for pause(t, rng, least, most); time.Now().Before(until) && t.Context().Err() == nil; pause(t, rng, least, most) {
			work(rng)
		}
	}
}

// Three replicas, their database, its network and a target break at random for minutes. Nothing is lost, doubled, early
// or stuck.
//
// Next to a tenant whose rows fail or hang: once they are fixed, nothing of that tenant is stuck either. punctual
// verify finds nothing.
func TestSoakUnderANemesis(t *testing.T) {
	length, rng := soak(t), seeded(t)
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	b := newBesieged(t, pgtest.Database(t, server))
	b.server = server
	for range 3 {
		proxy, dsn := pgtest.NewProxy(t, pgtest.TCP(t, server, b.dsn))
		b.join(&member{proxy: proxy, dsn: dsn})
	}
	m := mixed(int(length.Seconds()))
	m.copies = 2
	b.stand(m)
	b.harbour(m)
	target, dying := b.dying(m)
	names, until := b.burden(m, append(b.hanging(m), dying...)...), m.end()
	var busy sync.WaitGroup
	busy.Go(repeat(t, rng.Uint64(), until, time.Second, 8*time.Second, func(rng *rand.Rand) { b.act(rng, names) }))
	busy.Go(repeat(t, rng.Uint64(), until, time.Second, 8*time.Second, b.attack))
	busy.Go(repeat(t, rng.Uint64(), until, 100*time.Millisecond, 600*time.Millisecond, func(rng *rand.Rand) {
		b.meddle(rng, names)
	}))
	busy.Go(repeat(t, rng.Uint64(), until, time.Second, 6*time.Second, func(rng *rand.Rand) { b.trespass(rng, names) }))
	busy.Go(repeat(t, rng.Uint64(), until, 5*time.Second, 20*time.Second, func(rng *rand.Rand) { b.crowd(rng, names) }))
	busy.Go(repeat(t, rng.Uint64(), until, 5*time.Second, 20*time.Second, func(rng *rand.Rand) { b.kill(target, rng) }))
	for range 2 {
		busy.Go(repeat(t, rng.Uint64(), until, time.Second, 6*time.Second, b.harm))
	}
	busy.Wait()
	await(t, "the last slots", func() bool { return time.Now().After(until) })
	b.amend()

	f := atRest(t, b.dsn, b.witness).and(target.requests())
	verify(t, f, Conditions{Frozen: b.frozen})
	b.checkDated(f)
	b.report(f)
	proven(t, b.dsn)
	stop(t, b.live()...)
}
