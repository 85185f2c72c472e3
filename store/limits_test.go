package store

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/fleet"
	"punctual/store/history"
	"punctual/store/limits"
)

// limited names limits.
func limited(names ...string) option { return func(d *domain.Definition) { d.Limits = names } }

// putLimit writes a limit; 0: no bound.
func (c crud) putLimit(name string, running, perSecond int) limits.Limit {
	c.t.Helper()
	var to limits.Settings
	if running > 0 {
		to.MaxRunning = &running
	}
	if perSecond > 0 {
		to.MaxStartsPerSecond = &perSecond
	}
	l, _, err := c.Limits.Put(c.t.Context(), c.tenant, name, to)
	must(c.t, err)
	return l
}

func (c crud) release() {
	c.t.Helper()
	_, err := c.Claims.ReleaseLimits(c.t.Context())
	must(c.t, err)
}

// names returns the jobs of claimed runs.
func jobsOf(runs []domain.Assignment) (names []string) {
	for _, a := range runs {
		names = append(names, a.Job.Name)
	}
	return names
}

// Runs of jobs that share a limit start one at a time, in the order in which they were due. The end of one sets the
// next due. Jobs beside them in their queue are not delayed.
func TestJobsShareALimit(t *testing.T) {
	c := newClaimer(t)
	c.putLimit("warehouse", 1, 0)
	for _, name := range []string{"a", "b", "c"} {
		c.dueNow(name, limited("warehouse"))
	}
	c.dueNow("free")
	if free := c.one(c.claim(10, false)); free.Job.Name != "free" {
		t.Fatalf("%s starts", free.Job.Name)
	}
	first := c.one(c.claimReady(10))
	for range 2 {
		if b := c.claimReady(10); len(b.Runs) > 0 {
			t.Fatalf("%v start beside %s", jobsOf(b.Runs), first.Job.Name)
		}
		c.finish(succeeded(first))
		c.release()
		first = c.one(c.claimReady(10))
	}
	c.finish(succeeded(first))
	c.release()
	c.wantCount(0, "holders are left", `SELECT count(*) FROM punctual.limit_holders`)
	c.wantCount(0, "runs are left", `SELECT count(*) FROM punctual.ready`)
}

// A retry, a run that was given back and one whose target works on after a 202 keep their limits. A lost replica's are
// taken over with its runs.
func TestARunHoldsItsLimitsUntilItEnds(t *testing.T) {
	async := func(d *domain.Definition) { d.Completion = domain.CompleteAsync }
	for name, goesOn := range map[string]func(c claimer, a domain.Assignment){
		"retry":      func(c claimer, a domain.Assignment) { c.finish(failed(a)) },
		"given back": func(c claimer, a domain.Assignment) { c.finish(unsent(a, domain.GiveBack)) },
		"async":      func(c claimer, a domain.Assignment) { c.accept(a) },
		"lost": func(c claimer, a domain.Assignment) {
			c.exec(`DELETE FROM punctual.replicas`)
			_, err := c.Claims.Recover(c.t.Context(), nil)
			must(c.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			c.putLimit("warehouse", 1, 0)
			c.create("holds", never, limited("warehouse"), async)
			c.create("waits", never, limited("warehouse"))
			a := c.begun("holds")
			goesOn(c, a)
			c.release()
			c.trigger("waits")
			c.exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id = $1 AND lane >= 0`, a.RunID)
			if got := jobsOf(c.claimReady(10).Runs); slices.Contains(got, "waits") || (name == "async") != (got == nil) {
				t.Errorf("%v start", got)
			}
			c.wantCount(1, "the run does not hold the limit",
				`SELECT count(*) FROM punctual.limit_holders WHERE run_id = $1`, a.RunID)
			c.exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE id = $1`, a.RunID)
			if !c.wants(claim.ChoreLimits) {
				t.Error("no heartbeat asks to release the limit")
			}
			c.release()
			if other := c.one(c.claimReady(10)); other.Job.Name != "waits" {
				t.Errorf("%s starts", other.Job.Name)
			}
			if c.wants(claim.ChoreLimits) {
				t.Error("a heartbeat asks to release limits without need")
			}
		})
	}
}

// A rate lets runs start one after the other, also when many are due at once.
func TestARateOfStarts(t *testing.T) {
	c := newClaimer(t)
	c.putLimit("api", 0, 10)
	c.create("job", never, limited("api"))
	for range 12 {
		c.trigger("job")
	}
	var starts []time.Time
	for began := time.Now(); len(starts) < 12 && time.Since(began) < time.Minute; {
		for range c.claimReady(20).Runs {
			starts = append(starts, c.now())
		}
	}
	if took := starts[11].Sub(starts[0]); took < time.Second {
		t.Errorf("12 runs started within %s, at 10 a second", took)
	}
}

// A run that needs two limits takes both or none. So it keeps no other from one of them, and two that name the limits
// in opposite orders do not wait for each other.
func TestLimitsThatCross(t *testing.T) {
	c := newClaimer(t)
	for _, name := range []string{"x", "y"} {
		c.putLimit(name, 1, 0)
	}
	c.create("xy", never, limited("x", "y"))
	c.create("yx", never, limited("y", "x"))
	c.create("x", never, limited("x"))
	c.create("y", never, limited("y"))
	y := c.begun("y")
	c.trigger("xy")
	if b := c.claimReady(10); len(b.Runs) != 0 {
		t.Fatalf("%v start", jobsOf(b.Runs))
	}
	x := c.begun("x")
	c.trigger("yx")
	c.claimReady(10)
	c.finish(succeeded(x), succeeded(y))
	c.release()
	for range 2 {
		a := c.one(c.claimReady(10))
		c.finish(succeeded(a))
		c.release()
	}
}

// After a minute a run keeps each limit that it gets, so that runs with fewer limits do not keep it waiting for ever.
func TestARunThatHasWaitedForAMinuteKeepsWhatItGets(t *testing.T) {
	c := newClaimer(t)
	for _, name := range []string{"x", "y"} {
		c.putLimit(name, 1, 0)
	}
	c.create("both", never, limited("x", "y"))
	c.create("x", never, limited("x"))
	c.create("y", never, limited("y"))
	y := c.begun("y")
	both := c.trigger("both")
	c.exec(`UPDATE punctual.runs SET due_at = due_at - interval '2 min' WHERE id = $1`, both.ID)
	c.trigger("x")
	if b := c.claimReady(10); len(b.Runs) != 0 {
		t.Fatalf("%v start", jobsOf(b.Runs))
	}
	c.finish(succeeded(y))
	c.release()
	if a := c.one(c.claimReady(10)); a.RunID != both.ID {
		t.Errorf("%s starts", a.Job.Name)
	}
}

// With the policy queue the runs of a job wait in order and go one at a time, up to a number. Further slots are
// skipped, and triggers refused.
func TestRunsOfAJobInAQueue(t *testing.T) {
	c := newClaimer(t)
	queued := func(d *domain.Definition) {
		d.ConcurrencyPolicy, d.MaxPendingRuns = domain.PolicyQueue, 3
		d.Schedule = domain.Schedule{Every: domain.DurationOf(time.Second)}
	}
	job, slot := c.dueNow("job", queued)
	c.setNext(job.ID, slot.Add(-4*time.Second))
	if b := c.claim(10, false); len(b.Runs) != 0 {
		t.Fatal("a slot starts a run that has no turn")
	}
	var want, got []uuid.UUID
	for i := range 3 {
		want = append(want, domain.SlotRunID(job.ID, slot.Add(time.Duration(i-4)*time.Second)))
	}
	c.wantCount(3, "runs wait", `SELECT count(*) FROM punctual.ready`)
	if n := c.count(`SELECT count(*) FROM punctual.runs WHERE status = 'skipped' AND reason = 'limit'`); n < 2 {
		t.Errorf("%d slots beyond the bound are skipped", n)
	}
	if _, err := c.tryTrigger("job"); err == nil {
		t.Error("a trigger beyond the bound is not refused")
	}
	for range 3 {
		c.exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id <> (SELECT min(run_id::text)::uuid FROM punctual.ready)`)
		a := c.one(c.claimReady(10))
		if b := c.claimReady(10); len(b.Runs) != 0 {
			t.Fatal("two runs at once")
		}
		got = append(got, a.RunID)
		c.finish(succeeded(a))
	}
	if !slices.Equal(got, want) {
		t.Errorf("they run in the order %v, want %v", got, want)
	}
}

// Runs that no caller waits for, as those of events and chains, are skipped where as many wait as may.
func TestEventsAndChainsMakeNoMoreRunsThanMayWaitInAQueue(t *testing.T) {
	for name, make4 := range map[string]func(c claimer){
		"event": func(c claimer) {
			for range 4 {
				c.emit("paid", `{}`)
			}
			c.fanOut()
		},
		"chain": func(c claimer) {
			c.create("load", never, then("job"))
			for range 4 {
				c.trigger("load")
			}
			for _, a := range c.claimReady(10).Runs {
				c.finishAndRelease(succeeded(a))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			c.create("job", func(d *domain.Definition) {
				d.ConcurrencyPolicy, d.MaxPendingRuns, d.Schedule = domain.PolicyQueue, 2, domain.Schedule{Event: "paid"}
			})
			make4(c)
			a := c.one(c.claimReady(10))
			for range 2 { // runs that wait already are looked at again, and stay
				c.wantCount(2, "runs wait", `SELECT count(*) FROM punctual.ready WHERE at_gate`)
				c.wantCount(1, "runs are skipped", `
					SELECT count(*) FROM punctual.runs
					WHERE status = 'skipped' AND reason = 'limit' AND trigger = $1 AND caused_by IS NOT NULL`, name)
				c.exec(`UPDATE punctual.ready SET due_at = now()`)
				if b := c.claimReady(10); len(b.Runs) != 0 {
					t.Fatal("two runs at once")
				}
			}
			c.finish(succeeded(a))
			c.one(c.claimReady(10))
		})
	}
}

// A definition may name only limits that exist, and a limit that a job names cannot be deleted.
func TestLimitsAndTheJobsThatNameThem(t *testing.T) {
	c := newClaimer(t)
	c.putLimit("warehouse", 1, 0)
	_, err := c.tryCreate("job", limited("warehous"))
	if blames := domain.BlamesOf(err); len(blames) != 1 || blames[0].Message !=
		`there is no limit "warehous"; create it with PUT /v1/limits/warehous; did you mean warehouse?` {
		t.Errorf("an unknown limit is refused with %v", err)
	}
	c.create("job", never, limited("warehouse"))
	a := c.begun("job")
	c.trigger("job")
	c.claimReady(10)
	if l, err := c.Limits.Get(t.Context(), c.tenant, "warehouse"); err != nil || l.Running != 1 || l.Waiting != 1 || l.Jobs != 1 ||
		len(l.HeldBy) != 1 || l.HeldBy[0].Run != a.RunID || l.HeldBy[0].Job != "job" {
		t.Errorf("the limit is shown as %+v, %v", l, err)
	}
	if err := c.Limits.Delete(t.Context(), c.tenant, "warehouse"); err == nil {
		t.Error("a limit is deleted that a job names")
	}
	c.putLimit("warehouse", 2, 0)
	c.one(c.claimReady(10)) // more room
	c.trigger("job")
	c.claimReady(10)
	c.edit("job", limited())
	must(t, c.Limits.Delete(t.Context(), c.tenant, "warehouse"))
	c.one(c.claimReady(10))
}

// Replicas claim, finish and are lost, all at once: a limit never has more holders than it allows, and all runs end.
func TestALimitHoldsWhileReplicasRace(t *testing.T) {
	dsn := pgtest.DSN(t)
	c := asClaimer(newCRUDOn(t, dsn))
	t.Parallel()
	c.putLimit("one", 1, 0)
	c.putLimit("two", 2, 0)
	each := 20
	if testing.Short() {
		each = 6
	}
	for i := range 5 {
		c.create(fmt.Sprint("job-", i), never, limited([][]string{{"one"}, {"two"}, {"two", "one"}}[i%3]...))
		for range each {
			c.trigger(fmt.Sprint("job-", i))
		}
	}
	var racing sync.WaitGroup
	ended := func() int { return c.count(`SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`) }
	for i := range 3 {
		r := asClaimer(newCRUDOn(t, dsn))
		racing.Go(func() {
			for n := 0; ended() < 5*each && t.Context().Err() == nil; n++ {
				for _, a := range r.claimReady(5).Runs {
					if over := c.count(`SELECT count(*) FROM punctual.limits l
						WHERE l.max_running < (SELECT count(*) FROM punctual.holders_of_limit(l.tenant, l.name))`); over > 0 {
						t.Error("a limit has more holders than it allows")
					}
					if a.Attempt < 3 && (n+i)%7 == 0 { // killed: the others take over. The third time the run would be dead.
						c.exec(`DELETE FROM punctual.replicas WHERE id = $1`, r.replica)
						r = asClaimer(r.crud)
						continue
					}
					r.finish(succeeded(a))
				}
				_, err := r.Claims.Recover(t.Context(), nil)
				must(t, err)
				c.exec(`UPDATE punctual.ready y SET due_at = now()
					FROM (SELECT run_id FROM punctual.ready WHERE at_limit IS NULL FOR UPDATE SKIP LOCKED) free
					WHERE y.run_id = free.run_id`) // retries
				r.release()
			}
		})
	}
	racing.Wait()
}

// What waits at a limit says so, with the run that holds it, wherever people look.
func TestARunSaysWhichLimitItWaitsAt(t *testing.T) {
	c := newClaimer(t)
	c.putLimit("warehouse", 1, 0)
	c.create("job", never, limited("warehouse"))
	a := c.begun("job")
	waits := c.trigger("job")
	c.claimReady(10)
	want := "limit warehouse (held by run " + a.RunID.String() + ")"
	if w, err := c.Runs.RunWaitsFor(t.Context(), c.tenant, waits.ID); err != nil || w == nil || w.What != want {
		t.Errorf("the run waits for %+v, %v; want %s", w, err, want)
	}
	for view, sql := range map[string]string{
		"overdue":    `SELECT held_by FROM punctual.overdue`,
		"job_status": `SELECT waiting_for FROM punctual.job_status`,
	} {
		if got := value[string](c.crud, sql); got != want {
			t.Errorf("%s says %q, want %q", view, got, want)
		}
	}
	all, err := c.Fleet.Waits(t.Context())
	must(t, err)
	if !slices.ContainsFunc(all, func(w fleet.Wait) bool { return w.For == "limit" && w.Oldest > 0 }) {
		t.Errorf("the metrics say %+v", all)
	}
}

// Verify finds a limit that too many runs hold, and one with room at which a run waits. A limit that was lowered lets
// the runs end that hold it.
func TestVerifyFindsLimitsThatAreNotObeyed(t *testing.T) {
	c := newClaimer(t)
	for _, name := range []string{"held", "free", "lowered"} {
		c.putLimit(name, 2, 0)
		c.create(name, never, limited(name))
		for range 2 {
			c.trigger(name)
		}
	}
	c.claimReady(10)
	c.trigger("free")
	c.claimReady(10)
	c.putLimit("lowered", 1, 0)
	if got := c.verifyLimits(); got != nil {
		t.Fatalf("without a fault: %v", got)
	}
	c.exec(`UPDATE punctual.limits SET max_running = 1 WHERE name = 'held'`)
	c.exec(`DELETE FROM punctual.limit_holders WHERE name = 'free'`)
	if got, want := c.verifyLimits(), []string{
		`limit "free" has room, and these runs wait at it all the same`,
		`limit "held" has 2 holders, and allows 1`,
	}; !slices.Equal(got, want) {
		t.Errorf("verify finds %v, want %v", got, want)
	}
}

func (c claimer) verifyLimits() (details []string) {
	c.t.Helper()
	_, err := c.History.Verify(c.t.Context(), history.VerifyOptions{
		From: c.now().Add(-time.Hour), To: c.now(), Grace: time.Millisecond,
		Report: func(v history.Violation) error {
			if v.Kind == history.ViolationLimit {
				details = append(details, v.Detail)
			}
			return nil
		},
	})
	must(c.t, err)
	return details
}

// When runs were let in is between when they were due and their first requests. A retry takes none of the rate.
func TestVerifyFindsStartsBeyondTheRateOfALimit(t *testing.T) {
	c := newClaimer(t)
	c.putLimit("api", 0, 10)
	c.create("job", never, limited("api"))
	for range 6 {
		c.trigger("job")
	}
	c.exec(`UPDATE punctual.limits SET updated_at = now() - interval '1 hour'`)
	for n := 0; n < 6; {
		for _, a := range c.claimReady(20).Runs {
			if n++; n == 1 {
				c.finish(failed(a))
			} else {
				c.finish(succeeded(a))
			}
		}
		c.release()
	}
	if got := c.verifyLimits(); got != nil {
		t.Errorf("without a fault: %v", got)
	}
	const atOnce = `
		UPDATE punctual.runs r SET due_at = f.at, started_at = f.at FROM (SELECT min(started_at) AS at FROM punctual.runs) f`
	c.exec(atOnce)
	if got, want := c.verifyLimits(), []string{
		`limit "api" allows 10 starts a second, and more have started by the time of this run`,
	}; !slices.Equal(got, want) {
		t.Errorf("verify finds %v, want %v", got, want)
	}
	c.exec(`UPDATE punctual.limits SET updated_at = now()`)
	if got := c.verifyLimits(); got != nil {
		t.Errorf("of starts before the limit was changed: %v", got)
	}
}
