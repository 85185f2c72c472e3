package breaker

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

var key = Key{Tenant: 1, Host: "billing.internal:443"}

// fixture drives the breaker of one host and keeps the runs that are parked for it.
type fixture struct {
	*Breakers
	t      *testing.T
	log    bytes.Buffer
	parked []uuid.UUID // the jobs of the parked runs, longest wait first
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t}
	f.Breakers = New(slog.New(slog.NewTextHandler(&f.log, nil)))
	return f
}

// newOpen returns a fixture whose breaker has just opened.
func newOpen(t *testing.T) *fixture {
	f := newFixture(t)
	f.do(10, Unreachable)
	return f
}

// whenOpen runs a test in virtual time, with a breaker that has just opened.
func whenOpen(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newOpen(t)) })
}

// out asks for a request that must be admitted, and returns its permit.
func (f *fixture) out() Permit {
	f.t.Helper()
	p, wait := f.Admit(key, Fresh, time.Now())
	if wait != nil {
		f.t.Fatalf("it must wait: %s", wait.Why)
	}
	return p
}

// held asks for a request that must be held back, and returns why it waits.
func (f *fixture) held() *Wait {
	f.t.Helper()
	_, wait := f.Admit(key, Fresh, time.Now())
	if wait == nil {
		f.t.Fatal("it is let out")
	}
	return wait
}

// do makes n requests, one after another, that all end with the same answer.
func (f *fixture) do(n int, a Answer) {
	f.t.Helper()
	for range n {
		f.out().Done(a, "connection refused")
	}
}

// park makes n runs of a new job wait, and returns the job.
func (f *fixture) park(n int) uuid.UUID {
	job := uuid.New()
	for range n {
		f.parked = append(f.parked, job)
	}
	return job
}

// fetch claims the parked runs that the breaker wants, and admits them.
func (f *fixture) fetch() (out []Permit, jobs []uuid.UUID) {
	f.t.Helper()
	for _, w := range f.Wanted(10) {
		var found, left []uuid.UUID
		for _, job := range f.parked {
			if len(found) < w.Most && !slices.Contains(w.Not, job) {
				found = append(found, job)
			} else {
				left = append(left, job)
			}
		}
		f.parked = left
		f.Fetched(w, found, len(found) == w.Most)
		for range found {
			if p, wait := f.Admit(key, Waited, time.Now()); wait == nil {
				out = append(out, p)
			} else {
				f.t.Errorf("it was wanted, and is not let out: %s", wait.Why)
			}
		}
		jobs = append(jobs, found...)
	}
	return out, jobs
}

// probe waits until the breaker wants a parked run, ends its request with the answer, and returns its job.
func (f *fixture) probe(a Answer) uuid.UUID {
	f.t.Helper()
	for range 1000 {
		if out, jobs := f.fetch(); len(out) > 0 {
			out[0].Done(a, "connection refused")
			return jobs[0]
		}
		time.Sleep(max(f.Until(time.Minute), time.Millisecond))
	}
	f.t.Fatal("no run is ever wanted as a probe")
	return uuid.Nil
}

func (f *fixture) isOpen() bool { return len(f.All()) == 1 }

func TestWhatOpensABreaker(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*fixture)
		open bool
	}{
		{"nothing", func(*fixture) {}, false},
		{"nine failures in a row do not", func(f *fixture) { f.do(9, Unreachable) }, false},
		{"ten do", func(f *fixture) { f.do(10, Unreachable) }, true},
		{
			"not with an answer among them",
			func(f *fixture) { f.do(9, Unreachable); f.do(1, Answered); f.do(9, Unreachable) }, false,
		},
		{
			"nor with a connection on which no answer came",
			func(f *fixture) { f.do(9, Unreachable); f.do(1, Reached); f.do(9, Unreachable) }, false,
		},
		{"connections without answers never do", func(f *fixture) { f.do(100, Reached) }, false},
		{
			"requests that were cut off are neither",
			func(f *fixture) { f.do(9, Unreachable); f.do(5, Unknown); f.do(1, Unreachable) }, true,
		},
		{"and never count", func(f *fixture) { f.do(100, Unknown) }, false},
		{
			"not with a long pause among them",
			func(f *fixture) { f.do(9, Unreachable); time.Sleep(forgetAfter + 1); f.do(9, Unreachable) }, false,
		},
		{
			"a short one does not help",
			func(f *fixture) { f.do(9, Unreachable); time.Sleep(forgetAfter); f.do(1, Unreachable) }, true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				c.do(f)
				if _, wait := f.Admit(key, Fresh, time.Now()); (wait != nil) != c.open || f.isOpen() != c.open {
					t.Errorf("waits: %v, %v open; want open: %t", wait, f.All(), c.open)
				}
				if logged := strings.Count(f.log.String(), "circuit breaker opened"); (logged == 1) != c.open {
					t.Errorf("the log says:\n%s", f.log.String())
				}
			})
		})
	}
}

func TestABreakerIsOfOneTenantAndHost(t *testing.T) {
	f := newOpen(t)
	f.held()
	for _, other := range []Key{{2, key.Host}, {1, "billing.internal:80"}} {
		if _, wait := f.Admit(other, Fresh, time.Now()); wait != nil {
			t.Errorf("%v: %s", other, wait.Why)
		}
	}
}

func TestTheCooldownDoublesUpToAMinute(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		f.park(100)
		seconds := time.Second
		for i, want := range []time.Duration{
			5 * seconds, 10 * seconds, 20 * seconds, 40 * seconds, time.Minute, time.Minute,
		} {
			opened := time.Now()
			f.held()
			f.probe(Unreachable)
			if took := time.Since(opened); took < want*4/5 || took > want+100*time.Millisecond {
				t.Errorf("cooldown %d is %s, want up to %s", i+1, took, want)
			}
		}
		if n := strings.Count(f.log.String(), "\n"); n != 1 {
			t.Errorf("probes that fail are logged:\n%s", f.log.String())
		}
	})
}

func TestWhatWaitsIsToldWhy(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		f.hosts[key].nextAt = time.Now().Add(4 * time.Second)
		want := "waiting: the circuit breaker of billing.internal:443 is open after 10 failures in a row (last: connection refused); the next probe is in 4s"
		if w := f.held(); w.Why != want || w.By != "breaker billing.internal:443" || w.Hanging {
			t.Errorf("%+v\nwant %s", w, want)
		}
		f.park(1)
		time.Sleep(4 * time.Second)
		f.fetch()
		if w := f.held(); !strings.HasSuffix(w.Why, "a probe is under way") {
			t.Errorf("while a probe is under way: %s", w.Why)
		}
	})
}

// Probes go round the jobs in turn. A run that has just become due does not overtake parked runs.
func TestProbesGoRoundTheJobsInTurn(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		first, second, third := f.park(20), f.park(20), f.park(1)
		want := []uuid.UUID{first, second, third, first, second, first, second}
		for i, w := range want {
			time.Sleep(longestCooldown)
			f.held() // a new run must wait even when a probe is due
			if got := f.probe(Unreachable); got != w {
				t.Fatalf("probe %d is of another job than the one whose turn it is", i+1)
			}
		}
	})
}

func TestWithoutRunsThatWaitTheNextOneIsTheProbe(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		time.Sleep(longestCooldown)
		f.held() // the breaker does not know yet that no run is parked
		f.fetch()
		f.out().Done(Answered, "")
		if f.fetch(); f.isOpen() {
			t.Error("the host answers, nothing waits, and the breaker is not closed")
		}
	})
}

func TestARunByHandIsAlwaysSent(t *testing.T) {
	f := newOpen(t)
	for range 5 {
		p, wait := f.Admit(key, Always, time.Now())
		if wait != nil {
			t.Fatal(wait.Why)
		}
		p.Done(Unreachable, "connection refused")
	}
	f.held()
	p, _ := f.Admit(key, Always, time.Now())
	if p.Done(Answered, ""); !f.Recovering() {
		t.Error("it was answered, and the host does not recover")
	}
}

// A run that may not wait any longer is a probe before the cooldown is over, unless one is under way or was just sent.
func TestTheLastOneIsAProbe(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		last := func() (Permit, *Wait) { return f.Admit(key, Last, time.Now()) }
		began := time.Now()
		p, wait := last()
		if wait != nil {
			t.Fatalf("the first one must wait: %s", wait.Why)
		}
		if w := f.held(); w.Failed.After(began) {
			t.Error("while the probe is under way, it counts as failed")
		}
		time.Sleep(3 * time.Second)
		if _, wait := last(); wait == nil || wait.Again != 3*time.Second {
			t.Errorf("beside a probe that has been under way for 3 s: %+v, want to ask again after as long", wait)
		}
		p.Done(Unreachable, "connection refused")
		if w := f.held(); !w.Failed.Equal(began) {
			t.Errorf("the latest failure began %s after the probe", w.Failed.Sub(began))
		}
		p, wait = last()
		if wait != nil {
			t.Fatalf("3 s after the latest probe it must wait: %s", wait.Why)
		}
		p.Done(Unreachable, "connection refused")
		if _, wait := last(); wait == nil || wait.Again != trickle {
			t.Errorf("just after a probe: %+v, want to ask again after %s", wait, trickle)
		}
		time.Sleep(trickle)
		p, _ = last()
		p.Done(Answered, "")
		if _, wait := last(); wait != nil {
			t.Errorf("the host recovers, and none is under way: %s", wait.Why)
		}
		if w := f.held(); !w.Failed.IsZero() {
			t.Error("a host that recovers has failed")
		}
	})
}

func TestRecoveryRampsUp(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		f.park(10_000)
		f.probe(Answered)
		var rounds []int
		for f.isOpen() && len(rounds) < 20 {
			out, _ := f.fetch()
			rounds = append(rounds, len(out))
			for _, p := range out {
				p.Done(Answered, "")
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
	for _, c := range []struct {
		name string
		do   func(*fixture)
		want string
	}{
		{"a failure of the only request opens it again", func(f *fixture) { f.do(1, Unreachable) }, "open"},
		{"a failure takes one away", func(f *fixture) { f.do(7, Answered); f.do(1, Unreachable) }, "7"},
		{"a host that fails now and then gets out", func(f *fixture) {
			for range 400 {
				f.do(9, Answered)
				f.do(1, Unreachable)
			}
		}, "closed"},
		{"a connection without an answer allows no more", func(f *fixture) { f.do(7, Answered); f.do(5, Reached) }, "8"},
		{"one that was cut off changes nothing", func(f *fixture) { f.do(3, Answered); f.do(5, Unknown) }, "4"},
		{"a request that lasts does not hold up the others for ever", func(f *fixture) {
			f.out()
			f.held()
			time.Sleep(trickle)
			f.out()
			f.held()
			time.Sleep(trickle)
		}, "1"},
		{"it is over when none waits any more", func(f *fixture) { f.parked = nil; f.fetch() }, "closed"},
		{"not while some do", func(f *fixture) { f.fetch() }, "0"},
		{"nor is it forgotten before its time", func(f *fixture) { time.Sleep(forgetAfter) }, "1"},
		{"it is forgotten when nobody calls", func(*fixture) { time.Sleep(forgetAfter + 1) }, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			whenOpen(t, func(t *testing.T, f *fixture) {
				f.park(1000)
				f.probe(Answered)
				f.hosts[key].touched = time.Now()
				c.do(f)
				got := "closed"
				if f.isOpen() {
					got = fmt.Sprint(f.allowance())
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

// allowance counts the requests that the breaker admits now, and admits them.
func (f *fixture) allowance() (n int) {
	for n <= fullSpeed {
		if _, wait := f.Admit(key, Fresh, time.Now()); wait != nil {
			break
		}
		n++
	}
	return n
}

func TestRunsThatWereFetchedAndNeverAskedAreNotWaitedFor(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		time.Sleep(longestCooldown)
		w := f.Wanted(1)[0]
		// The fetched run never asks to be admitted, say because its replica cannot renew its heartbeat.
		f.Fetched(w, []uuid.UUID{uuid.New()}, true)
		if n := len(f.Wanted(1)); n != 0 {
			t.Error("another probe is wanted at once")
		}
		time.Sleep(fetchTakes + 1)
		if n := len(f.Wanted(1)); n != 1 {
			t.Error("no probe is ever wanted again")
		}
	})
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
		late(20, Unreachable) // the first ten open the breaker; the others do not lengthen the cooldown
		late(5, Answered)
		if h := f.hosts[key]; h.state != open || h.cooldown != shortestCooldown || h.failures != 10 {
			t.Errorf("%+v", h)
		}
		late(15, Unreachable)
		if h := f.hosts[key]; h.cooldown != shortestCooldown {
			t.Errorf("%+v", h)
		}
	})
}

func TestAProbeThatHangsIsFollowedByAnother(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		f.park(10)
		time.Sleep(shortestCooldown)
		hanging, _ := f.fetch()
		time.Sleep(longestCooldown)
		if len(hanging) != 1 || len(f.Wanted(1)) != 1 {
			t.Errorf("%d probes, and %v are wanted", len(hanging), f.Wanted(1))
		}
	})
}

func TestAProbeThatWasCutOffIsFollowedByAnother(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		f.park(2)
		f.probe(Unknown)
		again := time.Now()
		if f.probe(Answered); time.Since(again) > time.Second {
			t.Errorf("the next probe came %s later", time.Since(again))
		}
	})
}

func TestAnotherReplicaReachedTheHost(t *testing.T) {
	f := newOpen(t)
	f.park(1)
	if len(f.Wanted(1)) != 0 {
		t.Fatal("a probe is wanted before its time")
	}
	f.Probe(key)
	if len(f.Wanted(1)) != 1 {
		t.Error("another replica has reached the host, and no probe is wanted")
	}
}

func TestReset(t *testing.T) {
	f := newOpen(t)
	f.Reset(key)
	f.out()
	f.Reset(Key{Host: "unknown"})
}

func TestAnOpenBreakerThatNobodyAsksIsForgotten(t *testing.T) {
	whenOpen(t, func(t *testing.T, f *fixture) {
		p := f.hosts[key]
		time.Sleep(forgetAfter + 1)
		f.out().Done(Unreachable, "x")
		if h := f.hosts[key]; h == p || h.failures != 1 {
			t.Errorf("it still counts: %+v", h)
		}
	})
}

func TestTheMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	for i := range 2 * maxHosts {
		p, _ := f.Admit(Key{Host: fmt.Sprint(i)}, Fresh, time.Now())
		p.Done(Unreachable, "x")
	}
	if n := len(f.hosts); n != maxHosts || int(f.known.Load()) != n {
		t.Errorf("%d hosts are remembered, %d known", n, f.known.Load())
	}
}

// After any history of requests and answers, a host that answers again returns to full speed, and no run stays parked.
// The breaker remembers nothing of a host that only answers.
func TestAnyHistoryEndsWell(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			f, r := newFixture(t), rand.New(rand.NewPCG(seed, 1))
			var out []Permit
			failing := r.Float64()
			for range 2000 {
				switch {
				case r.IntN(3) > 0:
					if p, wait := f.Admit(key, Fresh, time.Now()); wait == nil {
						out = append(out, p)
					} else {
						f.park(1)
					}
				case r.IntN(3) == 0:
					more, _ := f.fetch()
					out = append(out, more...)
				case len(out) > 0:
					i := r.IntN(len(out))
					out[i].Done(randomAnswer(r, failing), "x")
					out = append(out[:i], out[i+1:]...)
				}
				h := f.hosts[key]
				if h != nil &&
					(h.inFlight < 0 || h.allowed < 0 || h.state == closed && (h.failures == 0 || h.failures >= tripAfter)) {
					t.Fatalf("seed %d: %+v", seed, *h)
				}
				time.Sleep(time.Duration(r.ExpFloat64() * float64(100*time.Millisecond)))
			}
			for range 100 * fullSpeed {
				if len(f.hosts) == 0 {
					return
				}
				more, _ := f.fetch()
				for _, p := range more {
					p.Done(Answered, "")
				}
				if p, wait := f.Admit(key, Fresh, time.Now()); wait == nil {
					p.Done(Answered, "")
				}
				time.Sleep(f.Until(time.Second))
			}
			t.Errorf("seed %d: answering again it is %+v", seed, *f.hosts[key])
		})
	}
}

func randomAnswer(r *rand.Rand, failing float64) Answer {
	switch x := r.Float64(); {
	case x < failing:
		return Unreachable
	case x > 0.95:
		return Unknown
	case x > 0.9:
		return Reached
	}
	return Answered
}

// BenchmarkHealthy measures what a request to a healthy host costs, alone and while hosts of another tenant fail.
func BenchmarkHealthy(b *testing.B) {
	for _, failing := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("%d hosts fail", failing), func(b *testing.B) {
			breakers, hangs := New(slog.New(slog.DiscardHandler)), NewHangs(slog.New(slog.DiscardHandler))
			for i := range failing {
				for range tripAfter {
					p, _ := breakers.Admit(Key{2, fmt.Sprint(i)}, Fresh, time.Now())
					p.Done(Unreachable, "x")
				}
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p, wait := breakers.Admit(key, Fresh, time.Now())
					f, hang := hangs.Admit(Request{Queue: 1, Slots: 500, To: Place{Key: key, Path: "/hook"}})
					if wait != nil || hang != nil {
						b.Error("it must wait")
					}
					p.Done(Answered, "")
					hangs.End(f, true, false)
				}
			})
		})
	}
}
