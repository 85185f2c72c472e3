package claim_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/fleet"
	"punctual/store/history"
	"punctual/store/limits"
)

// limited names limits.
func limited(names ...string) Option { return func(d *jobspec.Definition) { d.Limits = names } }

// putLimit writes a limit; 0: no bound.
func putLimit(c Fixture, name string, running, perSecond int) limits.Limit {
	c.T.Helper()
	var to limits.Settings
	if running > 0 {
		to.MaxRunning = &running
	}
	if perSecond > 0 {
		to.MaxStartsPerSecond = &perSecond
	}
	l, _, err := c.Limits.Put(c.T.Context(), c.Tenant, name, to)
	Must(c.T, err)
	return l
}

func release(c Fixture) {
	c.T.Helper()
	_, err := c.Claims.ReleaseLimits(c.T.Context())
	Must(c.T, err)
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
	c := NewReplica(t)
	putLimit(c.Fixture, "warehouse", 1, 0)
	for _, name := range []string{"a", "b", "c"} {
		c.DueNow(name, limited("warehouse"))
	}
	c.DueNow("free")
	if free := c.One(c.Claim(10, false)); free.Job.Name != "free" {
		t.Fatalf("%s starts", free.Job.Name)
	}
	first := c.One(c.ClaimReady(10))
	for range 2 {
		if b := c.ClaimReady(10); len(b.Runs) > 0 {
			t.Fatalf("%v start beside %s", jobsOf(b.Runs), first.Job.Name)
		}
		c.Finish(Succeeded(first))
		release(c.Fixture)
		first = c.One(c.ClaimReady(10))
	}
	c.Finish(Succeeded(first))
	release(c.Fixture)
	c.WantCount(0, "holders are left", `SELECT count(*) FROM punctual.limit_holders`)
	c.WantCount(0, "runs are left", `SELECT count(*) FROM punctual.ready`)
}

// A limit of how many run bounds the requests of a run, too: none follows one that timed out, whose target may still be
// working, unless the job says so. A rate bounds starts alone. (Two requests of a run worked at a limit of one.)
func TestALimitOfOneLetsNoSecondRequestOfARunWork(t *testing.T) {
	c := NewReplica(t)
	putLimit(c.Fixture, "one", 1, 0)
	putLimit(c.Fixture, "rate", 0, 1000)
	retried := func(d *jobspec.Definition) { d.Retry.AfterTimeout = new(true) }
	timedOut := wire.Result{Reason: wire.ReasonTimeout, Sent: true}
	for name, of := range map[string]struct {
		option  Option
		bounded bool
		verdict domain.Verdict
	}{
		"none":    {limited(), false, domain.RetryRun},
		"rate":    {limited("rate"), false, domain.RetryRun},
		"one":     {limited("one"), true, domain.Bury},
		"both":    {limited("one", "rate"), true, domain.Bury},
		"retried": {func(d *jobspec.Definition) { limited("one")(d); retried(d) }, true, domain.RetryRun},
	} {
		a := c.Manual(name, of.option)
		if o := domain.Judge(a, timedOut, c.Clock(), c.Clock()); a.Bounded != of.bounded || o.Verdict != of.verdict {
			t.Errorf("%s: bounded %t, and after a timeout verdict %v", name, a.Bounded, o.Verdict)
		}
		c.Finish(Succeeded(a))
		release(c.Fixture)
	}
}

// A run whose target works on after a 202 keeps its limits. Once it has ended, a heartbeat asks to release them.
func TestARunHoldsItsLimitsUntilItEnds(t *testing.T) {
	c := NewReplica(t)
	putLimit(c.Fixture, "warehouse", 1, 0)
	c.Create("holds", Never, limited("warehouse"), func(d *jobspec.Definition) { d.Completion = jobspec.CompleteAsync })
	c.Create("waits", Never, limited("warehouse"))
	a := c.Begun("holds")
	c.Accept(a)
	release(c.Fixture)
	c.Trigger("waits")
	if got := jobsOf(c.ClaimReady(10).Runs); got != nil {
		t.Errorf("%v start", got)
	}
	c.WantCount(1, "the run does not hold the limit",
		`SELECT count(*) FROM punctual.limit_holders WHERE run_id = $1`, a.RunID)
	c.Exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE id = $1`, a.RunID)
	if !c.Wants(claim.ChoreLimits) {
		t.Error("no heartbeat asks to release the limit")
	}
	release(c.Fixture)
	if other := c.One(c.ClaimReady(10)); other.Job.Name != "waits" {
		t.Errorf("%s starts", other.Job.Name)
	}
	if c.Wants(claim.ChoreLimits) {
		t.Error("a heartbeat asks to release limits without need")
	}
}

// A rate lets runs start one after the other, also when many are due at once.
func TestARateOfStarts(t *testing.T) {
	c := NewReplica(t)
	putLimit(c.Fixture, "api", 0, 10)
	c.Create("job", Never, limited("api"))
	for range 12 {
		c.Trigger("job")
	}
	var starts []time.Time
	for began := time.Now(); len(starts) < 12 && time.Since(began) < time.Minute; {
		for range c.ClaimReady(20).Runs {
			starts = append(starts, c.Clock())
		}
	}
	if took := starts[11].Sub(starts[0]); took < time.Second {
		t.Errorf("12 runs started within %s, at 10 a second", took)
	}
}

// A run that needs two limits takes both or none. So it keeps no other from one of them, and two that name the limits
// in opposite orders do not wait for each other.
func TestLimitsThatCross(t *testing.T) {
	c := NewReplica(t)
	for _, name := range []string{"x", "y"} {
		putLimit(c.Fixture, name, 1, 0)
	}
	c.Create("xy", Never, limited("x", "y"))
	c.Create("yx", Never, limited("y", "x"))
	c.Create("x", Never, limited("x"))
	c.Create("y", Never, limited("y"))
	y := c.Begun("y")
	c.Trigger("xy")
	if b := c.ClaimReady(10); len(b.Runs) != 0 {
		t.Fatalf("%v start", jobsOf(b.Runs))
	}
	x := c.Begun("x")
	c.Trigger("yx")
	c.ClaimReady(10)
	c.Finish(Succeeded(x), Succeeded(y))
	release(c.Fixture)
	for range 2 {
		a := c.One(c.ClaimReady(10))
		c.Finish(Succeeded(a))
		release(c.Fixture)
	}
}

// After a minute a run keeps each limit that it gets, so that runs with fewer limits do not keep it waiting for ever.
func TestARunThatHasWaitedForAMinuteKeepsWhatItGets(t *testing.T) {
	c := NewReplica(t)
	for _, name := range []string{"x", "y"} {
		putLimit(c.Fixture, name, 1, 0)
	}
	c.Create("both", Never, limited("x", "y"))
	c.Create("x", Never, limited("x"))
	c.Create("y", Never, limited("y"))
	y := c.Begun("y")
	both := c.Trigger("both")
	c.Exec(`UPDATE punctual.runs SET due_at = due_at - interval '2 min' WHERE id = $1`, both.ID)
	c.Trigger("x")
	if b := c.ClaimReady(10); len(b.Runs) != 0 {
		t.Fatalf("%v start", jobsOf(b.Runs))
	}
	c.Finish(Succeeded(y))
	release(c.Fixture)
	if a := c.One(c.ClaimReady(10)); a.RunID != both.ID {
		t.Errorf("%s starts", a.Job.Name)
	}
}

// With the policy queue the runs of a job wait in order and go one at a time, up to a number. Further slots are
// skipped, and triggers refused.
func TestRunsOfAJobInAQueue(t *testing.T) {
	c := NewReplica(t)
	queued := func(d *jobspec.Definition) {
		d.ConcurrencyPolicy, d.MaxPendingRuns = jobspec.PolicyQueue, 3
		d.Schedule = jobspec.Schedule{Every: jobspec.DurationOf(time.Second)}
	}
	job, slot := c.DueNow("job", queued)
	c.SetNext(job.ID, slot.Add(-4*time.Second))
	if b := c.Claim(10, false); len(b.Runs) != 0 {
		t.Fatal("a slot starts a run that has no turn")
	}
	var want, got []uuid.UUID
	for i := range 3 {
		want = append(want, domain.SlotRunID(job.ID, slot.Add(time.Duration(i-4)*time.Second)))
	}
	c.WantCount(3, "runs wait", `SELECT count(*) FROM punctual.ready`)
	if n := c.Count(`SELECT count(*) FROM punctual.runs WHERE status = 'skipped' AND reason = 'limit'`); n < 2 {
		t.Errorf("%d slots beyond the bound are skipped", n)
	}
	if _, err := c.TryTrigger("job"); err == nil {
		t.Error("a trigger beyond the bound is not refused")
	}
	for range 3 {
		c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id <> (SELECT min(run_id::text)::uuid FROM punctual.ready)`)
		a := c.One(c.ClaimReady(10))
		if b := c.ClaimReady(10); len(b.Runs) != 0 {
			t.Fatal("two runs at once")
		}
		got = append(got, a.RunID)
		c.Finish(Succeeded(a))
	}
	if !slices.Equal(got, want) {
		t.Errorf("they run in the order %v, want %v", got, want)
	}
}

// A definition may name only limits that exist, and a limit that a job names cannot be deleted.
func TestLimitsAndTheJobsThatNameThem(t *testing.T) {
	c := NewReplica(t)
	putLimit(c.Fixture, "warehouse", 1, 0)
	_, err := c.TryCreate("job", limited("warehous"))
	if blames := jobspec.BlamesOf(err); len(blames) != 1 || blames[0].Message !=
		`there is no limit "warehous"; create it with PUT /v1/limits/warehous; did you mean warehouse?` {
		t.Errorf("an unknown limit is refused with %v", err)
	}
	c.Create("job", Never, limited("warehouse"))
	a := c.Begun("job")
	c.Trigger("job")
	c.ClaimReady(10)
	if l, err := c.Limits.Get(t.Context(), c.Tenant, "warehouse"); err != nil || l.Running != 1 || l.Waiting != 1 || l.Jobs != 1 ||
		len(l.HeldBy) != 1 || l.HeldBy[0].Run != a.RunID || l.HeldBy[0].Job != "job" {
		t.Errorf("the limit is shown as %+v, %v", l, err)
	}
	if err := c.Limits.Delete(t.Context(), c.Tenant, "warehouse"); err == nil {
		t.Error("a limit is deleted that a job names")
	}
	putLimit(c.Fixture, "warehouse", 2, 0)
	c.One(c.ClaimReady(10)) // more room
	c.Trigger("job")
	c.ClaimReady(10)
	c.Edit("job", limited())
	Must(t, c.Limits.Delete(t.Context(), c.Tenant, "warehouse"))
	c.One(c.ClaimReady(10))
}

// Replicas claim, finish and are lost, all at once: a limit never has more holders than it allows, and all runs end.
func TestALimitHoldsWhileReplicasRace(t *testing.T) {
	dsn := pgtest.DSN(t)
	c := AsReplica(NewFixtureOn(t, dsn))
	t.Parallel()
	putLimit(c.Fixture, "one", 1, 0)
	putLimit(c.Fixture, "two", 2, 0)
	each := 20
	if testing.Short() {
		each = 6
	}
	for i := range 5 {
		c.Create(fmt.Sprint("job-", i), Never, limited([][]string{{"one"}, {"two"}, {"two", "one"}}[i%3]...))
		for range each {
			c.Trigger(fmt.Sprint("job-", i))
		}
	}
	var racing sync.WaitGroup
	ended := func() int { return c.Count(`SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`) }
	for i := range 3 {
		r := AsReplica(NewFixtureOn(t, dsn))
		racing.Go(func() {
			for n := 0; ended() < 5*each && t.Context().Err() == nil; n++ {
				for _, a := range r.ClaimReady(5).Runs {
					if over := c.Count(`SELECT count(*) FROM punctual.limits l
						WHERE l.max_running < (SELECT count(*) FROM punctual.holders_of_limit(l.tenant, l.name))`); over > 0 {
						t.Error("a limit has more holders than it allows")
					}
					if a.Attempt < 3 && (n+i)%7 == 0 { // killed: the others take over. The third time the run would be dead.
						c.Exec(`DELETE FROM punctual.replicas WHERE id = $1`, r.ReplicaID)
						r = AsReplica(r.Fixture)
						continue
					}
					r.Finish(Succeeded(a))
				}
				_, err := r.Replicas.Recover(t.Context(), nil)
				Must(t, err)
				c.Exec(`UPDATE punctual.ready y SET due_at = now()
					FROM (SELECT run_id FROM punctual.ready WHERE waits_on IS NULL FOR UPDATE SKIP LOCKED) free
					WHERE y.run_id = free.run_id`) // retries
				release(r.Fixture)
			}
		})
	}
	racing.Wait()
}

// What waits at a limit says so, with the run that holds it, wherever people look.
func TestARunSaysWhichLimitItWaitsAt(t *testing.T) {
	c := NewReplica(t)
	putLimit(c.Fixture, "warehouse", 1, 0)
	c.Create("job", Never, limited("warehouse"))
	a := c.Begun("job")
	waits := c.Trigger("job")
	c.ClaimReady(10)
	want := "limit warehouse (held by run " + a.RunID.String() + ")"
	if w, err := c.Runs.RunWaitsFor(t.Context(), c.Tenant, waits.ID); err != nil || w == nil || w.What != want {
		t.Errorf("the run waits for %+v, %v; want %s", w, err, want)
	}
	for view, sql := range map[string]string{
		"overdue":    `SELECT held_by FROM punctual.overdue`,
		"job_status": `SELECT waiting_for FROM punctual.job_status`,
	} {
		if got := Value[string](c.Fixture, sql); got != want {
			t.Errorf("%s says %q, want %q", view, got, want)
		}
	}
	all, err := c.Fleet.Waits(t.Context())
	Must(t, err)
	if !slices.ContainsFunc(all, func(w fleet.Wait) bool { return w.For == "limit" && w.Oldest > 0 }) {
		t.Errorf("the metrics say %+v", all)
	}
}

// Verify finds a limit that too many runs hold, and one with room at which a run waits. A limit that was lowered lets
// the runs end that hold it.
func TestVerifyFindsLimitsThatAreNotObeyed(t *testing.T) {
	c := NewReplica(t)
	for _, name := range []string{"held", "free", "lowered"} {
		putLimit(c.Fixture, name, 2, 0)
		c.Create(name, Never, limited(name))
		for range 2 {
			c.Trigger(name)
		}
	}
	c.ClaimReady(10)
	c.Trigger("free")
	c.ClaimReady(10)
	putLimit(c.Fixture, "lowered", 1, 0)
	if got := verifyLimits(c); got != nil {
		t.Fatalf("without a fault: %v", got)
	}
	c.Exec(`UPDATE punctual.limits SET max_running = 1 WHERE name = 'held'`)
	c.Exec(`DELETE FROM punctual.limit_holders WHERE name = 'free'`)
	if got, want := verifyLimits(c), []string{
		`limit "held" allows 1 runs at once, and as many were open when this one began`,
		`limit "free" has room, and these runs wait at it all the same`,
		`limit "held" has 2 holders, and allows 1`,
	}; !slices.Equal(got, want) {
		t.Errorf("verify finds %v, want %v", got, want)
	}
}

func verifyLimits(c Replica) (details []string) {
	c.T.Helper()
	_, err := c.History.Verify(c.T.Context(), history.VerifyOptions{
		From: c.Clock().Add(-time.Hour), To: c.Clock(), Grace: time.Millisecond,
		Report: func(v history.Violation) error {
			if v.Kind == history.ViolationLimit {
				details = append(details, v.Detail)
			}
			return nil
		},
	})
	Must(c.T, err)
	return details
}

// When runs were let in is between when they were due and their first requests. A retry takes none of the rate.
func TestVerifyFindsStartsBeyondTheRateOfALimit(t *testing.T) {
	c := NewReplica(t)
	putLimit(c.Fixture, "api", 0, 10)
	c.Create("job", Never, limited("api"))
	for range 6 {
		c.Trigger("job")
	}
	c.Exec(`UPDATE punctual.limits SET updated_at = now() - interval '1 hour'`)
	for n := 0; n < 6; {
		for _, a := range c.ClaimReady(20).Runs {
			if n++; n == 1 {
				c.Finish(Failed(a))
			} else {
				c.Finish(Succeeded(a))
			}
		}
		release(c.Fixture)
	}
	if got := verifyLimits(c); got != nil {
		t.Errorf("without a fault: %v", got)
	}
	const atOnce = `
		UPDATE punctual.runs r SET due_at = f.at, started_at = f.at FROM (SELECT min(started_at) AS at FROM punctual.runs) f`
	c.Exec(atOnce)
	if got, want := verifyLimits(c), []string{
		`limit "api" allows 10 starts a second, and more have started by the time of this run`,
	}; !slices.Equal(got, want) {
		t.Errorf("verify finds %v, want %v", got, want)
	}
	c.Exec(`UPDATE punctual.limits SET updated_at = now()`)
	if got := verifyLimits(c); got != nil {
		t.Errorf("of starts before the limit was changed: %v", got)
	}
}

// The rate of a limit counts the starts of steps that take it, and neither the workflow's own run nor other steps.
func TestVerifyCountsTheStartsOfStepsAtALimit(t *testing.T) {
	t.Parallel()
	for want, own := range map[int][]string{1: nil, 0: {}} { // the steps have the job's limit, or none
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			c := NewReplica(t)
			putLimit(c.Fixture, "api", 0, 1)
			c.Create("w", Never, limited("api"), Steps("a", "b", "c"), func(d *jobspec.Definition) {
				for i := range d.Steps {
					d.Steps[i].Limits = own
				}
			})
			c.Exec(`UPDATE punctual.limits SET updated_at = now() - interval '1 hour'`)
			c.StartWorkflow("w", "")
			c.Exec(`UPDATE punctual.runs SET due_at = now(), created_at = now(), started_at = now()`)
			if got := verifyLimits(c); len(got) != want {
				t.Errorf("verify finds %v, want %d", got, want)
			}
		})
	}
}
