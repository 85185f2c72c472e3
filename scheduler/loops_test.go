package scheduler

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/admit"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// brief is a job with a single attempt, which fails at once when the address is blocked.
const brief = `{"retry":{"max_attempts":1}}`

func TestAnIdleReplicaAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(100 * time.Second)
		if n := read(store, func() int { return len(store.looks) }); n < 90 || n > 112 {
			t.Errorf("%d looks in 100 s", n)
		}
		if n := read(store, func() int { return len(store.claims) }); n != 0 {
			t.Errorf("%d claims with nothing due", n)
		}
	})
}

func TestASlotIsClaimedWhenItIsDueAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add(1, compiled(t, brief), 10250*time.Millisecond)
		due := store.now().Add(10250 * time.Millisecond)
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(12 * time.Second)
		claims := read(store, func() []fakeClaim { return store.claims })
		if len(claims) == 0 || !claims[0].at.Equal(due) || claims[0].runs != 1 {
			t.Fatalf("due %s, claims %+v", due, claims)
		}
		if len(claims) > 2 {
			t.Errorf("%d claims for one slot", len(claims))
		}
		store.once(t)
	})
}

// A replica whose database is far away leaves a due slot to other replicas first. It claims the slot if none of them
// does.
func TestASlowReplicaLeavesSlotsToOthersFirst(t *testing.T) {
	for name, c := range map[string]struct {
		roundTrip time.Duration
		others    []Heartbeat
		late      time.Duration
	}{
		"slow, with others": {2 * slowLook, []Heartbeat{{Replica: uuid.New()}}, yielding},
		"fast, with others": {time.Millisecond, []Heartbeat{{Replica: uuid.New()}}, 0},
		"slow, and alone":   {2 * slowLook, nil, 0},
	} {
		virtually(t, name, func(t *testing.T) {
			store := newFakeStore()
			store.roundTrip, store.others = c.roundTrip, c.others
			store.add(1, compiled(t, brief), 10250*time.Millisecond)
			due := store.now().Add(10250 * time.Millisecond)
			start(t, store, newGatedDials(t, false).client, 10)
			time.Sleep(12 * time.Second)
			for _, claim := range read(store, func() []fakeClaim { return store.claims }) {
				late := claim.at.Sub(due)
				if claim.runs > 0 && (late < c.late || late > c.late+longestPause+c.roundTrip) {
					t.Errorf("claimed %s after it was due, want %s", late, c.late)
				}
			}
			store.once(t)
		})
	}
}

func TestRunsThatAreReadyAreClaimedWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		due := store.now().Add(5500 * time.Millisecond)
		store.wait(1, compiled(t, brief), -5500*time.Millisecond, normalLane)
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(7 * time.Second)
		claims := read(store, func() []fakeClaim { return store.claims })
		if len(claims) == 0 || !claims[0].at.Equal(due) || claims[0].work != domain.WorkReady {
			t.Fatalf("due %s, claims %+v", due, claims)
		}
		store.once(t)
	})
}

func TestFullBatchesFollowAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add(1050, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, true).client, 2000)
		time.Sleep(time.Millisecond)
		if n := store.runs(); n != 1050 {
			t.Errorf("%d of 1050 slots claimed at once, in %d claims", n, len(store.claims))
		}
		if n := read(store, func() int { return len(store.looks) }); n > 3 {
			t.Errorf("%d looks between full claims", n)
		}
		for _, c := range read(store, func() []fakeClaim { return store.claims }) {
			if c.asked > admit.BatchSize {
				t.Errorf("a claim of %d", c.asked)
			}
		}
	})
}

func TestAWriteOfThisProcessWakesTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(10*time.Second + 300*time.Millisecond)
		before := store.now()
		store.add(1, compiled(t, brief), 0)
		store.wake <- struct{}{}
		synctest.Wait()
		if len(store.claimsAfter(before.Add(-1))) == 0 {
			t.Error("it is not claimed at once")
		}
	})
}

func TestTheLoopBacksOffWhileOthersHoldWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.locked = true
		store.add(1, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(3 * time.Second)
		if n := read(store, func() int { return len(store.claims) }); n < 20 || n > 45 {
			t.Errorf("%d claims in 3 s of a slot that is locked", n)
		}
		store.set(func() { store.locked = false })
		time.Sleep(longestPause)
		if store.runs() != 1 {
			t.Error("the slot is not claimed once it is free")
		}
	})
}

func TestClaimsTakeOnlyWhatThereAreSlotsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		store.add(10, compiled(t, `{"retry":{"max_attempts":1},"timeout":"2s"}`), 0)
		start(t, store, dials.client, 3)
		time.Sleep(1900 * time.Millisecond)
		if n := store.runs(); n != 3 {
			t.Errorf("%d runs claimed with 3 worker slots", n)
		}
		time.Sleep(200 * time.Millisecond) // the first attempts have timed out
		if n := store.runs(); n != 6 {
			t.Errorf("%d runs claimed after 3 of them ended", n)
		}
		dials.letGo()
		time.Sleep(10 * time.Second)
		if n := store.runs(); n != 10 {
			t.Errorf("%d runs claimed of 10", n)
		}
		store.once(t)
	})
}

func TestLateSlotsLeaveSlotsToWhatIsDueNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		store.add(100, compiled(t, `{"timeout":"1h"}`), -time.Minute)
		start(t, store, dials.client, 64)
		time.Sleep(10 * time.Second)
		if n := store.runs(); n != 56 {
			t.Errorf("late slots hold %d of 64 worker slots", n)
		}
		store.add(8, compiled(t, `{"timeout":"1h"}`), 2*time.Second)
		due := store.now().Add(2 * time.Second)
		time.Sleep(2*time.Second + longestPause)
		if n := store.runs(); n != 64 {
			t.Errorf("%d runs; what is due now finds no slot", n)
		}
		found := func(c fakeClaim) bool { return c.work != domain.WorkLate && c.runs > 0 }
		if !slices.ContainsFunc(store.claimsAfter(due.Add(-1)), found) {
			t.Error("no claim of what is due now")
		}
		dials.letGo()
		time.Sleep(time.Minute)
		if n := store.runs(); n != 108 {
			t.Errorf("%d runs of 108 once slots are free", n)
		}
	})
}

// order waits until so many runs have ended, and returns the names of their jobs in the order of their ends.
func (f *fakeStore) order(n int) (names []string) {
	for len(names) < n {
		time.Sleep(time.Millisecond)
		f.mu.Lock()
		names = names[:0]
		for _, o := range f.outcomes {
			names = append(names, o.Job.Name)
		}
		f.mu.Unlock()
	}
	return names[:n]
}

const recent = `{"name":"recent","retry":{"max_attempts":1},"target":{"url":"http://127.0.0.1:9/"}}`

// A slot that came a moment too late does not wait until a backlog of hours has drained.
func TestARecentSlotDoesNotWaitBehindTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		store.add(1500, compiled(t, prompt), -time.Hour)
		start(t, store, dials.client, 64)
		store.add(1, compiled(t, recent), -2*OlderThan)
		dials.letGo()
		if !slices.Contains(store.order(500), "recent") {
			t.Error("500 slots of the backlog came first")
		}
	})
}

// Nor do slots that keep coming too late stop the backlog: the two take turns.
func TestRecentSlotsAndTheBacklogTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, true)
		store.add(1000, compiled(t, prompt), -time.Hour)
		store.add(1000, compiled(t, recent), -2*OlderThan)
		start(t, store, dials.client, 64)
		dials.letGo()
		n := 0
		for _, name := range store.order(1000) {
			if name == "recent" {
				n++
			}
		}
		if n < 100 || n > 900 { // claims take turns, and are as large as there are slots free just then
			t.Errorf("%d of 1000 runs were of recent slots", n)
		}
	})
}

func TestAFailingDatabaseIsAskedOnceASecond(t *testing.T) {
	for name, breakIt := range map[string]func(*fakeStore){
		"when it is asked what is due": func(f *fakeStore) { f.look = func() error { return errAway } },
		"when something is claimed":    func(f *fakeStore) { f.claiming = away },
	} {
		virtually(t, name, func(t *testing.T) {
			store := newFakeStore()
			breakIt(store)
			store.add(1000, compiled(t, brief), 0)
			start(t, store, newGatedDials(t, false).client, 1)
			time.Sleep(30 * time.Second)
			if n := read(store, func() int { return len(store.looks) }); n < 25 || n > 36 {
				t.Errorf("%d looks in 30 s", n)
			}
			store.set(func() { store.look, store.claiming = nil, nil })
			time.Sleep(3 * time.Second)
			if store.runs() == 0 {
				t.Error("nothing is claimed when it is back")
			}
		})
	}
}

func TestOutcomesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add(90, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, false).client, 100)
		time.Sleep(gather)
		synctest.Wait()
		if got := read(store, func() []int { return store.finishes }); len(got) != 1 || got[0] != 90 {
			t.Errorf("90 outcomes at once are written as %v", got)
		}
		store.once(t)
	})
}

func TestOutcomesAreKeptWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.finish = away
		store.add(50, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, false).client, 100)
		time.Sleep(time.Minute)
		if n := read(store, func() int { return store.writes }); n < 25 || n > 45 {
			t.Errorf("%d tries in a minute", n)
		}
		store.set(func() { store.finish = nil })
		time.Sleep(longestRetry)
		synctest.Wait()
		if store.ended() != 50 {
			t.Errorf("%d of 50 outcomes are written when it is back", store.ended())
		}
		store.once(t)
	})
}

func TestClaimsStopWhenOutcomesCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.finish = away
		store.add(4_000, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, false).client, 100)
		time.Sleep(4 * time.Second)
		if n, most := store.runs(), maxOutcomes+finisherQueue+100; n > most {
			t.Errorf("%d runs are claimed and not written; %d can wait", n, most)
		}
		store.set(func() { store.finish = nil })
		time.Sleep(time.Minute)
		if n := store.runs(); n != 4_000 {
			t.Errorf("%d runs of 4,000 when it can be written again", n)
		}
		store.once(t)
	})
}

func TestNothingIsSentAfterItExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dials := newFakeStore(), newGatedDials(t, false)
		store.wait(1, compiled(t, `{"expires_after":"1s"}`), 2*time.Second, normalLane)
		start(t, store, dials.client, 1)
		time.Sleep(time.Second)
		if dials.dials != 0 || store.verdicts()[domain.Expire] != 1 {
			t.Errorf("%d attempts, verdicts %v", dials.dials, store.verdicts())
		}
		store.once(t)
	})
}

func TestTheEstimateOfTheDatabasesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c dbClock
		if !c.now().IsZero() {
			t.Error("it is known before the first look")
		}
		told := time.Date(2026, 10, 11, 3, 0, 0, 0, time.UTC)
		c.set(time.Now(), told)
		time.Sleep(1500 * time.Millisecond)
		if got := c.now(); !got.Equal(told.Add(1500 * time.Millisecond)) {
			t.Errorf("1.5 s after %s it is %s", told, got)
		}
	})
}

// A replica's wall clock is wrong or stepped. Nothing depends on it.
//
// Every instant that is measured here has a monotonic reading, and Sub, Since and After then ignore the wall clock.
//
//prove:clocks
func TestThisMachinesDatePlaysNoPart(t *testing.T) {
	var c dbClock
	c.set(time.Now(), time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC))
	if !monotonic(c.last.Load().here) {
		t.Error("the database's clock is estimated by this machine's date")
	}
	if got := c.now(); got.Year() != 1999 && got.Year() != 2000 {
		t.Errorf("the database said 1999, and it is taken for %d", got.Year())
	}
	w := newWatch(time.Now())
	now := time.Now()
	w.observe(now, now, []Heartbeat{{uuid.New(), 1}})
	if !monotonic(w.renewed) {
		t.Error("the age of renewals is measured by this machine's date")
	}
	for _, s := range w.seen {
		if !monotonic(s.since) {
			t.Error("other replicas' heartbeats are measured by this machine's date")
		}
	}
}

// monotonic reports whether an instant has a monotonic reading. Only String shows it.
func monotonic(t time.Time) bool { return strings.Contains(t.String(), " m=") }

func TestAQueueWhoseSlotsAreTakenIsNotLookedInto(t *testing.T) {
	w := occupied([]int{1, 1})
	w.Take(1, 1, domain.WorkDue)
	if queues, others := w.Open(domain.WorkDue); !slices.Equal(queues, []int16{2}) || !others {
		t.Errorf("looks into %v, left out others: %t", queues, others)
	}
	w.Release(1, 1, domain.WorkDue, false)
	if queues, others := w.Open(domain.WorkDue); !slices.Equal(queues, []int16{1, 2}) || others {
		t.Errorf("looks into %v, left out others: %t", queues, others)
	}
	single := occupied([]int{1})
	single.Take(1, 1, domain.WorkDue)
	if queues, others := single.Open(domain.WorkDue); !slices.Equal(queues, []int16{1}) || others {
		t.Errorf("a single queue: looks into %v, left out others: %t", queues, others)
	}
}

// Limits, freezes and allowed targets come with the first heartbeat.
func TestNothingIsClaimedBeforeTheFirstHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.renew = away
		store.add(1, compiled(t, brief), 0)
		start(t, store, newGatedDials(t, false).client, 10)
		time.Sleep(time.Minute)
		if n := store.runs(); n != 0 {
			t.Errorf("%d runs claimed without a heartbeat", n)
		}
		store.set(func() { store.renew = nil })
		time.Sleep(5 * time.Second)
		if n := store.runs(); n != 1 {
			t.Errorf("%d runs claimed after the first heartbeat, want 1", n)
		}
	})
}
