package scheduler

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

func TestClaimsThatAReplicaDoesNotHoldEndAtTheSecondBeat(t *testing.T) {
	t.Parallel()
	l := newLeases()
	unsent, known := l.ask(), l.ask()
	l.hold(known)
	if unsent, lost := l.strays([]uuid.UUID{known, unsent}); len(unsent)+len(lost) != 0 {
		t.Errorf("at the first beat: %v and %v; they may have been committed a moment ago", unsent, lost)
	}
	fresh := l.ask()
	if got, lost := l.strays([]uuid.UUID{known, unsent, fresh}); !slices.Equal(got, []uuid.UUID{unsent}) || lost != nil {
		t.Errorf("at the second beat %v are given back, and %v are lost; want %v and none", got, lost, unsent)
	}
	if l.hold(unsent) {
		t.Error("a claim that was given back is sent")
	}
	l.acknowledge(nil, []uuid.UUID{known})
	l.strays([]uuid.UUID{known})
	if unsent, got := l.strays([]uuid.UUID{known}); !slices.Equal(got, []uuid.UUID{known}) || unsent != nil {
		t.Errorf("of a lease that has ended, and is there, %v are given back, and %v are lost", unsent, got)
	}
}

func TestALeaseKnowsWhichOfItsOutcomesWereAcknowledged(t *testing.T) {
	t.Parallel()
	l := newLeases()
	lease := &domain.Lease{ID: l.ask(), Remaining: 1}
	l.hold(lease.ID)
	if _, runs := l.doubtful(); runs != nil {
		t.Errorf("runs in doubt before an outcome: %v", runs)
	}
	first, second := uuid.New(), uuid.New()
	ended := func(run uuid.UUID) []domain.Outcome {
		return []domain.Outcome{{Assignment: domain.Assignment{RunID: run, Lease: lease}}}
	}
	l.acknowledge(ended(first), nil)
	if ids, runs := l.doubtful(); !slices.Equal(ids, []uuid.UUID{lease.ID}) || !slices.Equal(runs, []uuid.UUID{first}) {
		t.Errorf("in doubt are %v under %v", runs, ids)
	}
	if runs := l.earlier([]uuid.UUID{lease.ID}); !slices.Equal(runs, []uuid.UUID{first}) {
		t.Errorf("earlier runs %v", runs)
	}
	lease.Remaining = 0
	l.acknowledge(ended(second), []uuid.UUID{lease.ID})
	if len(l.held) != 0 || len(l.asked) != 0 {
		t.Errorf("remembered of a lease that has ended: %v, %v", l.held, l.asked)
	}
}

// The database is told which runs of a lease had ended before its last one, and is asked about them meanwhile.
func TestTheEndOfALeaseNamesItsEarlierRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		dials.stuck = "127.0.0.1:8"
		store.add(3, compiled(t, prompt), 0)
		store.add(1, compiled(t, hangs), 0)
		start(t, store, dials.client, 10)
		time.Sleep(2 * time.Minute)
		ended := func() []uuid.UUID { return read(store, func() []uuid.UUID { return store.released }) }
		if n := len(ended()); n != 0 {
			t.Fatalf("%d leases have ended before their last run", n)
		}
		if n := len(read(store, func() []uuid.UUID { return store.doubted })); n < 3 {
			t.Errorf("the database was asked about %d runs, want 3 each minute", n)
		}
		dials.letGo()
		time.Sleep(time.Second)
		if n := len(read(store, func() []uuid.UUID { return store.earlier })); n != 3 || len(ended()) != 1 {
			t.Errorf("%d leases have ended, with %d earlier runs; want one with 3", len(ended()), n)
		}
	})
}

// An asynchronous failover brings back a lease that had ended. Its runs were sent.
func TestALeaseThatTheDatabaseBringsBackIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		store.add(1, compiled(t, prompt), 0)
		start(t, store, dials.client, 10)
		time.Sleep(time.Second)
		store.set(func() { store.holding = slices.Clone(store.released) })
		time.Sleep(10 * time.Second)
		given := read(store, func() []uuid.UUID { return store.givenBack })
		lost := read(store, func() []uuid.UUID { return store.lost })
		if len(given) != 0 || len(lost) != 1 {
			t.Errorf("%d claims are given back and %d are lost, want none and one", len(given), len(lost))
		}
	})
}

// What a replica remembers of a database may not be true of the one that takes over.
func TestWhatTheDatabaseMayHaveLostIsDoubtedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		dials.stuck = "127.0.0.1:8"
		store.add(1, compiled(t, prompt), 0)
		store.add(1, compiled(t, hangs), 0)
		start(t, store, dials.client, 10)
		time.Sleep(5 * time.Second)
		reports := read(store, func() int { return store.reports })
		store.set(func() { store.replaced = true })
		time.Sleep(5 * time.Second)
		if n := len(read(store, func() []uuid.UUID { return store.doubted })); n != 1 {
			t.Errorf("the database was asked about %d runs, want one", n)
		}
		if n := read(store, func() int { return store.reports }); n != reports+1 {
			t.Errorf("what is held back was reported %d times, want once", n-reports)
		}
	})
}
