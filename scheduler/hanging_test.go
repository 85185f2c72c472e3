package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// hangOnce returns a function whose first call hangs until its context ends.
func hangOnce() func(context.Context) error {
	hung := false
	return func(ctx context.Context) error {
		if hung {
			return nil
		}
		hung = true
		return hang(ctx)
	}
}

// The server vanishes, and connections hang. No loop waits for longer than its limit.
//
//prove:database
func TestAConnectionThatHangsHoldsNoLoopForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		store.claiming, store.finish = hangOnce(), hangOnce()
		start(t, store, dials.client, 10)
		time.Sleep(time.Second)
		store.add(1, compiled(t, brief), 0) // its run is lost with the claim that hangs
		store.wake <- struct{}{}
		time.Sleep(time.Second)
		store.add(1, compiled(t, brief), 0)
		time.Sleep(tickTimeout + 2*time.Second)
		if n := store.runs(); n != 2 {
			t.Errorf("%d runs claimed, want 2: the one whose claim hung and the one after it", n)
		}
		time.Sleep(finishTimeout)
		if n := store.ended(); n != 1 {
			t.Errorf("%d outcomes written, want 1", n)
		}
	})
}

// A claim is answered when the replica may count as lost. It is not sent.
//
// The other replica may be sending it.
//
//prove:database
func TestAClaimThatIsAnsweredAfterATakeoverIsNotSent(t *testing.T) {
	for name, outage := range map[string]time.Duration{
		"the heartbeat still fails": time.Hour, "the heartbeat is back": 11 * time.Second,
	} {
		virtually(t, name, func(t *testing.T) {
			store, dials := newFakeStore(), newGatedDials(t, false)
			began := time.Now()
			store.claiming = func(context.Context) error { time.Sleep(14 * time.Second); return nil }
			store.renew = func(context.Context) error {
				if since := time.Since(began); since > time.Second && since < outage {
					return errAway
				}
				return nil
			}
			store.add(1, compiled(t, brief), 0)
			start(t, store, dials.client, 10)
			time.Sleep(20 * time.Second)
			if n := store.runs(); n != 1 || dials.dials != 0 {
				t.Errorf("%d runs claimed and %d requests sent, want 1 and none", n, dials.dials)
			}
		})
	}
}

// A run must not be sent either after this replica has given its claim back. It gives a claim back when it cannot tell
// whether the claim was committed.
func TestAClaimThatIsAnsweredAfterItWasGivenBackIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		store.claiming = func(context.Context) error {
			store.set(func() { store.holding = append(store.holding, store.lease) })
			time.Sleep(6 * time.Second)
			return nil
		}
		store.add(1, compiled(t, brief), 0)
		start(t, store, dials.client, 10)
		time.Sleep(10 * time.Second)
		if n := read(store, func() int { return len(store.givenBack) }); n != 1 || dials.dials != 0 {
			t.Errorf("%d claims given back and %d requests sent, want 1 and none", n, dials.dials)
		}
	})
}
