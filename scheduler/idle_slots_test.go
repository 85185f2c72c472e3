package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/domain"
)

// Jobs whose requests hang, each at an address of its own, and one whose requests end at once.
const (
	long    = `{"name":"long","timeout":"1h","target":{"url":"http://127.0.0.1:1/"}}`
	filling = `{"name":"filling","timeout":"1h","target":{"url":"http://127.0.0.1:2/"}}`
	retry   = `{"name":"retry","timeout":"1h","target":{"url":"http://127.0.0.1:3/"}}`
	often   = `{"name":"often","retry":{"max_attempts":1},"target":{"url":"http://127.0.0.1:9/"}}`
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
