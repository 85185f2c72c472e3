package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/domain"
)

// Jobs whose requests hang, each at an address of its own, and one whose requests end at once.
const (
	long         = `{"name":"long","timeout":"1h","target":{"url":"http://127.0.0.1:1/"}}`
	filling      = `{"name":"filling","timeout":"1h","target":{"url":"http://127.0.0.1:2/"}}`
	retry        = `{"name":"retry","timeout":"1h","target":{"url":"http://127.0.0.1:3/"}}`
	eightSeconds = `{"name":"long","timeout":"8s","retry":{"max_attempts":1},"target":{"url":"http://127.0.0.1:1/"}}`
	often        = `{"name":"often","retry":{"max_attempts":1},"target":{"url":"http://127.0.0.1:9/"}}`
)

// twoReplicas starts two replicas of ten worker slots. Requests hang, except those of the job often.
func twoReplicas(t *testing.T, store *fakeStore) {
	t.Helper()
	dials := newGatedDials(t, true)
	dials.prompt = "127.0.0.1:9"
	for range 2 {
		start(t, store, dials.client, 10)
	}
}

// everySecond makes a slot of a job due each second for so many seconds, and lets them pass.
func everySecond(t *testing.T, store *fakeStore, job *domain.Job, seconds int) {
	t.Helper()
	for range seconds {
		store.add(1, job, time.Second)
		time.Sleep(time.Second)
	}
	time.Sleep(2 * time.Second)
}

// latest returns the greatest lateness of the claims of a job's slots, and how many there were.
func (f *fakeStore) latest(job *domain.Job) (late time.Duration, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.outcomes {
		if o.Job == job {
			n++
			late = max(late, o.Lease.ClaimedAt.Sub(o.DueAt))
		}
	}
	return late, n
}

// Ten requests hang, and a backfill takes what it may have. A job that is due every second finds the worker slots that
// are left: it does not have to be late first.
func TestWhatIsDueWaitsForNoReserveOfItsOwnLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, job := newFakeStore(), compiled(t, often)
		store.add(10, compiled(t, long), 0)
		twoReplicas(t, store)
		time.Sleep(time.Second)
		store.wait(60, compiled(t, filling), 0, domain.OrderLane(1))
		time.Sleep(2 * time.Second)
		everySecond(t, store, job, 25)
		if late, n := store.latest(job); n != 25 || late > 2*longestPause {
			t.Errorf("%d of 25 slots ran, up to %s late", n, late)
		}
	})
}

// While requests of slots that are due occupy all worker slots, the first retry and the first run of a backfill start
// nonetheless, and nothing else does.
func TestWhatIsDueFillsAQueueAndFirstRunsStartNonetheless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add(24, compiled(t, long), 0)
		twoReplicas(t, store)
		time.Sleep(time.Second)
		if n := store.runs(); n != 20 {
			t.Fatalf("%d of 20 worker slots are taken, and 24 slots are due", n)
		}
		time.Sleep(2 * OlderThan)
		if n := store.runs(); n != 20 {
			t.Errorf("%d runs start because they are late", n-20)
		}
		store.wait(5, compiled(t, retry), 0, normalLane)
		store.wait(5, compiled(t, filling), 0, domain.OrderLane(1))
		time.Sleep(2 * longestSleep)
		started := map[domain.Work]int{}
		for _, c := range read(store, func() []fakeClaim { return store.claims }) {
			started[c.work] += c.runs
		}
		if started[domain.WorkReady] != 2 || started[domain.WorkOrdered] != 2 || store.runs() != 24 {
			t.Errorf("started by kind of work: %v, want one retry and one ordered run of each replica", started)
		}
	})
}

// A slot turns late while it waits for the only worker slot. It is claimed as soon as that one is free, whenever the
// loop has last looked for late slots.
func TestASlotThatTurnsLateIsClaimedOnceAWorkerSlotIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 20 {
			due := time.Second + time.Duration(i)*100*time.Millisecond
			store, dials := newFakeStore(), newGatedDials(t, true)
			dials.prompt = "127.0.0.1:9"
			job, free := compiled(t, often), store.now().Add(8*time.Second)
			store.add(1, compiled(t, eightSeconds), 0)
			store.add(1, job, due)
			r := start(t, store, dials.client, 1)
			time.Sleep(12 * time.Second)
			for _, o := range read(store, func() []domain.Outcome { return store.outcomes }) {
				if waited := o.Lease.ClaimedAt.Sub(free); o.Job == job && waited > 2*longestPause {
					t.Errorf("due after %s, it waited %s for a worker slot that was free", due, waited)
				}
			}
			if store.endedOf(job) != 1 {
				t.Error("it did not run")
			}
			r.stopWithin(time.Minute)
		}
	})
}

// A one-shot whose instant has passed long ago runs as soon as it is created.
func TestAOneShotOfThePastRunsOnceItIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, job := newFakeStore(), compiled(t, often)
		start(t, store, newGatedDials(t, false).client, 10)
		for n := range 20 {
			time.Sleep(time.Second + 100*time.Millisecond)
			store.add(1, job, -time.Minute)
			store.wake <- struct{}{}
			time.Sleep(2 * longestPause)
			if store.endedOf(job) != n+1 {
				t.Fatalf("the %d. one did not run at once", n+1)
			}
		}
	})
}
