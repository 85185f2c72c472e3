package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"punctual/scheduler/domain"
)

const (
	normalLane = 5 // a lane of queue 1
	orderLane  = 7
	// hangs is a job whose attempts hang until the test ends. prompt is a job whose attempts fail at once.
	hangs  = `{"timeout":"2h","target":{"url":"http://127.0.0.1:8/"}}`
	prompt = `{"retry":{"max_attempts":1},"target":{"url":"http://127.0.0.1:9/"}}`
)

func TestWhatHangsDoesNotTakeTheSlotsOfOtherWork(t *testing.T) {
	for name, c := range map[string]struct {
		runs   int // that hang
		lane   int16
		others func(store *fakeStore, job *domain.Job)
	}{
		"late slots go on beside retries that hold 5 of 10 worker slots": {
			5, normalLane, func(store *fakeStore, job *domain.Job) { store.add(20, job, -6*time.Second) },
		},
		"what is due now goes on beside a backfill": {
			500, orderLane, func(store *fakeStore, job *domain.Job) { store.add(20, job, 0) },
		},
		"what is late goes on beside a backfill": {
			500, orderLane, func(store *fakeStore, job *domain.Job) { store.add(20, job, -time.Minute) },
		},
		"retries go on beside a backfill": {
			500, orderLane, func(store *fakeStore, job *domain.Job) { store.wait(20, job, 0, normalLane) },
		},
	} {
		virtually(t, name, func(t *testing.T) {
			store, dials, job := newFakeStore(), newGatedDials(t, true), compiled(t, prompt)
			dials.stuck = "127.0.0.1:8"
			store.wait(c.runs, compiled(t, hangs), time.Minute, c.lane)
			start(t, store, dials.client, 10)
			time.Sleep(time.Second)
			c.others(store, job)
			time.Sleep(10 * time.Second)
			if n := store.endedOf(job); n != 20 {
				t.Errorf("%d of 20 were claimed beside what hangs", n)
			}
		})
	}
}

// A tenant may start 5 runs a second. Of its 401 due runs, 400 are held back because their host cannot be reached. A
// run that is held back must use no start, so the healthy run and all others are claimed within 20 seconds.
func TestWhatIsHeldBackTakesNoStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		dials.refused = "127.0.0.1:8"
		store.limits = []admit.TenantLimits{{Tenant: 1, Name: "limited", PerSecond: 5}}
		dead := compiled(t, `{"retry":{"max_attempts":9,"initial_backoff":"1h"},"target":{"url":"http://127.0.0.1:8/"}}`)
		start(t, store, dials.client, 100)
		store.add(30, dead, 0) // these open the breaker
		time.Sleep(20 * time.Second)
		store.add(400, dead, 0)
		healthy := compiled(t, prompt)
		store.add(1, healthy, time.Second)
		time.Sleep(20 * time.Second)
		if n := store.endedOf(healthy); n != 1 {
			t.Error("a healthy run waits behind those that are held back")
		}
		if n := read(store, func() int { return len(store.waiting) }); n != 0 {
			t.Errorf("%d runs that are held back wait for a start", n)
		}
	})
}

// A tenant may start two runs a second and has ordered 500. Runs that it triggers take turns with the ordered ones.
func TestATriggerWaitsForItsTurnAndNotForAllThatIsOrdered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		store.limits = []admit.TenantLimits{{Tenant: 1, Name: "limited", PerSecond: 2}}
		store.wait(500, compiled(t, brief), time.Minute, orderLane)
		start(t, store, dials.client, 100)
		time.Sleep(10 * time.Second)
		urgent := compiled(t, `{"retry":{"max_attempts":1},"target":{"url":"http://127.0.0.1:7/"}}`)
		store.wait(3, urgent, 0, normalLane)
		time.Sleep(6 * time.Second)
		if n := store.endedOf(urgent); n != 3 {
			t.Errorf("%d of 3 triggers were sent within 6 s", n)
		}
		if n := store.ended(); n < 25 || n > 40 {
			t.Errorf("%d sent in 16 s, of a tenant that may start two a second", n)
		}
	})
}

// A queue with one worker slot is too small for shares and reserves, so kinds of work must take turns.
func TestKindsOfWorkTakeTurnsInAQueueOfOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		dials.slow = 200 * time.Millisecond
		start(t, store, dials.client, 1)
		store.add(100, compiled(t, brief), time.Second)
		time.Sleep(1500 * time.Millisecond)
		others := compiled(t, brief)
		store.wait(3, others, 0, normalLane)
		store.wait(3, others, 0, orderLane)
		store.add(3, others, -time.Minute)
		time.Sleep(6 * time.Second)
		if n := store.endedOf(others); n != 9 {
			t.Errorf("%d of 9 of other kinds were sent beside a hundred that are due", n)
		}
	})
}
