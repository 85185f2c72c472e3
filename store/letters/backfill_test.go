package letters_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// fills returns how many runs a backfill would make.
func fills(c Fixture, r letters.BackfillRequest) int {
	c.T.Helper()
	n, err := c.Letters.CountBackfill(c.T.Context(), c.Plan(r))
	Must(c.T, err)
	return n
}

// slotRuns returns the trigger of each slot's own run, in the order of slots, and "-" for a slot without a run.
func slotRuns(c Fixture, job uuid.UUID, slots []time.Time) string {
	c.T.Helper()
	var found []string
	for _, at := range slots {
		found = append(found, c.Text(`SELECT trigger FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, at)))
	}
	return strings.Join(found, " ")
}

func TestBackfillFillsTheSlotsThatHaveNoRun(t *testing.T) {
	c := NewReplica(t)
	job, slots := c.Lived("a", Expiring(time.Second))
	c.Exec(`DELETE FROM punctual.runs WHERE id = ANY($1::uuid[])`,
		[]uuid.UUID{domain.SlotRunID(job, slots[1]), domain.SlotRunID(job, slots[2])})
	c.SkippedAt(job, slots[1], slots[2], 2)
	c.Edit("a", Described("another"))
	past := slots[0].Add(-2 * time.Hour) // two slots from before the job existed
	r := letters.BackfillRequest{Job: "a", From: past, To: slots[4], Note: "why"}
	if p := c.Plan(r); p.Matched() != 6 || fills(c.Fixture, r) != 4 {
		t.Fatalf("%d slots, %d runs to be made", p.Matched(), fills(c.Fixture, r))
	}
	if n := c.Count(`SELECT count(*) FROM punctual.operations`); n != 0 {
		t.Fatal("a plan started something")
	}
	o := c.Backfill(r)
	if o.Kind != letters.OperationBackfill || o.JobID == nil || *o.JobID != job || OrEmpty(o.Note) != "why" {
		t.Errorf("%+v", o)
	}
	c.WantProgress(o.ID, letters.OperationRunning, 6, 0, 0)
	if !c.Wants(letters.Chore) {
		t.Error("no heartbeat asks for it")
	}
	c.Woken()
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 6, 6, 0)
	if !c.Woken() {
		t.Error("the tick loop was not told")
	}
	all := append([]time.Time{past, slots[0].Add(-time.Hour)}, slots...)
	if got := slotRuns(c.Fixture, job, all); got != "backfill backfill schedule backfill backfill schedule schedule" {
		t.Errorf("the slots have %s", got)
	}
	wantOutcomes(c.Fixture, o.ID, runs.Outcomes{Unended: 4})
	claimed := c.ClaimReady(100).Runs
	for i, at := range []time.Time{past, past.Add(time.Hour), slots[1], slots[2]} {
		a := claimed[i]
		if !a.ScheduledFor.Equal(at) || !a.DueAt.Equal(at) || a.Late || a.Job.Version != 2 ||
			a.Trigger != domain.TriggerBackfill {
			t.Errorf("run %d: %+v", i, a)
		}
	}
	c.FinishAll(claimed)
	wantOutcomes(c.Fixture, o.ID, runs.Outcomes{Succeeded: 4})
	if got, _ := c.Verified(); len(got) != 0 {
		t.Errorf("violations %q", got)
	}

	// The same backfill again makes no new runs.
	if n := fills(c.Fixture, r); n != 0 {
		t.Errorf("a second one would make %d runs", n)
	}
	again := c.Backfill(r)
	c.Work()
	c.WantProgress(again.ID, letters.OperationDone, 6, 6, 0)
	if n := c.Backfilled(job); n != 4 || c.Ready(job) != 0 {
		t.Errorf("%d runs, %d in ready", n, c.Ready(job))
	}
	wantOutcomes(c.Fixture, again.ID, runs.Outcomes{})
}

func TestBackfillThatRepeatsMakesNewRunsOfSlotsThatHaveOne(t *testing.T) {
	c := NewReplica(t)
	job, slots := c.Lived("a")
	c.Exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, slots[1]))
	r := letters.BackfillRequest{Job: "a", From: slots[0], To: slots[3], Rerun: true}
	for n := range 2 { // each of the two requests repeats the runs
		if n := fills(c.Fixture, r); n != 3 {
			t.Errorf("%d runs would be made", n)
		}
		o := c.Backfill(r)
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 3, 3, 0)
		c.WantCount(2, "they are not in order in ready",
			`SELECT count(*) FROM (SELECT lag(r.scheduled_for) OVER (ORDER BY y.due_at) < r.scheduled_for AS grows
			FROM punctual.ready y JOIN punctual.runs r ON r.id = y.run_id) s WHERE grows`)
		wantOutcomes(c.Fixture, o.ID, runs.Outcomes{Unended: 3})
		runs := c.ClaimReady(100).Runs
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
		c.FinishAll(runs)
	}
	if got := slotRuns(c.Fixture, job, slots[:3]); got != "schedule backfill schedule" {
		t.Errorf("the slots have %s", got)
	}
	if got, _ := c.Verified(); len(got) != 0 {
		t.Errorf("violations %q", got)
	}
}

func TestBackfillIsRefused(t *testing.T) {
	c := NewReplica(t)
	c.Create("a")
	c.Complete(c.Create("often", Every(time.Second)).ID) // so that no next slot bounds the backfill
	c.Create("once", At(time.Now().Add(time.Hour)))
	c.Create("gone")
	c.DeleteJob("gone")
	now := time.Now()
	for _, test := range []struct {
		name     string
		job      string
		from, to time.Duration // how long ago
		want     []string      // parts of the error
	}{
		{
			"beyond the retention", "a", store.DefaultRetention + time.Hour, time.Hour,
			[]string{"from: " + pg.Stamp(now.Add(-store.DefaultRetention-time.Hour)), "at the earliest "},
		},
		{"in the future", "a", time.Hour, -time.Hour, []string{"to: " + pg.Stamp(now.Add(time.Hour)), "in the future"}},
		{
			"for several reasons, all of which it names", "once", store.DefaultRetention + time.Hour, -time.Hour,
			[]string{`job: "once"`, "from: ", "to: "},
		},
		{"without a recurring schedule", "once", time.Hour, time.Minute, []string{"neither cron nor every"}},
		{
			"of too many slots", "often", (letters.MostBackfilled + 1) * time.Second, 0,
			[]string{"to: " + pg.Stamp(now), "more than 100000 slots"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.Letters.PlanBackfill(t.Context(), c.Tenant,
				letters.BackfillRequest{Job: test.job, From: now.Add(-test.from), To: now.Add(-test.to)})
			if len(jobspec.BlamesOf(err)) == 0 {
				t.Fatalf("error %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
	_, err := c.Letters.PlanBackfill(t.Context(), c.Tenant,
		letters.BackfillRequest{Job: "a", From: now.Add(-store.DefaultRetention - time.Hour), To: now})
	_, earliest, _ := strings.Cut(fmt.Sprint(err), "at the earliest ")
	if named, err := time.Parse(time.RFC3339, earliest); err != nil || named.Before(now.Add(-store.DefaultRetention)) ||
		named.After(time.Now().Add(-store.DefaultRetention+time.Minute)) {
		t.Errorf("it may begin at %q", earliest)
	}
	if p := c.Plan(letters.BackfillRequest{
		Job: "often", From: now.Truncate(time.Second).Add(-letters.MostBackfilled * time.Second), To: now.Truncate(time.Second),
	}); p.Matched() != letters.MostBackfilled {
		t.Errorf("%d slots", p.Matched())
	}
	for _, ref := range []string{"gone", "nobody", uuid.NewString()} {
		_, err := c.Letters.PlanBackfill(
			t.Context(), c.Tenant, letters.BackfillRequest{Job: ref, From: now.Add(-time.Hour), To: now},
		)
		WantError(t, err, store.ErrNotFound)
	}
	_, err = c.Letters.PlanBackfill(t.Context(), c.Tenant+1, letters.BackfillRequest{Job: "a", From: now.Add(-time.Hour), To: now})
	WantError(t, err, store.ErrNotFound)
}

// After the retention was raised, the days that the lower retention removed stay gone: no record says which slots of an
// old job ran on those days.
func TestBackfillReachesNoFurtherThanTheHistoryOfAnOldJob(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("a")
	old := letters.BackfillRequest{Job: "a", From: time.Now().Add(-10 * 24 * time.Hour), To: time.Now().Add(-9 * 24 * time.Hour)}
	if n := c.Plan(old).Matched(); n != 24 {
		t.Errorf("%d slots of a young job", n)
	}
	c.Exec(`UPDATE punctual.jobs SET created_at = now() - interval '20 days' WHERE id = $1`, job.ID)
	_, err := c.Letters.PlanBackfill(t.Context(), c.Tenant, old)
	first := time.Now().UTC().Truncate(24 * time.Hour).Add(-24 * time.Hour)
	if err == nil || !strings.Contains(err.Error(), "at the earliest "+pg.Stamp(first)[:16]) {
		t.Errorf("error %v, want one that names %s", err, first)
	}
}

func TestBackfillLeavesAloneWhatWillRunByItself(t *testing.T) {
	t.Parallel()
	t.Run("slots that wait to be caught up with after an outage", func(t *testing.T) {
		c := NewReplica(t)
		job, slots := c.Lived("a", AllMissed)
		c.Exec(`DELETE FROM punctual.runs WHERE job_id = $1`, job)
		c.SetNext(job, slots[2])
		o := c.Backfill(letters.BackfillRequest{Job: "a", From: slots[0], To: time.Now()})
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		c.FinishAll(c.ClaimReady(100).Runs)
		for n := 3; n > 0; n-- {
			b := c.Claim(100, true)
			c.FinishAll(b.Runs)
			if n -= len(b.Runs) - 1; len(b.Runs) == 0 {
				t.Fatal("the rest is not claimed")
			}
		}
		if got := slotRuns(c.Fixture, job, slots); got != "backfill backfill catchup catchup catchup" {
			t.Errorf("the slots have %s", got)
		}
	})
	t.Run("a slot that jitter still holds back", func(t *testing.T) {
		c := NewReplica(t)
		since := func(start time.Time) Option {
			return func(d *jobspec.Definition) {
				Every(48 * time.Hour)(d)
				d.Schedule.StartsAt, d.Jitter = jobspec.InstantOf(start), jobspec.DurationOf(23*time.Hour)
			}
		}
		now := time.Now().Truncate(time.Second)
		job := c.Create("a", since(now))
		timetable, err := jobspec.NewTimetable(job.ID, job.Definition.WithDefaults(), 0)
		Must(t, err)
		offset := timetable.Due(now, nil).Sub(now)
		for started, want := range map[time.Duration]int{offset / 2: 0, offset + 10*time.Second: 1} { // how long ago
			c.Edit("a", since(now.Add(-started)))
			if n := c.Plan(letters.BackfillRequest{Job: "a", From: now.Add(-24 * time.Hour), To: now}).Matched(); n != want {
				t.Errorf("%d slots %s after the only one, due %s after it; want %d", n, started, offset, want)
			}
		}
	})
	t.Run("slots since the end of a pause that nothing has ended yet", func(t *testing.T) {
		c := NewReplica(t)
		job, slots := c.Lived("a", AllMissed)
		c.Exec(`DELETE FROM punctual.runs WHERE job_id = $1`, job)
		c.Pause("a")
		c.Exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1 AND version = 2`,
			job, slots[0].Add(-time.Minute))
		c.Exec(`UPDATE punctual.jobs SET paused_at = $2, updated_at = $2, paused_until = $3 WHERE id = $1`,
			job, slots[0].Add(-time.Minute), slots[2])
		c.SetNext(job, slots[0])
		o := c.Backfill(letters.BackfillRequest{Job: "a", From: slots[0], To: time.Now()})
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		c.FinishAll(c.ClaimReady(100).Runs)
		c.ResumeDue()
		c.FinishAll(c.Claim(100, true).Runs)
		if got := slotRuns(c.Fixture, job, slots); got != "backfill backfill catchup catchup catchup" {
			t.Errorf("the slots have %s", got)
		}
		if got, _ := c.Verified(); len(got) != 0 {
			t.Errorf("violations %q", got)
		}
	})
	t.Run("but not the slots that pass while the job is paused", func(t *testing.T) {
		c := NewReplica(t)
		job, slots := c.Lived("a")
		c.Exec(`DELETE FROM punctual.runs WHERE job_id = $1`, job)
		c.Pause("a")
		c.Exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1 AND version = 2`,
			job, slots[0].Add(-time.Minute))
		c.SetNext(job, slots[0])
		o := c.Backfill(letters.BackfillRequest{Job: "a", From: slots[0], To: slots[2]})
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 2, 2, 0)
		c.FinishAll(c.ClaimReady(100).Runs)
		c.Resumed("a")
		if got := slotRuns(c.Fixture, job, slots); got != "backfill backfill - - -" {
			t.Errorf("the slots have %s", got)
		}
		if got, _ := c.Verified(); len(got) != 0 {
			t.Errorf("violations %q", got)
		}
	})
}

func TestBackfillOfAJobThatMustNotOverlapGoesOneAtATimeOldestFirst(t *testing.T) {
	t.Parallel()
	for _, policy := range []jobspec.ConcurrencyPolicy{
		jobspec.PolicyForbid, jobspec.PolicyReplace, jobspec.PolicyWait,
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := NewReplica(t)
			job, slots := c.Lived("a", Overlapping(policy))
			for _, i := range []int{0, 2, 3} {
				c.Exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, slots[i]))
			}
			c.Trigger("a")
			active := c.One(c.ClaimReady(100))
			o := c.Backfill(letters.BackfillRequest{Job: "a", From: slots[0], To: slots[4]})
			for i, at := range []time.Time{slots[0], slots[2], slots[3]} {
				c.NextBatch()
				c.NextBatch() // while a run is active
				if n := c.Backfilled(job); n != i || c.Ready(job) != 0 {
					t.Fatalf("%d runs were made beside the active one, %d wait", n, c.Ready(job))
				}
				c.FinishAll([]domain.Assignment{active})
				c.NextBatch()
				c.NextBatch() // while a run waits
				if n := c.Ready(job); n != 1 {
					t.Fatalf("%d wait", n)
				}
				if active = c.One(c.ClaimReady(100)); !active.ScheduledFor.Equal(at) ||
					active.RunID != domain.SlotRunID(job, at) {
					t.Fatalf("claimed %s of %s, want %s", active.RunID, active.ScheduledFor, at)
				}
			}
			c.FinishAll([]domain.Assignment{active})
			c.NextBatch()
			c.WantProgress(o.ID, letters.OperationDone, 4, 4, 0)
			c.WantCount(0, "were skipped or cancelled",
				`SELECT count(*) FROM punctual.runs WHERE status IN ('skipped', 'cancelled')`)
		})
	}
}

func TestBackfillKeepsToItsRateAndCanBeCancelled(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("a", Every(time.Minute))
	to := time.Now().Truncate(time.Minute)
	o := c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-9 * time.Minute), To: to, MaxPerSecond: 10})
	c.Work() // as fast as possible: the operation's row says when the next batch is too early
	c.WantProgress(o.ID, letters.OperationDone, 9, 9, 0)
	wantAtRate(c.Fixture)
	o = c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-20 * time.Minute), To: to, MaxPerSecond: 4})
	c.NextBatch()
	c.NextBatch()
	if _, err := c.Letters.CancelOperation(t.Context(), c.Tenant, o.ID); err != nil {
		t.Fatal(err)
	}
	if c.Batch() {
		t.Error("work is left")
	}
	c.WantProgress(o.ID, letters.OperationCancelled, 20, 2, 0)
	again := c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-20 * time.Minute), To: to})
	c.Batch() // slots that already have their run do not count towards the rate
	c.WantProgress(again.ID, letters.OperationDone, 20, 20, 0)
	if n := c.Backfilled(job.ID); n != 20 {
		t.Errorf("%d runs", n)
	}
}

func TestBackfillGoesOnWhereABatchWasCutOff(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("a", Every(time.Minute))
	to := time.Now().Truncate(time.Minute)
	c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-6 * time.Minute), To: to})
	c.Work()
	o := c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-6 * time.Minute), To: to, Rerun: true, MaxPerSecond: 8})
	c.Batch()
	c.WantProgress(o.ID, letters.OperationRunning, 6, 2, 0)
	cutOffBatch(c.Fixture, "ready")
	c.WantProgress(o.ID, letters.OperationRunning, 6, 2, 0)
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 6, 6, 0)
	c.WantCount(6, "slots were repeated exactly once", `SELECT count(*)
		FROM (SELECT FROM punctual.runs WHERE job_id = $1 GROUP BY scheduled_for HAVING count(*) = 2) s`, job.ID)
}

func TestReplicasAtOnceBackfillEachSlotOnce(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("a", Every(time.Minute))
	to := time.Now().Truncate(time.Minute)
	for range 2 {
		c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-600 * time.Minute), To: to})
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
	if n := c.Count(`SELECT count(*) FROM punctual.operations WHERE state = 'done' AND done = 600`); n != 2 ||
		c.Backfilled(job.ID) != 600 || c.Ready(job.ID) != 600 {
		t.Errorf("%d are done, %d runs, %d in ready", n, c.Backfilled(job.ID), c.Ready(job.ID))
	}
}

func TestBackfillMakesThePartitionsItNeeds(t *testing.T) {
	c := NewReplica(t)
	c.Create("a", Every(24*time.Hour))
	to := time.Now().UTC().Truncate(24 * time.Hour)
	o := c.Backfill(letters.BackfillRequest{Job: "a", From: to.AddDate(0, 0, -20), To: to})
	c.Work()
	c.WantProgress(o.ID, letters.OperationDone, 20, 20, 0)
	if _, from, _ := c.DayTables(); from != -20 {
		t.Errorf("the oldest day is %d", from)
	}
}

func TestBackfillLeavesOutWhatGrewTooOldMeanwhile(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("a")
	to := Began.Add(-30 * time.Minute) // it is a slot of the job
	o := c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-4 * time.Hour), To: to})
	c.Letters = letters.New(c.DB, c.Days, c.Definitions, c.Jobs, c.Aside, letters.Options{
		Log: slog.Default(), Retention: time.Since(to) + 150*time.Minute,
	})
	c.Work()
	said := OrEmpty(c.WantProgress(o.ID, letters.OperationDone, 4, 2, 2).Error)
	if !strings.Contains(said, pg.Stamp(to.Add(-3*time.Hour))) {
		t.Errorf("it says %q", said)
	}
	if n := c.Backfilled(job.ID); n != 2 {
		t.Errorf("%d runs", n)
	}
}

func TestBackfillOfAJobThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	to := time.Now().Truncate(time.Hour)
	r := letters.BackfillRequest{Job: "a", From: to.Add(-4 * time.Hour), To: to, MaxPerSecond: 4}
	t.Run("an edit changes what is sent, and not for which slots", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("a")
		o := c.Backfill(r)
		c.NextBatch()
		c.Edit("a", Every(time.Minute))
		c.Work()
		c.WantProgress(o.ID, letters.OperationDone, 4, 4, 0)
		c.WantCount(3, "runs under the new version",
			`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND job_version = 2`, job.ID)
	})
	t.Run("its end ends the backfill", func(t *testing.T) {
		c := NewReplica(t)
		c.Create("a")
		o := c.Backfill(r)
		c.NextBatch()
		c.DeleteJob("a")
		c.NextBatch()
		if got := c.WantProgress(o.ID, letters.OperationFailed, 4, 1, 0); OrEmpty(got.Error) != "the job was deleted" {
			t.Errorf("it says %q", OrEmpty(got.Error))
		}
	})
	t.Run("while somebody is changing it, the backfill waits and holds nobody up", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("a")
		o := c.Backfill(r)
		free := c.Stranger(`jobs WHERE id = $1`, job.ID)
		c.Batch()
		c.WantProgress(o.ID, letters.OperationRunning, 4, 0, 0)
		free()
		c.NextBatch()
		c.WantProgress(o.ID, letters.OperationRunning, 4, 1, 0)
	})
}

func TestBackfillOfNothingIsDoneAtOnce(t *testing.T) {
	c := NewReplica(t)
	c.Create("a", Rarely)
	to := time.Now().Truncate(time.Hour)
	o := c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-50 * time.Minute), To: to})
	c.WantProgress(o.ID, letters.OperationDone, 0, 0, 0)
}

func TestAKindOfOperationOfANewerVersionIsLeftAlone(t *testing.T) {
	c := NewReplica(t)
	c.Create("a")
	c.Exec(`ALTER TABLE punctual.operations DROP CONSTRAINT operation_kind_is_known`)
	to := time.Now().Truncate(time.Hour)
	o := c.Backfill(letters.BackfillRequest{Job: "a", From: to.Add(-2 * time.Hour), To: to})
	c.Exec(`UPDATE punctual.operations SET kind = 'rename'`)
	if c.Batch() {
		t.Error("work is left for this version")
	}
	c.WantProgress(o.ID, letters.OperationRunning, 2, 0, 0)
}

func TestBackfillWorksInEveryExecMode(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(t *testing.T, c Fixture) {
		first := Began.Add(-2*time.Hour - 30*time.Minute) // one of the hourly slots: see definition
		for i, options := range [][]Option{{}, {Forbid}} {
			name := fmt.Sprint("a", i)
			job := c.Create(name, options...)
			r := letters.BackfillRequest{
				Job: name, From: first.Add(-time.Minute), To: first.Add(time.Hour + time.Minute),
				Rerun: true, MaxPerSecond: 1000, Note: "n",
			}
			if n := fills(c, r); n != 2 {
				t.Errorf("%d runs would be made", n)
			}
			c.Backfill(r)
			c.NextBatch()
			if n := c.Backfilled(job.ID); n != 2-i {
				t.Errorf("%d runs", n)
			}
			r.Rerun = false
			if n := fills(c, r); n != i {
				t.Errorf("%d runs would be made then", n)
			}
		}
	})
}
