package scheduler

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// choreLog is what a test sees of a chore: when each batch began, counted from the start.
type choreLog struct {
	began time.Time
	at    []time.Duration
}

// batch returns the batch of a chore that is logged. then says how the n-th batch ends, counted from 1.
func (l *choreLog) batch(
	then func(n int) (time.Duration, bool, error),
) func(context.Context) (time.Duration, bool, error) {
	l.began = time.Now()
	return func(context.Context) (time.Duration, bool, error) {
		l.at = append(l.at, time.Since(l.began))
		return then(len(l.at))
	}
}

func none(int) (time.Duration, bool, error) { return 0, false, nil }

// startChores runs a replica that does chores and claims nothing.
func startChores(t *testing.T, store *fakeStore, chores ...Chore) *replica {
	t.Helper()
	return startConfig(t, store, Config{Client: newGatedDials(t, false).client, Chores: chores})
}

func TestAChoreWithAPeriodIsDoneAtOnceAndEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var did choreLog
		startChores(t, newFakeStore(), Chore{Name: "sweep", Every: time.Minute, Batch: did.batch(none)})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if len(did.at) < 5 || len(did.at) > 6 || did.at[0] != 0 {
			t.Errorf("done at %v", did.at)
		}
	})
}

func TestAChoreIsDoneWhenAHeartbeatAsksForItUntilNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var did choreLog
		store := newFakeStore()
		startChores(t, store, Chore{Name: "replay", Batch: did.batch(func(n int) (time.Duration, bool, error) {
			return 300 * time.Millisecond, n%3 != 0, nil
		})})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(did.at) != 0 {
			t.Errorf("done at %v, before it was asked for", did.at)
		}
		store.set(func() { store.asks = []string{"replay", "unknown"} })
		asked := time.Since(did.began)
		time.Sleep(2 * time.Second) // a heartbeat asks, perhaps two
		store.set(func() { store.asks = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(did.at); n != 3 && n != 6 || did.at[0] > asked+2*time.Second {
			t.Fatalf("asked for at %s, there were %d batches, at %v", asked, n, did.at)
		}
		for i, at := range did.at[1:3] {
			if gap := at - did.at[i]; gap != 300*time.Millisecond {
				t.Errorf("batch %d came %s after the one before", i+2, gap)
			}
		}
	})
}

func TestAChoreThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, periodic choreLog
		store := newFakeStore()
		store.asks = []string{"replay"}
		fails := func(n int) (time.Duration, bool, error) {
			if n <= 3 {
				return 0, true, errAway
			}
			store.set(func() { store.asks = nil })
			return 0, false, nil
		}
		r := startChores(t, store,
			Chore{Name: "replay", Does: "replays", Batch: asked.batch(fails)},
			Chore{Name: "sweep", Does: "sweeping", Every: time.Minute, Batch: periodic.batch(fails)})
		time.Sleep(200 * time.Second)
		synctest.Wait()
		want := []time.Duration{0, chorePause, 2 * chorePause, 3 * chorePause}
		if first := asked.at[:min(4, len(asked.at))]; !slices.Equal(first, want) {
			t.Errorf("the chore that was asked for was done at %v, want %v", asked.at, want)
		}
		if n := len(periodic.at); n < 3 || n > 5 || periodic.at[1] < 50*time.Second {
			t.Errorf("the chore with a period was done at %v", periodic.at)
		}
		if got := r.metric("punctual_maintenance_failures_total"); got != 3 {
			t.Errorf("%v failures of chores with a period are counted, want 3", got)
		}
	})
}

func TestAChoreWithMuchToDoDoesNotKeepAReplicaFromStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.asks = []string{"replay"}
		var did choreLog
		r := startChores(t, store, Chore{Name: "replay", Batch: did.batch(func(int) (time.Duration, bool, error) {
			return 300 * time.Millisecond, true, nil
		})})
		time.Sleep(time.Minute)
		r.stopWithin(time.Second)
		if len(did.at) < 100 {
			t.Errorf("%d batches in a minute", len(did.at))
		}
	})
}

func TestAWriteOfThisProcessStartsAChoreAndEndsItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var did choreLog
		store := newFakeStore()
		store.asked = map[string]chan struct{}{"replay": make(chan struct{}, 2)}
		startChores(t, store, Chore{Name: "replay", Batch: did.batch(func(n int) (time.Duration, bool, error) {
			return time.Hour, n == 1, nil
		})})
		for _, after := range []time.Duration{time.Minute, chorePause / 2} {
			time.Sleep(after)
			store.asked["replay"] <- struct{}{}
			synctest.Wait()
		}
		want := []time.Duration{time.Minute, time.Minute + chorePause/2}
		if !slices.Equal(did.at, want) {
			t.Errorf("done at %v, want %v", did.at, want)
		}
	})
}
