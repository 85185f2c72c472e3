package scheduler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// strangers is a store in which another transaction locks rows of runs.
type strangers struct {
	*fakeStore
	holds func(domain.Outcome) bool // whether the row is locked; guarded by fakeStore.mu
	fails func(domain.Outcome) bool // whether it cannot be written
}

func (s *strangers) Finish(
	ctx context.Context, outcomes []domain.Outcome, released []uuid.UUID, _ ...uuid.UUID,
) (int, error) {
	left := &LeftOutcomesError{Runs: map[uuid.UUID]string{}, Failing: map[uuid.UUID]error{}}
	var free []domain.Outcome
	holds := read(s.fakeStore, func() func(domain.Outcome) bool { return s.holds })
	for _, o := range outcomes {
		switch {
		case s.fails != nil && s.fails(o):
			left.Failing[o.RunID] = errors.New("the row is damaged")
		case holds != nil && holds(o):
			left.Runs[o.RunID] = "runs"
		default:
			free = append(free, o)
			continue
		}
		if slices.Contains(released, o.Lease.ID) && !slices.Contains(left.Leases, o.Lease.ID) {
			left.Leases = append(left.Leases, o.Lease.ID)
		}
	}
	ended := slices.DeleteFunc(slices.Clone(released), func(id uuid.UUID) bool { return slices.Contains(left.Leases, id) })
	if n, err := s.fakeStore.Finish(ctx, free, ended); err != nil || len(left.Runs)+len(left.Failing) == 0 {
		return n, err
	}
	return 0, left
}

// Outcomes whose rows are locked are retried aside, and others written meanwhile.
//
//prove:database
func TestOutcomesWhoseRowsAreLockedWaitAndOthersDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &strangers{fakeStore: newFakeStore()}
		victim := compiled(t, brief)
		store.holds = func(o domain.Outcome) bool { return o.Job == victim }
		store.add(3, victim, 0)
		store.add(47, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, false).client, 100)
		for range 60 {
			store.add(1, compiled(t, brief), 0)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * longestSleep) // an idle tick loop looks for due work about once a second
		synctest.Wait()
		if n := store.ended(); n != 47+60 {
			t.Errorf("%d outcomes are written, want %d: all others", n, 47+60)
		}
		if n := read(store.fakeStore, func() int { return store.writes }); n > 60+60+20 {
			t.Errorf("%d writes in a minute", n)
		}
		released := read(store.fakeStore, func() int { return len(store.released) })
		store.set(func() { store.holds = nil })
		time.Sleep(longestRetry)
		synctest.Wait()
		if n := store.ended(); n != 50+60 {
			t.Errorf("%d outcomes are written, want %d: all", n, 50+60)
		}
		if n := read(store.fakeStore, func() int { return len(store.released) }); n <= released ||
			n != read(store.fakeStore, func() int { return store.leases }) {
			t.Errorf("%d leases are ended, %d while rows were locked", n, released)
		}
		store.once(t)
	})
}

// However many outcomes cannot be written, a replica keeps some of them only, and writes all others.
func TestOutcomesThatCannotBeWrittenNeverStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, victim, well := &strangers{fakeStore: newFakeStore()}, compiled(t, brief), compiled(t, brief)
		store.fails = func(o domain.Outcome) bool { return o.Job == victim }
		for range 30 {
			store.add(100, victim, 0)
			store.add(1, well, 0)
		}
		start(t, store, newGatedDials(t, false).client, 100)
		time.Sleep(time.Minute)
		store.add(1, well, 0)
		time.Sleep(longestSleep * 2)
		synctest.Wait()
		if n := store.ended(); n != 31 {
			t.Errorf("%d outcomes are written, want 31", n)
		}
		kept := read(store.fakeStore, func() int { return store.leases - len(store.released) })
		if kept > mostStuck || kept == 0 {
			t.Errorf("%d leases are kept, for at most %d outcomes", kept, mostStuck)
		}
	})
}

func TestClaimsStopWhenTooManyOutcomesWaitForLockedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &strangers{fakeStore: newFakeStore(), holds: func(domain.Outcome) bool { return true }}
		store.add(6_000, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, false).client, 100)
		time.Sleep(30 * time.Second)
		if n, most := store.runs(), mostAside+2*maxOutcomes+finisherQueue+100; n > most || n < mostAside {
			t.Errorf("%d runs are claimed and not written; %d can wait", n, most)
		}
		store.set(func() { store.holds = nil })
		time.Sleep(time.Minute)
		if n := store.ended(); n != 6_000 {
			t.Errorf("%d runs of 6,000 when nothing is locked", n)
		}
		store.once(t)
	})
}

func TestLockedRowsDoNotKeepAReplicaFromStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &strangers{fakeStore: newFakeStore(), holds: func(domain.Outcome) bool { return true }}
		store.add(5, compiled(t, brief), 0)
		r := start(t, store, newGatedDials(t, false).client, 100)
		time.Sleep(time.Second)
		if took := r.stopWithin(time.Minute); took > 2*flushTimeout {
			t.Errorf("it took %s", took)
		}
	})
}
