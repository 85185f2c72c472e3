package scheduler

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler/domain"
)

const patient = `{"retry":{"max_attempts":1},"timeout":"1h"}`

func TestAStopClaimsNoMoreAndWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		store.add(10, compiled(t, patient), 0)
		r := start(t, store, dials.client, 4)
		time.Sleep(time.Second)
		asked := store.now()
		time.AfterFunc(7*time.Second, dials.letGo)
		r.stop()
		time.Sleep(6 * time.Second)
		if r.stopped() || store.ended() != 0 {
			t.Fatalf("it stopped with attempts in flight; %d outcomes", store.ended())
		}
		if !read(store, func() bool { return store.draining }) {
			t.Error("the others are not told")
		}
		if took := r.stopWithin(5 * time.Second); took > 1500*time.Millisecond {
			t.Errorf("it took %s longer than what was in flight", took-time.Second)
		}
		if n := len(store.claimsAfter(asked)); n != 0 {
			t.Errorf("%d claims after it was asked to stop", n)
		}
		if got := store.verdicts(); got[domain.Bury] != 4 || len(got) != 1 {
			t.Errorf("verdicts %v, want 4 attempts that ended by themselves", got)
		}
		store.once(t)
	})
}

func TestAfterTheDrainTimeoutUnsentRunsAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		store.add(4, compiled(t, patient), 0)
		r := start(t, store, dials.client, 4)
		time.Sleep(time.Second)
		if took := r.stopWithin(time.Minute); took < 25*time.Second || took > 26*time.Second {
			t.Errorf("it took %s", took)
		}
		if got := store.verdicts(); got[domain.GiveBack] != 4 || len(got) != 1 {
			t.Errorf("verdicts %v, want 4 given back", got)
		}
		store.once(t)
	})
}

// A second request to stop interrupts attempts, and their outcomes are written.
//
//prove:replicas
func TestAHurriedStopWaitsForNothingInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		store.add(4, compiled(t, patient), 0)
		hurry, now := context.WithCancel(t.Context())
		r := startConfig(t, store, Config{
			Queues: map[string]int{"default": 4}, DrainTimeout: time.Hour, Hurry: hurry, Client: dials.client,
		})
		time.Sleep(time.Second)
		r.stop()
		time.Sleep(10 * time.Second)
		if r.stopped() || store.ended() != 0 {
			t.Fatalf("%d outcomes before it was hurried", store.ended())
		}
		now()
		r.stopWithin(flushTimeout)
		if got := store.verdicts(); got[domain.GiveBack] != 4 || len(got) != 1 {
			t.Errorf("verdicts %v, want 4 given back", got)
		}
		store.once(t)
	})
}

func TestAnIdleReplicaStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := start(t, store, newGatedDials(t, false).client, 4)
		time.Sleep(10 * time.Second)
		if took := r.stopWithin(time.Second); took > 10*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if store.stoppedAt.IsZero() {
			t.Error("its row is still there")
		}
	})
}

// A claim that is cut off may have committed all the same. Then its runs would be lost with the replica.
func TestAClaimUnderWayIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.claiming = func(ctx context.Context) error {
			select {
			case <-time.After(300 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err() // after the commit was sent
			}
		}
		store.add(4, compiled(t, brief), 0)
		r := start(t, store, newGatedDials(t, false).client, 4)
		time.Sleep(100 * time.Millisecond)
		r.stopWithin(2 * time.Second)
		if store.runs() != 4 {
			t.Fatalf("%d runs claimed", store.runs())
		}
		store.once(t)
	})
}

// With a backlog the claims of a tick follow each other: one begins at once, two at 0.3 s, and two more at 0.6 s.
func TestNoFurtherClaimOfATickBegins(t *testing.T) {
	for name, failing := range map[string]bool{"when the replica is told to stop": false, "when one has failed": true} {
		virtually(t, name, func(t *testing.T) {
			store := newFakeStore()
			began := store.now()
			store.claiming = func(context.Context) error {
				late := store.now().Sub(began) > 200*time.Millisecond
				time.Sleep(300 * time.Millisecond)
				if failing && late {
					return errAway
				}
				return nil
			}
			store.add(2000, compiled(t, brief), 0)
			r := start(t, store, newGatedDials(t, false).client, 5000)
			time.Sleep(400 * time.Millisecond)
			if n := len(store.claimsAfter(began.Add(-1))); n != 3 {
				t.Fatalf("%d claims have begun, want 3", n)
			}
			if !failing {
				r.stop()
			}
			time.Sleep(500 * time.Millisecond)
			if n := len(store.claimsAfter(began.Add(400 * time.Millisecond))); n != 0 {
				t.Errorf("%d more claims began", n)
			}
		})
	}
}

func TestAClaimThatHangsDoesNotKeepAReplicaFromStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.claiming = hang
		store.add(4, compiled(t, brief), 0)
		r := start(t, store, newGatedDials(t, false).client, 4)
		time.Sleep(100 * time.Millisecond)
		r.stopWithin(29 * time.Second)
	})
}

func TestADatabaseThatIsAwayDoesNotKeepAReplicaFromStopping(t *testing.T) {
	for _, c := range []struct {
		name    string
		jobs    int
		hanging bool // the attempts hang
		break_  func(*fakeStore)
	}{
		{"outcomes cannot be written", 4, false, func(f *fakeStore) { f.finish = away }},
		{"writes hang", 4, false, func(f *fakeStore) { f.finish = hang }},
		{"more outcomes than can wait", 3000, false, func(f *fakeStore) { f.finish = away }},
		{"the heartbeat hangs", 4, true, func(f *fakeStore) { f.renew = hang }},
		{"everything hangs", 4, true, func(f *fakeStore) { f.renew, f.claiming, f.finish = hang, hang, hang }},
	} {
		virtually(t, c.name, func(t *testing.T) {
			store, dials := newFakeStore(), newGatedDials(t, c.hanging)
			store.add(c.jobs, compiled(t, patient), 0)
			r := start(t, store, dials.client, 10_000)
			time.Sleep(time.Second)
			store.set(func() { c.break_(store) })
			store.add(c.jobs, compiled(t, patient), 0)
			time.Sleep(time.Second)
			if took := r.stopWithin(time.Minute); took > 29500*time.Millisecond {
				t.Errorf("it took %s, longer than Kubernetes waits", took)
			}
		})
	}
}

// A request that was sent cannot be given back. This test uses real sockets, so it runs in real time.
func TestAfterTheDrainTimeoutWhatWasSentIsInterrupted(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}, 10), make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	t.Cleanup(server.Close)
	store := newFakeStore()
	store.add(3, compiled(t, `{"target":{"url":"`+server.URL+`"}}`), 0)
	r := startQueues(t, store, client(t), map[string]int{"default": 3}, time.Millisecond)
	for range 3 {
		<-arrived
	}
	r.stopWithin(time.Minute)
	for range 3 {
		<-gone
	}
	if got := store.verdicts(); got[domain.Interrupt] != 3 || len(got) != 1 {
		t.Errorf("verdicts %v, want 3 interrupted", got)
	}
	for _, o := range store.outcomes {
		if o.StartedAt.IsZero() || !strings.Contains(o.Error, "stopping") {
			t.Errorf("outcome %+v", o)
		}
	}
	store.once(t)
}

func TestAttemptsEndAsTheirTargetsAnswer(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]domain.Verdict{200: domain.Succeed, 500: domain.RetryRun, 410: domain.Bury} {
		url, requests := target(t, status)
		store := newFakeStore()
		store.add(1, compiled(t, `{"target":{"url":"`+url+`"}}`), 0)
		r := start(t, store, client(t), 3)
		if got := <-requests; got.Header.Get("Punctual-Attempt") != "1" {
			t.Errorf("headers %v", got.Header)
		}
		r.stopWithin(time.Minute) // the drain writes the outcome of the attempt in flight
		if store.verdicts()[want] != 1 {
			t.Errorf("after %d: verdicts %v", status, store.verdicts())
		}
		if o := store.outcomes[0]; o.HTTPStatus != status || o.StartedAt.Before(o.Lease.ClaimedAt) ||
			o.FinishedAt.Before(o.StartedAt) {
			t.Errorf("after %d: outcome %+v", status, o)
		}
		store.once(t)
	}
}

// A replica that is stopped while it starts leaves no row behind. Other replicas would take the row for a lost replica.
func TestAReplicaThatIsStoppedWhileItStartsLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		ctx, stop := context.WithCancel(t.Context())
		store.renew = func(context.Context) error { stop(); return nil }
		err := Run(ctx, store, Config{
			Queues: map[string]int{"default": 1}, Client: dials.client, Credentials: store,
			Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry(), time.Second),
		})
		if err != nil || read(store, func() time.Time { return store.stoppedAt }).IsZero() {
			t.Errorf("it ends with %v, deregistered at %s", err, store.stoppedAt)
		}
	})
}
