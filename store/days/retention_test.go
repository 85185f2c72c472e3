package days_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/jobs"
)

const failuresOfDay = "runs_DAY_failures, run_data_DAY_failures, attempts_DAY_failures"

func TestFailuresOutliveSuccesses(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("job", Never).ID
	runs := map[string]uuid.UUID{}
	for name, days := range map[string]int{"recent": 29, "old": 40, "ancient": 100} {
		for i, status := range []domain.Status{domain.StatusSucceeded, domain.StatusDead, domain.StatusSkipped} {
			runs[name+" "+string(status)] = c.Ran(job, c.Ago(days).Add(time.Duration(i)*time.Second), status)
		}
	}
	succeeded := c.Ran(job, c.Ago(50), domain.StatusSucceeded)

	c.RetireRuns()
	if got, want := c.Kept(runs), "old dead, old skipped, recent dead, recent skipped, recent succeeded"; got != want {
		t.Errorf("there are: %s\nwant: %s", got, want)
	}
	if got := c.Tables(c.Ago(40)); got != failuresOfDay {
		t.Errorf("the day with failures has %q", got)
	}
	for _, days := range []int{50, 100} {
		if got := c.Tables(c.Ago(days)); got != "" {
			t.Errorf("%d days ago nothing failed that is kept, and there is %q", days, got)
		}
	}
	if c.Count(`SELECT count(*) FROM punctual.runs WHERE id = $1`, succeeded) != 0 {
		t.Error("the run that succeeded is there")
	}
	c.RetireRuns()
	if got := c.Tables(c.Ago(40)); got != failuresOfDay {
		t.Errorf("a second time changes it to %q", got)
	}

	c.Options.FailureRetention = 30 * 24 * time.Hour
	c.FreshDays()
	c.RetireRuns()
	if got, want := c.Kept(runs), "recent dead, recent skipped, recent succeeded"; got != want {
		t.Errorf("after the failures' retention there are: %s\nwant: %s", got, want)
	}
}

// Something of somebody else's depends on the table of a day.
func TestADayThatCannotBeRemovedHoldsUpNoOther(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("job", Never).ID
	runs := map[string]uuid.UUID{}
	for name, days := range map[string]int{"first": 45, "second": 44, "third": 43} {
		runs[name] = c.Ran(job, c.Ago(days), domain.StatusSucceeded)
	}
	for name, days := range map[string]int{"first": 45, "second": 44} {
		c.Exec(`CREATE VIEW public.` + name + ` AS SELECT FROM punctual.runs_` + c.Ago(days).Format("20060102"))
	}
	err := c.Days.Retire(t.Context())
	for name, days := range map[string]int{"first": 45, "second": 44} {
		if want := "retiring the runs of " + c.Ago(days).Format(time.DateOnly); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if got := c.Tables(c.Ago(43)); got != "" {
		t.Errorf("the third day has %s", got)
	}
	c.Exec(`DROP VIEW public.first, public.second`)
	c.RetireRuns()
	if got := c.Kept(runs); got != "" {
		t.Errorf("in the end there are %s", got)
	}
}

func TestDayThatIsStillNeededStays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		need func(c Fixture, slot time.Time)
		over func(c Fixture)
	}{
		{
			"a run of it is running",
			func(c Fixture, slot time.Time) {
				c.Ran(c.Create("job", Never).ID, slot.Add(time.Second), domain.StatusRunning)
			},
			func(c Fixture) {
				c.Exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = scheduled_for WHERE status = 'running'`)
			},
		},
		{
			"a run of it ended today",
			func(c Fixture, slot time.Time) {
				c.Ran(c.Create("job", Never).ID, slot.Add(time.Second), domain.StatusSucceeded)
				c.Exec(`UPDATE punctual.runs SET finished_at = now()`)
			},
			func(c Fixture) { c.Exec(`UPDATE punctual.runs SET finished_at = scheduled_for`) },
		},
		{
			"a one-shot that is paused is to fire in it",
			func(c Fixture, slot time.Time) {
				job := c.Create("job", Delay(time.Hour)).ID
				c.Exec(`UPDATE punctual.schedules SET scheduled_for = $2, next_run_at = $2, enabled = false WHERE job_id = $1`,
					job, slot.Add(time.Second))
			},
			func(c Fixture) { c.Exec(`UPDATE punctual.schedules SET scheduled_for = now(), next_run_at = now()`) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewFixture(t)
			for _, ago := range []int{40, 100} {
				slot := c.Ago(ago)
				runs := map[string]uuid.UUID{"it": c.Ran(c.Create("other", Never).ID, slot, domain.StatusSucceeded)}
				tt.need(c, slot)
				c.RetireRuns()
				if got := c.Kept(runs); got != "it" {
					t.Errorf("%d days ago: it is gone", ago)
				}
				tt.over(c)
				c.RetireRuns()
				if got := c.Kept(runs); got != "it" {
					t.Errorf("%d days ago: it was looked at again at once", ago)
				}
				c.FreshDays()
				c.RetireRuns()
				if got := c.Kept(runs); got != "" {
					t.Errorf("%d days ago: it is there", ago)
				}
				c.Exec(`DELETE FROM punctual.jobs`)
			}
		})
	}
}

// A report reads the history for hours. Only the removal of old runs waits.
//
//prove:data
func TestReaderOfOldRunsBlocksNeitherWritesNorTheMakingOfPartitions(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	job := c.Create("job", Never).ID
	runs := c.RanTwice(job, c.Ago(40))
	c.Exec(`DROP TABLE punctual.runs_` + c.Ago(-7).Format("20060102"))
	reader, err := c.DB.Callers.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	Must(t, err)
	defer func() { _ = reader.Rollback(context.WithoutCancel(ctx)) }()
	read := func() (n int) {
		t.Helper()
		Must(t, reader.QueryRow(ctx, `SELECT count(*) FROM punctual.runs`).Scan(&n))
		return n
	}
	if n := read(); n != 2 {
		t.Fatalf("the reader sees %d runs", n)
	}

	var removal sync.WaitGroup
	removal.Go(func() {
		if err := c.Days.Retire(ctx); err != nil {
			t.Error(err)
		}
	})
	c.Waiting(1)
	write := func(when string) {
		t.Helper()
		err := pgx.BeginFunc(ctx, c.DB.Callers, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '100ms'`)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane,
					status, trigger)
				VALUES ($1, $2, now(), now(), $3, 1, 5, 'pending', 'manual')`, domain.NewRunID(time.Now()), job, c.Tenant)
			return err
		})
		if err != nil {
			t.Errorf("a run could not be written while %s: %v", when, err)
		}
	}
	write("the removal waits")
	removal.Wait()
	if got := c.Tables(c.Ago(40)); !strings.Contains(got, "runs_DAY pending") {
		t.Errorf("after the removal gave up there are %s", got)
	}
	write("a detach is pending")
	if n := read(); n != 2 {
		t.Errorf("the reader's snapshot has changed: it sees %d runs", n)
	}
	if _, err := c.Days.Ensure(ctx, c.DB.Chores); err != nil {
		t.Error(err)
	}
	if ahead, err := c.Days.Ahead(ctx); err != nil || ahead != days.MadeAhead {
		t.Errorf("%d days have partitions: %v", ahead, err)
	}

	Must(t, reader.Commit(ctx))
	c.RetireRuns()
	if got := c.Kept(runs); got != "dead" {
		t.Errorf("in the end there are: %s", got)
	}
}

func TestInterruptedRemovalIsFinished(t *testing.T) {
	interrupted := map[string]func(c Fixture, day time.Time){
		"with one table detached": func(c Fixture, day time.Time) {
			c.Exec(`ALTER TABLE punctual.runs DETACH PARTITION punctual.runs_` + day.Format("20060102"))
		},
		"with all tables detached": func(c Fixture, day time.Time) { c.Detach(day) },
		"with a detach pending": func(c Fixture, day time.Time) {
			free := c.Locks(`SELECT count(*) FROM punctual.attempts`)
			detach, cancel := context.WithCancel(c.T.Context())
			var detaching sync.WaitGroup
			detaching.Go(func() {
				_, _ = c.DB.Callers.Exec(detach,
					`ALTER TABLE punctual.attempts DETACH PARTITION punctual.attempts_`+day.Format("20060102")+` CONCURRENTLY`,
					pgx.QueryExecModeSimpleProtocol)
			})
			c.Waiting(1)
			cancel()
			detaching.Wait()
			c.Until("the cancel to arrive", `SELECT count(*) = 0
				FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			free()
		},
	}
	for name, interrupt := range interrupted {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				days int
				kept string
			}{{40, "dead"}, {100, ""}} {
				c := NewFixtureOn(t, pgtest.DSN(t))
				job := c.Create("job", Never).ID
				day := c.Ago(tt.days)
				runs := c.RanTwice(job, day)
				interrupt(c, day)
				if got := c.Tables(day); !strings.Contains(got, "detached") && !strings.Contains(got, "pending") {
					t.Fatalf("it was not interrupted: %s", got)
				}
				c.RetireRuns()
				if got := c.Kept(runs); got != tt.kept {
					t.Errorf("%d days ago there is %q, want %q", tt.days, got, tt.kept)
				}
				if got := c.Tables(day); strings.Contains(got, "detached") || strings.Contains(got, "pending") {
					t.Errorf("left over: %s", got)
				}
			}
		})
	}
}

// A day is needed whose removal has begun. It comes back as it was.
//
// By the run of a slot.
//
//prove:data
func TestDayThatWasDetachedIsAttachedAgainWhenItIsNeeded(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("job", Never).ID
	day := c.Ago(40)
	runs := c.RanTwice(job, day)
	c.Detach(day)
	c.Ran(job, day.Add(time.Minute), domain.StatusPending)
	c.RetireRuns()
	if got := c.Kept(runs); got != "dead, succeeded" {
		t.Errorf("there is %q", got)
	}
}

func TestManyReplicasRemoveOldRunsAtOnce(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("job", Never).ID
	runs := map[string]uuid.UUID{}
	for _, days := range []int{40, 41, 42} {
		day := c.Ago(days)
		runs["dead "+day.Format(time.DateOnly)] = c.Ran(job, day, domain.StatusDead)
		runs["succeeded "+day.Format(time.DateOnly)] = c.Ran(job, day.Add(time.Second), domain.StatusSucceeded)
	}
	before := c.Count(`SELECT count(*) FROM punctual.runs`)
	var replicas sync.WaitGroup
	for range 4 {
		replica := NewFixtureOn(t, c.Options.DatabaseURL)
		replicas.Go(func() {
			if err := replica.Days.Retire(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	c.RetireRuns() // whatever the replicas left to each other
	if after := c.Count(`SELECT count(*) FROM punctual.runs`); before != 6 || after != 3 {
		t.Errorf("there were %d runs and are %d, want 6 and 3", before, after)
	}
	if got := c.Kept(runs); strings.Contains(got, "succeeded") || strings.Contains(got, "half") {
		t.Errorf("there are: %s", got)
	}
}

func TestOneReplicaTidiesEachMinute(t *testing.T) {
	c := NewFixture(t)
	run := map[string]uuid.UUID{"it": c.Ran(c.Create("job", Never).ID, c.Ago(40), domain.StatusSucceeded)}
	tidy := func() {
		t.Helper()
		if left, err := c.Chore(t.Context(), "tidying"); err != nil || left {
			t.Fatal(err)
		}
	}
	c.Exec(`UPDATE punctual.deployment SET tidied_at = now()`)
	tidy()
	if c.Kept(run) != "it" {
		t.Error("it does what another has just done")
	}
	c.Exec(`UPDATE punctual.deployment SET tidied_at = now() - interval '1 minute'`)
	tidy()
	if c.Kept(run) != "" {
		t.Error("a minute later it does nothing")
	}
}

func TestOldRunsAreRemovedThroughPgBouncer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	c := NewFixtureOn(t, pgtest.PgBouncer(t, pgtest.Server(t), dsn, "default_pool_size = 3"))
	c.Options.DatabaseURL = dsn // of the test's own connections
	job := c.Create("job", Never).ID
	day := c.Ago(40)
	runs := c.RanTwice(job, day)
	free := c.Locks(`SELECT count(*) FROM punctual.runs`)
	c.RetireRuns()
	if got := c.Tables(day); !strings.Contains(got, "pending") {
		t.Errorf("under a reader there are %s", got)
	}
	free()
	for c.Kept(runs) != "dead" { // the cancelled statement may take a moment to end
		c.RetireRuns()
	}
	if got := c.Tables(day); got != failuresOfDay {
		t.Errorf("there are %s", got)
	}
}

// Partitions of the next days are missing. A metric says so, and they are created in time.
//
//prove:data
func TestMissingPartitionIsNoticedAndMadeBeforeAnythingNeedsIt(t *testing.T) {
	c := NewFixture(t)
	const ahead = "punctual_partition_days_ahead"
	if n := c.Metric(ahead); n != "7" {
		t.Errorf("%q days have partitions, want 7", n)
	}
	tomorrow := c.Ago(-1)
	c.DropDays(1, 1)
	if n := c.Metric(ahead); n != "0" {
		t.Errorf("without tomorrow's %q days have partitions, want 0", n)
	}
	if _, err := c.Chore(t.Context(), "maintenance"); err != nil {
		t.Fatal(err)
	}
	if n := c.Metric(ahead); n != "7" {
		t.Errorf("afterwards %q days have partitions, want 7", n)
	}
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger)
		VALUES ($1, $2, $3, $3, $4, 1, 5, 'pending', 'schedule')`,
		domain.SlotRunID(uuid.New(), tomorrow), uuid.New(), tomorrow, c.Tenant)
}

func TestDeletedJobIsPurgedWhenItsRunsAreGone(t *testing.T) {
	c := NewFixture(t)
	ids := map[string]uuid.UUID{}
	for _, name := range []string{"young", "failed", "runless", "alive"} {
		ids[name] = c.Create(name, Never, Forbid).ID
		if name == "alive" {
			continue
		}
		c.DeleteJob(name)
		if name != "young" {
			c.Exec(`UPDATE punctual.jobs SET deleted_at = now() - interval '31 days' WHERE id = $1`, ids[name])
		}
	}
	c.Ran(ids["failed"], c.Ago(40), domain.StatusDead)
	purge := func() (left []string) {
		t.Helper()
		// As if hours had passed, or on another replica.
		c.Jobs = jobs.New(c.DB, c.Claims, c.Definitions, c.Secrets, c.Aside, jobs.Options{Retention: c.Options.Retention})
		if _, _, err := c.Jobs.PurgeJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, id := range ids {
			switch n := c.Count(`SELECT (SELECT count(*) FROM punctual.jobs WHERE id = $1)
				+ (SELECT count(*) FROM punctual.schedules WHERE job_id = $1)
				+ (SELECT count(*) FROM punctual.exclusive WHERE job_id = $1)
				+ (SELECT least(count(*), 1) FROM punctual.job_versions WHERE job_id = $1)`, id); n {
			case 4:
				left = append(left, name)
			case 0:
			default:
				left = append(left, "part of "+name)
			}
		}
		slices.Sort(left)
		return left
	}
	if left := purge(); !slices.Equal(left, []string{"alive", "failed", "young"}) {
		t.Errorf("left: %v", left)
	}
	c.Exec(`DELETE FROM punctual.runs`)
	if left := purge(); !slices.Equal(left, []string{"alive", "young"}) {
		t.Errorf("without runs left: %v", left)
	}
}

func TestWindowReachesNoFurtherBackThanRunsAreKept(t *testing.T) {
	c := NewFixture(t)
	month := c.Create("month", Every(time.Hour), Window(store.DefaultRetention))
	_, err := c.TryCreate("more", Every(time.Hour), Window(store.DefaultRetention+time.Second))
	if wrong, is := errors.AsType[jobspec.Problem](err); !is || wrong.Field != "missed.window" ||
		!strings.Contains(wrong.Message, store.DefaultRetention.String()) {
		t.Errorf("a longer window: %v", err)
	}

	// The job was written when the retention was longer.
	c.Definitions = definitions.New(0, 24*time.Hour, nil)
	slot := c.Ago(2)
	c.SetNext(month.ID, slot)
	job, err := c.Definitions.Compile(definitions.Version{Job: month.ID, Version: 1}, c.Tenant, month.Definition)
	Must(t, err)
	now := c.Ago(0)
	plan := domain.Decide(domain.Situation{Job: job, ScheduledFor: slot, Now: now})
	if len(plan.Skips) != 1 || !plan.Skips[0].First.Equal(slot) {
		t.Errorf("the old slots became %+v", plan)
	}
	for _, run := range plan.Runs {
		if run.ScheduledFor.Before(now.Add(-24 * time.Hour)) {
			t.Errorf("a slot older than the retention runs: %s", run.ScheduledFor)
		}
	}
}
