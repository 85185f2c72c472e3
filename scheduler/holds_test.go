package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"
	"punctual/scheduler/breaker"
	"punctual/scheduler/domain"
)

// A host refuses the connections of 300 runs. Ten attempts open its breaker; after that, only probes are sent.
func TestADeadHostTakesNeitherAttemptsNorWorkerSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		dials.refused = "127.0.0.1:9"
		const runs, slots = 300, 5
		store.add(runs, compiled(t, `{}`), 0)
		r := start(t, store, dials.client, slots)
		time.Sleep(time.Second)
		sent := dials.tried()
		if sent < 10 || sent >= 10+slots {
			t.Errorf("%d attempts; 10 open the breaker, and %d more may be in flight then", sent, slots-1)
		}
		if got := store.verdicts(); got[domain.RetryRun] != sent || got[domain.Hold] != runs-sent {
			t.Errorf("verdicts %v after %d attempts of %d runs", got, sent, runs)
		}
		for _, o := range store.outcomes {
			if o.Verdict != domain.Hold {
				continue
			}
			if o.Held.By != "breaker 127.0.0.1:9" || o.Held.Until.Sub(o.Held.Since) != o.Job.Retry.Remaining(1) ||
				!o.StartedAt.IsZero() || o.End().Number != 0 {
				t.Fatalf("put off: %+v, by %+v", o.End(), o.Held)
			}
			if !strings.HasPrefix(o.Error, "waiting: the circuit breaker of 127.0.0.1:9 is open after 10 failures in a row") {
				t.Fatalf("put off because: %s", o.Error)
			}
		}
		if n := r.metric("punctual_deferred_attempts_total"); int(n) != runs-sent {
			t.Errorf("%v deferred attempts in the metrics", n)
		}
		if n := r.metric("punctual_breakers_open"); n != 1 {
			t.Errorf("%v breakers are open by the metrics", n)
		}
		if states := read(store, func() []admit.HoldState { return store.states }); len(states) != 1 ||
			states[0].By != "breaker 127.0.0.1:9" || states[0].State != breaker.Open {
			t.Errorf("told: %+v", states)
		}
		time.Sleep(10 * time.Minute)
		if probes := dials.tried() - sent; probes < 8 || probes > 15 {
			t.Errorf("%d probes in ten minutes", probes)
		}
		store.once(t)
	})
}

func TestAResetLetsRunsGoAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		dials.refused = "127.0.0.1:9"
		job := compiled(t, `{}`)
		store.add(100, job, 0)
		start(t, store, dials.client, 10)
		time.Sleep(time.Second)
		store.set(func() {
			store.orders = []admit.HoldOrder{{Tenant: job.Tenant, Host: "127.0.0.1:9", Reset: true}}
			store.held = nil
		})
		time.Sleep(2 * heartbeatEvery)
		before := dials.tried()
		store.add(1, job, 0)
		time.Sleep(2 * time.Second)
		if n := dials.tried() - before; n != 1 {
			t.Errorf("%d attempts after the reset, want 1", n)
		}
	})
}

func TestWhoseBreakerIsOpen(t *testing.T) {
	for _, c := range []struct {
		name, job string
		late      time.Duration
		want      domain.Verdict
	}{
		{"another job of the host waits", `{"target":{"url":"http://127.0.0.1:9/other"}}`, 0, domain.Hold},
		{"a job with a single attempt is sent", `{"retry":{"max_attempts":1}}`, 0, domain.Bury},
		{"another port does not wait", `{"target":{"url":"http://127.0.0.1:8/hook"}}`, 0, domain.RetryRun},
		{"nor does another host", `{"target":{"url":"http://127.0.0.2:9/hook"}}`, 0, domain.RetryRun},
		{"what has expired does not wait", `{"expires_after":"1s"}`, 2 * time.Second, domain.Expire},
	} {
		virtually(t, c.name, func(t *testing.T) {
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
	}
}

func TestWhatIsFirstClaimedLaterThanItsToleranceIsLate(t *testing.T) {
	due := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		trigger domain.Trigger
		after   time.Duration
		want    bool
	}{
		{"a slot within its tolerance", domain.TriggerSchedule, 60 * time.Second, false},
		{"a slot beyond it", domain.TriggerSchedule, 61 * time.Second, true},
		{"a run by hand", domain.TriggerManual, 61 * time.Second, true},
		{"what has expired is not sent", domain.TriggerSchedule, 61 * time.Minute, false},
		{"somebody asked for a backfill", domain.TriggerBackfill, time.Hour, false},
		{"or a replay", domain.TriggerReplay, time.Hour, false},
		{"a notice", domain.TriggerNotify, time.Hour, false},
	} {
		a := domain.Assignment{Job: compiled(t, `{"expires_after": "1h"}`), Trigger: c.trigger, DueAt: due}
		if got := a.TurnsLate(due.Add(c.after)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// Punctual itself refuses the address, so the host is never called and says nothing about its health.
func TestBlockedAddressesOpenNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		store.add(100, compiled(t, `{}`), 0)
		r := start(t, store, dials.client, 10)
		time.Sleep(time.Second)
		if got := store.verdicts(); got[domain.RetryRun] != 100 || r.metric("punctual_breakers_open") != 0 {
			t.Errorf("verdicts %v", got)
		}
	})
}
