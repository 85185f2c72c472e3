package store

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

func (c crud) plan(r letters.BackfillRequest) letters.BackfillPlan {
	c.t.Helper()
	p, err := c.Letters.PlanBackfill(c.t.Context(), c.tenant, r)
	must(c.t, err)
	return p
}

// fills returns how many runs a backfill would make.
func (c crud) fills(r letters.BackfillRequest) int {
	c.t.Helper()
	n, err := c.Letters.CountBackfill(c.t.Context(), c.plan(r))
	must(c.t, err)
	return n
}

func (c crud) backfill(r letters.BackfillRequest) letters.Operation {
	c.t.Helper()
	o, err := c.For(c.tenant).StartBackfill(c.t.Context(), c.plan(r))
	must(c.t, err)
	return o
}

// slotRuns returns the trigger of each slot's own run, in the order of slots, and "-" for a slot without a run.
func (c crud) slotRuns(job uuid.UUID, slots []time.Time) string {
	c.t.Helper()
	var found []string
	for _, at := range slots {
		found = append(found, c.text(`SELECT trigger FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, at)))
	}
	return strings.Join(found, " ")
}

func (c crud) backfilled(job uuid.UUID) int {
	return c.count(`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND trigger = 'backfill'`, job)
}

func TestBackfillFillsTheSlotsThatHaveNoRun(t *testing.T) {
	c := newClaimer(t)
	job, slots := c.lived("a", expiring(time.Second))
	c.exec(`DELETE FROM punctual.runs WHERE id = ANY($1::uuid[])`,
		[]uuid.UUID{domain.SlotRunID(job, slots[1]), domain.SlotRunID(job, slots[2])})
	c.skippedAt(job, slots[1], slots[2], 2)
	c.edit("a", described("another"))
	past := slots[0].Add(-2 * time.Hour) // two slots from before the job existed
	r := letters.BackfillRequest{Job: "a", From: past, To: slots[4], Note: "why"}
	if p := c.plan(r); p.Matched() != 6 || c.fills(r) != 4 {
		t.Fatalf("%d slots, %d runs to be made", p.Matched(), c.fills(r))
	}
	if n := c.count(`SELECT count(*) FROM punctual.operations`); n != 0 {
		t.Fatal("a plan started something")
	}
	o := c.backfill(r)
	if o.Kind != letters.OperationBackfill || o.JobID == nil || *o.JobID != job || orEmpty(o.Note) != "why" {
		t.Errorf("%+v", o)
	}
	c.wantProgress(o.ID, letters.OperationRunning, 6, 0, 0)
	if !c.wants(letters.Chore) {
		t.Error("no heartbeat asks for it")
	}
	c.woken()
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 6, 6, 0)
	if !c.woken() {
		t.Error("the tick loop was not told")
	}
	all := append([]time.Time{past, slots[0].Add(-time.Hour)}, slots...)
	if got := c.slotRuns(job, all); got != "backfill backfill schedule backfill backfill schedule schedule" {
		t.Errorf("the slots have %s", got)
	}
	c.wantOutcomes(o.ID, runs.Outcomes{Unended: 4})
	claimed := c.claimReady(100).Runs
	for i, at := range []time.Time{past, past.Add(time.Hour), slots[1], slots[2]} {
		a := claimed[i]
		if !a.ScheduledFor.Equal(at) || !a.DueAt.Equal(at) || a.Late || a.Job.Version != 2 ||
			a.Trigger != domain.TriggerBackfill {
			t.Errorf("run %d: %+v", i, a)
		}
	}
	c.finishAll(claimed)
	c.wantOutcomes(o.ID, runs.Outcomes{Succeeded: 4})
	if got, _ := c.verified(); len(got) != 0 {
		t.Errorf("violations %q", got)
	}

	// The same backfill again makes no new runs.
	if n := c.fills(r); n != 0 {
		t.Errorf("a second one would make %d runs", n)
	}
	again := c.backfill(r)
	c.work()
	c.wantProgress(again.ID, letters.OperationDone, 6, 6, 0)
	if n := c.backfilled(job); n != 4 || c.ready(job) != 0 {
		t.Errorf("%d runs, %d in ready", n, c.ready(job))
	}
	c.wantOutcomes(again.ID, runs.Outcomes{})
}

func (c claimer) finishAll(runs []domain.Assignment) {
	c.t.Helper()
	var outcomes []domain.Outcome
	for _, a := range runs {
		outcomes = append(outcomes, succeeded(a))
	}
	c.finish(outcomes...)
}

func TestBackfillThatRepeatsMakesNewRunsOfSlotsThatHaveOne(t *testing.T) {
	c := newClaimer(t)
	job, slots := c.lived("a")
	c.exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, slots[1]))
	r := letters.BackfillRequest{Job: "a", From: slots[0], To: slots[3], Rerun: true}
	for n := range 2 { // each of the two requests repeats the runs
		if n := c.fills(r); n != 3 {
			t.Errorf("%d runs would be made", n)
		}
		o := c.backfill(r)
		c.work()
		c.wantProgress(o.ID, letters.OperationDone, 3, 3, 0)
		c.wantCount(2, "they are not in order in ready",
			`SELECT count(*) FROM (SELECT lag(r.scheduled_for) OVER (ORDER BY y.due_at) < r.scheduled_for AS grows
			FROM punctual.ready y JOIN punctual.runs r ON r.id = y.run_id) s WHERE grows`)
		c.wantOutcomes(o.ID, runs.Outcomes{Unended: 3})
		runs := c.claimReady(100).Runs
		if len(runs) != 3 {
			t.Fatalf("%d runs", len(runs))
		}
		slices.SortFunc(runs, func(a, b domain.Assignment) int { return a.ScheduledFor.Compare(b.ScheduledFor) })
		for i, a := range runs {
			own := a.RunID == domain.SlotRunID(job, slots[i])
			if !a.ScheduledFor.Equal(slots[i]) || own != (n == 0 && i == 1) {
				t.Errorf("round %d, run %d: %s of %s", n, i, a.RunID, a.ScheduledFor)
			}
		}
		c.finishAll(runs)
	}
	if got := c.slotRuns(job, slots[:3]); got != "schedule backfill schedule" {
		t.Errorf("the slots have %s", got)
	}
	if got, _ := c.verified(); len(got) != 0 {
		t.Errorf("violations %q", got)
	}
}

func TestBackfillIsRefused(t *testing.T) {
	c := newClaimer(t)
	c.create("a")
	c.complete(c.create("often", every(time.Second)).ID) // so that no next slot bounds the backfill
	c.create("once", at(time.Now().Add(time.Hour)))
	c.create("gone")
	c.deleteJob("gone")
	now := time.Now()
	for _, test := range []struct {
		name     string
		job      string
		from, to time.Duration // how long ago
		want     []string      // parts of the error
	}{
		{
			"beyond the retention", "a", DefaultRetention + time.Hour, time.Hour,
			[]string{"from: " + pg.Stamp(now.Add(-DefaultRetention-time.Hour)), "at the earliest "},
		},
		{"in the future", "a", time.Hour, -time.Hour, []string{"to: " + pg.Stamp(now.Add(time.Hour)), "in the future"}},
		{
			"for several reasons, all of which it names", "once", DefaultRetention + time.Hour, -time.Hour,
			[]string{`job: "once"`, "from: ", "to: "},
		},
		{"without a recurring schedule", "once", time.Hour, time.Minute, []string{"neither cron nor every"}},
		{
			"of too many slots", "often", (letters.MostBackfilled + 1) * time.Second, 0,
			[]string{"to: " + pg.Stamp(now), "more than 100000 slots"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.Letters.PlanBackfill(t.Context(), c.tenant,
				letters.BackfillRequest{Job: test.job, From: now.Add(-test.from), To: now.Add(-test.to)})
			if len(domain.BlamesOf(err)) == 0 {
				t.Fatalf("error %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
	_, err := c.Letters.PlanBackfill(t.Context(), c.tenant,
		letters.BackfillRequest{Job: "a", From: now.Add(-DefaultRetention - time.Hour), To: now})
	_, earliest, _ := strings.Cut(fmt.Sprint(err), "at the earliest ")
	if named, err := time.Parse(time.RFC3339, earliest); err != nil || named.Before(now.Add(-DefaultRetention)) ||
		named.After(time.Now().Add(-DefaultRetention+time.Minute)) {
		t.Errorf("it may begin at %q", earliest)
	}
	if p := c.plan(letters.BackfillRequest{
		Job: "often", From: now.Truncate(time.Second).Add(-letters.MostBackfilled * time.Second), To: now.Truncate(time.Second),
	}); p.Matched() != letters.MostBackfilled {
		t.Errorf("%d slots", p.Matched())
	}
	for _, ref := range []string{"gone", "nobody", uuid.NewString()} {
		_, err := c.Letters.PlanBackfill(
			t.Context(), c.tenant, letters.BackfillRequest{Job: ref, From: now.Add(-time.Hour), To: now},
		)
		wantError(t, err, ErrNotFound)
	}
	_, err = c.Letters.PlanBackfill(t.Context(), c.tenant+1, letters.BackfillRequest{Job: "a", From: now.Add(-time.Hour), To: now})
	wantError(t, err, ErrNotFound)
}

// After the retention was raised, the days that the lower retention removed stay gone: no record says which slots of an
// old job ran on those days.
func TestBackfillReachesNoFurtherThanTheHistoryOfAnOldJob(t *testing.T) {
	c := newClaimer(t)
	job := c.create("a")
	old := letters.BackfillRequest{Job: "a", From: time.Now().Add(-10 * 24 * time.Hour), To: time.Now().Add(-9 * 24 * time.Hour)}
	if n := c.plan(old).Matched(); n != 24 {
		t.Errorf("%d slots of a young job", n)
	}
	c.exec(`UPDATE punctual.jobs SET created_at = now() - interval '20 days' WHERE id = $1`, job.ID)
	_, err := c.Letters.PlanBackfill(t.Context(), c.tenant, old)
	first := time.Now().UTC().Truncate(24 * time.Hour).Add(-24 * time.Hour)
	if err == nil || !strings.Contains(err.Error(), "at the earliest "+pg.Stamp(first)[:16]) {
		t.Errorf("error %v, want one that names %s", err, first)
	}
}

func TestBackfillLeavesAloneWhatWillRunByItself(t *testing.T) {
	t.Run("slots that wait to be caught up with after an outage", func(t *testing.T) {
		c := newClaimer(t)
		job, slots := c.lived("a", missed(domain.MissedFireAll))
		c.exec(`DELETE FROM punctual.runs WHERE job_id = $1`, job)
		c.setNext(job, slots[2])
		o := c.backfill(letters.BackfillRequest{Job: "a", From: slots[0], To: time.Now()})
		c.work()
		c.wantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		c.finishAll(c.claimReady(100).Runs)
		for n := 3; n > 0; n-- {
			b := c.claim(100, true)
			c.finishAll(b.Runs)
			if n -= len(b.Runs) - 1; len(b.Runs) == 0 {
				t.Fatal("the rest is not claimed")
			}
		}
		if got := c.slotRuns(job, slots); got != "backfill backfill catchup catchup catchup" {
			t.Errorf("the slots have %s", got)
		}
	})
	t.Run("a slot that jitter still holds back", func(t *testing.T) {
		c := newClaimer(t)
		since := func(start time.Time) option {
			return func(d *domain.Definition) {
				every(48 * time.Hour)(d)
				d.Schedule.StartsAt, d.Jitter = domain.InstantOf(start), domain.DurationOf(23*time.Hour)
			}
		}
		now := time.Now().Truncate(time.Second)
		job := c.create("a", since(now))
		timetable, err := domain.NewTimetable(job.ID, job.Definition.WithDefaults(), 0)
		must(t, err)
		offset := timetable.Due(now, nil).Sub(now)
		for started, want := range map[time.Duration]int{offset / 2: 0, offset + 10*time.Second: 1} { // how long ago
			c.edit("a", since(now.Add(-started)))
			if n := c.plan(letters.BackfillRequest{Job: "a", From: now.Add(-24 * time.Hour), To: now}).Matched(); n != want {
				t.Errorf("%d slots %s after the only one, due %s after it; want %d", n, started, offset, want)
			}
		}
	})
	t.Run("but not the slots that pass while the job is paused", func(t *testing.T) {
		c := newClaimer(t)
		job, slots := c.lived("a")
		c.exec(`DELETE FROM punctual.runs WHERE job_id = $1`, job)
		c.pause("a")
		c.exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1 AND version = 2`,
			job, slots[0].Add(-time.Minute))
		c.setNext(job, slots[0])
		o := c.backfill(letters.BackfillRequest{Job: "a", From: slots[0], To: slots[2]})
		c.work()
		c.wantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		c.finishAll(c.claimReady(100).Runs)
		c.resumed("a")
		if got := c.slotRuns(job, slots); got != "backfill backfill - - -" {
			t.Errorf("the slots have %s", got)
		}
		if got, _ := c.verified(); len(got) != 0 {
			t.Errorf("violations %q", got)
		}
	})
}

func TestBackfillOfAJobThatMustNotOverlapGoesOneAtATimeOldestFirst(t *testing.T) {
	for _, policy := range []domain.ConcurrencyPolicy{
		domain.PolicyForbid, domain.PolicyReplace, domain.PolicyWait,
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := newClaimer(t)
			job, slots := c.lived("a", overlapping(policy))
			for _, i := range []int{0, 2, 3} {
				c.exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, slots[i]))
			}
			c.trigger("a")
			active := c.one(c.claimReady(100))
			o := c.backfill(letters.BackfillRequest{Job: "a", From: slots[0], To: slots[4]})
			for i, at := range []time.Time{slots[0], slots[2], slots[3]} {
				c.nextBatch()
				c.nextBatch() // while a run is active
				if n := c.backfilled(job); n != i || c.ready(job) != 0 {
					t.Fatalf("%d runs were made beside the active one, %d wait", n, c.ready(job))
				}
				c.finishAll([]domain.Assignment{active})
				c.nextBatch()
				c.nextBatch() // while a run waits
				if n := c.ready(job); n != 1 {
					t.Fatalf("%d wait", n)
				}
				if active = c.one(c.claimReady(100)); !active.ScheduledFor.Equal(at) ||
					active.RunID != domain.SlotRunID(job, at) {
					t.Fatalf("claimed %s of %s, want %s", active.RunID, active.ScheduledFor, at)
				}
			}
			c.finishAll([]domain.Assignment{active})
			c.nextBatch()
			c.wantProgress(o.ID, letters.OperationDone, 4, 4, 0)
			c.wantCount(0, "were skipped or cancelled",
				`SELECT count(*) FROM punctual.runs WHERE status IN ('skipped', 'cancelled')`)
		})
	}
}

func TestBackfillKeepsToItsRateAndCanBeCancelled(t *testing.T) {
	c := newClaimer(t)
	job := c.create("a", every(time.Minute))
	to := time.Now().Truncate(time.Minute)
	o := c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-9 * time.Minute), To: to, MaxPerSecond: 10})
	c.work() // as fast as possible: the operation's row says when the next batch is too early
	c.wantProgress(o.ID, letters.OperationDone, 9, 9, 0)
	c.wantAtRate()
	o = c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-20 * time.Minute), To: to, MaxPerSecond: 4})
	c.nextBatch()
	c.nextBatch()
	if _, err := c.Letters.CancelOperation(t.Context(), c.tenant, o.ID); err != nil {
		t.Fatal(err)
	}
	if c.batch() {
		t.Error("work is left")
	}
	c.wantProgress(o.ID, letters.OperationCancelled, 20, 2, 0)
	again := c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-20 * time.Minute), To: to})
	c.batch() // slots that already have their run do not count towards the rate
	c.wantProgress(again.ID, letters.OperationDone, 20, 20, 0)
	if n := c.backfilled(job.ID); n != 20 {
		t.Errorf("%d runs", n)
	}
}

func TestBackfillGoesOnWhereABatchWasCutOff(t *testing.T) {
	c := newClaimer(t)
	job := c.create("a", every(time.Minute))
	to := time.Now().Truncate(time.Minute)
	c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-6 * time.Minute), To: to})
	c.work()
	o := c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-6 * time.Minute), To: to, Rerun: true, MaxPerSecond: 8})
	c.batch()
	c.wantProgress(o.ID, letters.OperationRunning, 6, 2, 0)
	c.cutOffBatch("ready")
	c.wantProgress(o.ID, letters.OperationRunning, 6, 2, 0)
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 6, 6, 0)
	c.wantCount(6, "slots were repeated exactly once", `SELECT count(*)
		FROM (SELECT FROM punctual.runs WHERE job_id = $1 GROUP BY scheduled_for HAVING count(*) = 2) s`, job.ID)
}

func TestReplicasAtOnceBackfillEachSlotOnce(t *testing.T) {
	c := newClaimer(t)
	job := c.create("a", every(time.Minute))
	to := time.Now().Truncate(time.Minute)
	for range 2 {
		c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-600 * time.Minute), To: to})
	}
	ended := make(chan error)
	for range 4 {
		go func() {
			for {
				_, left, err := c.Letters.Operate(t.Context())
				if err == nil { // as if replicas had started the waiting runs
					_, err = c.DB.Callers.Exec(t.Context(),
						`UPDATE punctual.ready SET due_at = now() + interval '1 hour' WHERE due_at <= now()`)
				}
				if err != nil || !left {
					ended <- err
					return
				}
			}
		}()
	}
	for range 4 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := c.count(`SELECT count(*) FROM punctual.operations WHERE state = 'done' AND done = 600`); n != 2 ||
		c.backfilled(job.ID) != 600 || c.ready(job.ID) != 600 {
		t.Errorf("%d are done, %d runs, %d in ready", n, c.backfilled(job.ID), c.ready(job.ID))
	}
}

func TestBackfillMakesThePartitionsItNeeds(t *testing.T) {
	c := newClaimer(t)
	c.create("a", every(24*time.Hour))
	to := time.Now().UTC().Truncate(24 * time.Hour)
	o := c.backfill(letters.BackfillRequest{Job: "a", From: to.AddDate(0, 0, -20), To: to})
	c.work()
	c.wantProgress(o.ID, letters.OperationDone, 20, 20, 0)
	if _, from, _ := c.days(); from != -20 {
		t.Errorf("the oldest day is %d", from)
	}
}

func TestBackfillLeavesOutWhatGrewTooOldMeanwhile(t *testing.T) {
	c := newClaimer(t)
	job := c.create("a")
	to := began.Add(-30 * time.Minute) // it is a slot of the job
	o := c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-4 * time.Hour), To: to})
	c.Letters = letters.New(c.DB, c.Days, c.Definitions, c.Jobs, letters.Options{
		Log: slog.Default(), Retention: time.Since(to) + 150*time.Minute,
	})
	c.work()
	said := orEmpty(c.wantProgress(o.ID, letters.OperationDone, 4, 2, 2).Error)
	if !strings.Contains(said, pg.Stamp(to.Add(-3*time.Hour))) {
		t.Errorf("it says %q", said)
	}
	if n := c.backfilled(job.ID); n != 2 {
		t.Errorf("%d runs", n)
	}
}

func TestBackfillOfAJobThatChangesMeanwhile(t *testing.T) {
	to := time.Now().Truncate(time.Hour)
	r := letters.BackfillRequest{Job: "a", From: to.Add(-4 * time.Hour), To: to, MaxPerSecond: 4}
	t.Run("an edit changes what is sent, and not for which slots", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("a")
		o := c.backfill(r)
		c.nextBatch()
		c.edit("a", every(time.Minute))
		c.work()
		c.wantProgress(o.ID, letters.OperationDone, 4, 4, 0)
		c.wantCount(3, "runs under the new version",
			`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND job_version = 2`, job.ID)
	})
	t.Run("its end ends the backfill", func(t *testing.T) {
		c := newClaimer(t)
		c.create("a")
		o := c.backfill(r)
		c.nextBatch()
		c.deleteJob("a")
		c.nextBatch()
		if got := c.wantProgress(o.ID, letters.OperationFailed, 4, 1, 0); orEmpty(got.Error) != "the job was deleted" {
			t.Errorf("it says %q", orEmpty(got.Error))
		}
	})
	t.Run("while somebody is changing it, the backfill waits and holds nobody up", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("a")
		o := c.backfill(r)
		free := c.stranger(`jobs WHERE id = $1`, job.ID)
		c.batch()
		c.wantProgress(o.ID, letters.OperationRunning, 4, 0, 0)
		free()
		c.nextBatch()
		c.wantProgress(o.ID, letters.OperationRunning, 4, 1, 0)
	})
}

func TestBackfillOfNothingIsDoneAtOnce(t *testing.T) {
	c := newClaimer(t)
	c.create("a", rarely)
	to := time.Now().Truncate(time.Hour)
	o := c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-50 * time.Minute), To: to})
	c.wantProgress(o.ID, letters.OperationDone, 0, 0, 0)
}

func TestAKindOfOperationOfANewerVersionIsLeftAlone(t *testing.T) {
	c := newClaimer(t)
	c.create("a")
	c.exec(`ALTER TABLE punctual.operations DROP CONSTRAINT operation_kind_is_known`)
	to := time.Now().Truncate(time.Hour)
	o := c.backfill(letters.BackfillRequest{Job: "a", From: to.Add(-2 * time.Hour), To: to})
	c.exec(`UPDATE punctual.operations SET kind = 'rename'`)
	if c.batch() {
		t.Error("work is left for this version")
	}
	c.wantProgress(o.ID, letters.OperationRunning, 2, 0, 0)
}

func TestBackfillWorksInEveryExecMode(t *testing.T) {
	eachExecMode(t, func(t *testing.T, c crud) {
		first := began.Add(-2*time.Hour - 30*time.Minute) // one of the hourly slots: see definition
		for i, options := range [][]option{{}, {forbid}} {
			name := fmt.Sprint("a", i)
			job := c.create(name, options...)
			r := letters.BackfillRequest{
				Job: name, From: first.Add(-time.Minute), To: first.Add(time.Hour + time.Minute),
				Rerun: true, MaxPerSecond: 1000, Note: "n",
			}
			if n := c.fills(r); n != 2 {
				t.Errorf("%d runs would be made", n)
			}
			c.backfill(r)
			c.nextBatch()
			if n := c.backfilled(job.ID); n != 2-i {
				t.Errorf("%d runs", n)
			}
			r.Rerun = false
			if n := c.fills(r); n != i {
				t.Errorf("%d runs would be made then", n)
			}
		}
	})
}
