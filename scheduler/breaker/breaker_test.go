package breaker

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var key = Key{Tenant: 1, Host: "billing.internal:443"}

// fixture drives the breaker of one host.
type fixture struct {
	*Breakers
	t   *testing.T
	log bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t}
	f.Breakers = New(slog.New(slog.NewTextHandler(&f.log, nil)))
	return f
}

// out lets a request out, which must be allowed.
func (f *fixture) out() Permit {
	f.t.Helper()
	p, wait := f.Admit(key)
	if wait != nil {
		f.t.Fatalf("it must wait: %s", wait.Why)
	}
	return p
}

// held asks for a request that must not go out.
func (f *fixture) held() *Wait {
	f.t.Helper()
	_, wait := f.Admit(key)
	if wait == nil {
		f.t.Fatal("it is let out")
	}
	return wait
}

// do makes n requests, one after the other, that end in the same way.
func (f *fixture) do(n int, a Answer) {
	f.t.Helper()
	for range n {
		f.out().Done(a, "connection refused")
	}
}

// probe waits for as long as a request that is put off does, and makes it.
func (f *fixture) probe(a Answer) {
	f.t.Helper()
	time.Sleep(f.held().For)
	f.do(1, a)
}

// allowed is how many more requests it lets out now.
func (f *fixture) allowed() []Permit {
	f.t.Helper()
	var out []Permit
	for len(out) <= fullSpeed {
		p, wait := f.Admit(key)
		if wait != nil {
			break
		}
		out = append(out, p)
	}
	return out
}

func TestWhatOpensABreaker(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*fixture)
		open bool
	}{
		{"nothing", func(*fixture) {}, false},
		{"nine failures in a row do not", func(f *fixture) { f.do(9, Failed) }, false},
		{"ten do", func(f *fixture) { f.do(10, Failed) }, true},
		{"not with an answer among them", func(f *fixture) { f.do(9, Failed); f.do(1, Answered); f.do(9, Failed) }, false},
		{"requests that were cut off are neither", func(f *fixture) { f.do(9, Failed); f.do(5, Unknown); f.do(1, Failed) }, true},
		{"and never count", func(f *fixture) { f.do(100, Unknown) }, false},
		{"not with a long pause among them", func(f *fixture) { f.do(9, Failed); time.Sleep(forgetAfter + 1); f.do(9, Failed) }, false},
		{"a short one does not help", func(f *fixture) { f.do(9, Failed); time.Sleep(forgetAfter); f.do(1, Failed) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				c.do(f)
				if _, wait := f.Admit(key); (wait != nil) != c.open || (f.Open() == 1) != c.open {
					t.Errorf("waits: %v, %d open; want open: %t", wait, f.Open(), c.open)
				}
				if logged := strings.Count(f.log.String(), "circuit breaker opened"); (logged == 1) != c.open {
					t.Errorf("the log says:\n%s", f.log.String())
				}
			})
		})
	}
}

func TestABreakerIsOfOneTenantAndHost(t *testing.T) {
	f := newFixture(t)
	f.do(10, Failed)
	f.held()
	for _, other := range []Key{{2, key.Host}, {1, "billing.internal:80"}} {
		if _, wait := f.Admit(other); wait != nil {
			t.Errorf("%v: %s", other, wait.Why)
		}
	}
}

func TestTheCooldownDoublesUpToAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.do(10, Failed)
		for i, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
			opened := time.Now()
			for f.hosts[key].nextAt.After(time.Now()) {
				wait := f.held()
				if left := time.Until(f.hosts[key].nextAt); wait.For < left || wait.For > left+want/2 {
					t.Errorf("%s before the probe it must wait for %s", left, wait.For)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(opened); took < want*4/5 || took > want+100*time.Millisecond {
				t.Errorf("cooldown %d is %s, want up to %s", i+1, took, want)
			}
			p := f.out()
			if wait := f.held(); wait.For < want || wait.For > want*3/2 || !strings.Contains(wait.Why, "a probe is under way") {
				t.Errorf("while a probe is under way another waits for %s: %s", wait.For, wait.Why)
			}
			p.Done(Failed, "connection refused")
		}
		if n := strings.Count(f.log.String(), "\n"); n != 1 {
			t.Errorf("probes that fail are logged:\n%s", f.log.String())
		}
	})
}

func TestWhatWaitsIsToldWhyAndComesBackSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.do(10, Failed)
		f.hosts[key].nextAt = time.Now().Add(4 * time.Second)
		if got, want := f.held().Why, "waiting: the circuit breaker of billing.internal:443 is open after 10 failures in a row (last: connection refused); the next probe is in 4s"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		var hundreds [100]int // of milliseconds
		for range 10_000 {
			hundreds[f.held().For/(100*time.Millisecond)]++
		}
		for i, n := range hundreds {
			if n > 10_000/25*2 {
				t.Errorf("%d of 10,000 come back within the same tenth of a second, %d00 ms from now", n, i)
			}
		}
	})
}

func TestRecoveryRampsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.do(10, Failed)
		f.probe(Answered)
		var rounds []int
		for f.Open() == 1 {
			out := f.allowed()
			rounds = append(rounds, len(out))
			for _, p := range out {
				p.Done(Answered, "")
			}
			if len(rounds) > 20 {
				break
			}
		}
		if got := fmt.Sprint(rounds); got != "[1 2 4 8 16 32 64 128]" {
			t.Errorf("requests per round trip: %s", got)
		}
		if len(f.hosts) != 0 || !strings.Contains(f.log.String(), "circuit breaker closed") {
			t.Errorf("afterwards %d hosts are remembered, and the log says:\n%s", len(f.hosts), f.log.String())
		}
	})
}

func TestWhileItRecovers(t *testing.T) {
	settle := func(out []Permit, a Answer) {
		for _, p := range out {
			p.Done(a, "reset")
		}
	}
	for _, c := range []struct {
		name string
		do   func(*fixture)
		want string
	}{
		{"a failure of the only request opens it again", func(f *fixture) { f.do(1, Failed) }, "open"},
		{"a failure takes one away", func(f *fixture) { f.do(7, Answered); f.do(1, Failed) }, "7"},
		{"a host that fails now and then gets out", func(f *fixture) {
			for range 400 {
				f.do(9, Answered)
				f.do(1, Failed)
			}
		}, "closed"},
		{"ten failures in a row open it, however many are allowed", func(f *fixture) { f.do(99, Answered); settle(f.allowed()[:10], Failed) }, "open"},
		{"nine do not", func(f *fixture) { f.do(99, Answered); settle(f.allowed(), Unknown); f.do(9, Failed) }, "91"},
		{"one that was cut off changes nothing", func(f *fixture) { f.do(3, Answered); f.do(5, Unknown) }, "4"},
		{"a request that lasts does not hold up the others for ever", func(f *fixture) {
			f.out()
			f.held()
			time.Sleep(trickle)
			f.out()
			f.held()
			time.Sleep(trickle)
		}, "1"},
		{"it is over when none has had to wait for a while", func(f *fixture) { f.do(1, Answered); time.Sleep(calm + 1); f.do(1, Answered) }, "closed"},
		{"not while some have", func(f *fixture) {
			f.out()
			time.Sleep(calm / 2)
			f.out()
			f.held()
			time.Sleep(calm * 3 / 4)
			f.do(1, Answered)
		}, "0"},
		{"nor is it forgotten before its time", func(f *fixture) { time.Sleep(forgetAfter) }, "1"},
		{"it is forgotten when nobody calls", func(f *fixture) { time.Sleep(forgetAfter + 1) }, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.do(10, Failed)
				f.probe(Answered)
				c.do(f)
				got := "closed"
				if f.Open() == 1 {
					got = fmt.Sprint(len(f.allowed()))
					if f.hosts[key].state == open {
						got = "open"
					}
				}
				if got != c.want {
					t.Errorf("it is %s, want %s", got, c.want)
				}
			})
		})
	}
}

func TestWhatWaitsForARecoveryWaitsAboutAsLongAsAnAnswerTakes(t *testing.T) {
	for answer, want := range map[time.Duration]time.Duration{0: time.Second, 20 * time.Second: 20 * time.Second, time.Hour: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			f.do(10, Failed)
			time.Sleep(f.held().For)
			p := f.out()
			time.Sleep(answer)
			p.Done(Answered, "")
			f.hosts[key].touched = time.Now()
			f.out()
			wait := f.held()
			if wait.For < want/2 || wait.For > want*3/2 || !strings.Contains(wait.Why, "1 at a time") {
				t.Errorf("after an answer that took %s: %s, %s", answer, wait.For, wait.Why)
			}
		})
	}
}

func TestAnswersToWhatWasSentBeforeSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var before []Permit
		for range 40 {
			before = append(before, f.out())
		}
		late := func(n int, a Answer) {
			for _, p := range before[:n] {
				p.Done(a, "timeout")
			}
			before = before[n:]
		}
		late(20, Failed) // the first ten open it, and the others do not make the cooldown longer
		late(5, Answered)
		if h := f.hosts[key]; h.state != open || h.cooldown != shortestCooldown || h.failures != 10 {
			t.Errorf("%+v", h)
		}
		time.Sleep(f.held().For)
		hanging := f.out()
		time.Sleep(longestCooldown)
		f.out().Done(Answered, "") // a probe that hangs does not keep the next one back for ever
		hanging.Done(Failed, "timeout")
		late(15, Failed)
		if h := f.hosts[key]; h.state != recovering || h.allowed != 1 {
			t.Errorf("%+v", h)
		}
	})
}

func TestAProbeThatWasCutOffIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.do(10, Failed)
		f.probe(Unknown)
		f.out()
		f.held()
	})
}

func TestAnOpenBreakerThatNobodyAsksIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.do(10, Failed)
		p := f.hosts[key]
		time.Sleep(forgetAfter + 1)
		f.out().Done(Failed, "x")
		if h := f.hosts[key]; h == p || h.failures != 1 {
			t.Errorf("it still counts: %+v", h)
		}
	})
}

func TestTheMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	for i := range 2 * maxHosts {
		p, _ := f.Admit(Key{Host: fmt.Sprint(i)})
		p.Done(Failed, "x")
	}
	if n := len(f.hosts); n != maxHosts || int(f.known.Load()) != n {
		t.Errorf("%d hosts are remembered, %d known", n, f.known.Load())
	}
}

// Whatever comes in whatever order: what is in flight stays within what is allowed, nothing is remembered of
// a host that only answers, and a host that answers again is at full speed in the end.
func TestAnyHistoryEndsWell(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			f, r := newFixture(t), rand.New(rand.NewPCG(seed, 1))
			var out []Permit
			failing := r.Float64()
			for range 2000 {
				switch {
				case r.IntN(3) > 0:
					if p, wait := f.Admit(key); wait == nil {
						out = append(out, p)
					} else if wait.For <= 0 || wait.For > 2*longestCooldown {
						t.Fatalf("seed %d: it must wait for %s", seed, wait.For)
					}
				case len(out) > 0:
					i := r.IntN(len(out))
					a := Answered
					if x := r.Float64(); x < failing {
						a = Failed
					} else if x > 0.95 {
						a = Unknown
					}
					out[i].Done(a, "x")
					out = append(out[:i], out[i+1:]...)
				}
				if h := f.hosts[key]; h != nil && (h.inFlight < 0 || h.allowed < 0 || h.state == closed && (h.failures == 0 || h.failures >= tripAfter)) {
					t.Fatalf("seed %d: %+v", seed, *h)
				}
				time.Sleep(time.Duration(r.ExpFloat64() * float64(100*time.Millisecond)))
			}
			for range 2 * fullSpeed {
				p, wait := f.Admit(key)
				if wait == nil {
					p.Done(Answered, "")
				} else {
					time.Sleep(wait.For)
				}
			}
			if len(f.hosts) != 0 {
				t.Errorf("seed %d: answering again it is %+v", seed, *f.hosts[key])
			}
		})
	}
}

// BenchmarkHealthy is what a request to a healthy host pays, alone and while others' hosts fail.
func BenchmarkHealthy(b *testing.B) {
	for _, failing := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("%d hosts fail", failing), func(b *testing.B) {
			breakers := New(slog.New(slog.DiscardHandler))
			for i := range failing {
				for range tripAfter {
					p, _ := breakers.Admit(Key{2, fmt.Sprint(i)})
					p.Done(Failed, "x")
				}
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p, wait := breakers.Admit(key)
					if wait != nil {
						b.Error(wait.Why)
					}
					p.Done(Answered, "")
				}
			})
		})
	}
}

func BenchmarkHeldBack(b *testing.B) {
	breakers := New(slog.New(slog.DiscardHandler))
	for range tripAfter {
		p, _ := breakers.Admit(key)
		p.Done(Failed, "connection refused")
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = breakers.Admit(key)
	}
}
