package scheduler

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery"
)

func TestADeadHostTakesNeitherAttemptsNorWorkerSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		dials.refused = "127.0.0.1:9"
		const runs, slots = 300, 5
		store.add(runs, compiled(t, `{}`), 0)
		r := start(t, store, dials.client, slots)
		time.Sleep(time.Second)
		sent := dials.dials
		if sent < 10 || sent >= 10+slots {
			t.Errorf("%d attempts; 10 open the breaker, and %d more may be in flight then", sent, slots-1)
		}
		if got := store.verdicts(); got[RetryRun] != sent || got[GiveBack] != runs-sent {
			t.Errorf("verdicts %v after %d attempts of %d runs", got, sent, runs)
		}
		for _, o := range store.outcomes {
			if o.Verdict != GiveBack {
				continue
			}
			if o.RetryIn < time.Second || o.RetryIn > 7500*time.Millisecond || !o.StartedAt.IsZero() || o.End().Number != 0 {
				t.Fatalf("put off: %+v, for %s", o.End(), o.RetryIn)
			}
			if !strings.HasPrefix(o.Error, "waiting: the circuit breaker of 127.0.0.1:9 is open after 10 failures in a row (last: connection refused); the next probe is in ") {
				t.Fatalf("put off because: %s", o.Error)
			}
		}
		if n := r.metric("punctual_deferred_attempts_total"); int(n) != runs-sent {
			t.Errorf("%v deferred attempts in the metrics", n)
		}
		if n := r.metric("punctual_breakers_open"); n != 1 {
			t.Errorf("%v breakers are open by the metrics", n)
		}
		store.once(t)
	})
}

func TestAHostThatHangsHoldsWorkerSlotsOnceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		store.add(200, compiled(t, `{"timeout":"10s"}`), 0)
		start(t, store, dials.client, 20)
		time.Sleep(9 * time.Second)
		if n := store.runs(); n != 20 {
			t.Errorf("%d runs with 20 worker slots", n)
		}
		time.Sleep(2 * time.Second)
		// Until ten have timed out, what gets their slots is sent as well.
		if n := store.ended(); n <= 200-10 {
			t.Errorf("%d of 200 runs have left the replica after the first ones timed out", n)
		}
		time.Sleep(10 * time.Second)
		store.once(t)
	})
}

func TestWhoseBreakerIsOpen(t *testing.T) {
	for _, c := range []struct {
		name, job string
		late      time.Duration
		want      Verdict
	}{
		{"another job of the host waits", `{"target":{"url":"http://127.0.0.1:9/other"}}`, 0, GiveBack},
		{"another port does not", `{"target":{"url":"http://127.0.0.1:8/hook"}}`, 0, RetryRun},
		{"nor does another host", `{"target":{"url":"http://127.0.0.2:9/hook"}}`, 0, RetryRun},
		{"what has expired does not wait", `{"expires_after":"1s"}`, 2 * time.Second, Expire},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, dials := newFakeStore(), newGatedDials(t, false)
				dials.refused = "127.0.0.1:9"
				store.add(10, compiled(t, `{}`), 0)
				start(t, store, dials.client, 10)
				time.Sleep(time.Second)
				before := store.verdicts()[c.want]
				store.add(1, compiled(t, c.job), -c.late)
				time.Sleep(2 * time.Second)
				if n := store.verdicts()[c.want] - before; n != 1 {
					t.Errorf("verdicts %v", store.verdicts())
				}
			})
		})
	}
}

// The address is refused here, so the host is never asked.
func TestBlockedAddressesOpenNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		store.add(100, compiled(t, `{}`), 0)
		r := start(t, store, dials.client, 10)
		time.Sleep(time.Second)
		if got := store.verdicts(); got[RetryRun] != 100 || r.metric("punctual_breakers_open") != 0 {
			t.Errorf("verdicts %v", got)
		}
	})
}

func TestBreakerKey(t *testing.T) {
	for raw, want := range map[string]string{
		"http://a.test/x?y=1":       "a.test:80",
		"https://a.test":            "a.test:443",
		"https://A.Test.:443/":      "a.test:443",
		"http://a.test:443/":        "a.test:443",
		"http://127.0.0.1:8080":     "127.0.0.1:8080",
		"https://[2001:db8::1]/":    "[2001:db8::1]:443",
		"https://[2001:DB8::1]:99/": "[2001:db8::1]:99",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := breakerKey(7, u); got != (breaker.Key{Tenant: 7, Host: want}) {
			t.Errorf("%s: %v, want %s", raw, got, want)
		}
	}
}

func TestWhatAnAnswerSaysAboutItsHost(t *testing.T) {
	for _, c := range []struct {
		result delivery.Result
		want   breaker.Answer
	}{
		{delivery.Result{Status: 200}, breaker.Answered},
		{delivery.Result{Status: 302, Reason: delivery.ReasonRedirect}, breaker.Answered},
		{delivery.Result{Status: 404, Reason: delivery.ReasonHTTP4xx}, breaker.Answered},
		{delivery.Result{Status: 429, Reason: delivery.ReasonHTTP4xx}, breaker.Answered},
		{delivery.Result{Status: 503, Reason: delivery.ReasonHTTP5xx}, breaker.Failed},
		{delivery.Result{Reason: delivery.ReasonConnect}, breaker.Failed},
		{delivery.Result{Reason: delivery.ReasonTLS}, breaker.Failed},
		{delivery.Result{Reason: delivery.ReasonTimeout}, breaker.Failed},
		{delivery.Result{Status: 200, Reason: delivery.ReasonTimeout}, breaker.Failed},
		{delivery.Result{Reason: delivery.ReasonBlockedAddress}, breaker.Unknown},
		{delivery.Result{Cancelled: true}, breaker.Unknown},
		{delivery.Result{Status: 500, Cancelled: true}, breaker.Unknown},
	} {
		if got := hostAnswer(c.result); got != c.want {
			t.Errorf("%+v: %d, want %d", c.result, got, c.want)
		}
	}
}
