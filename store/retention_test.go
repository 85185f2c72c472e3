package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/jobs"
)

// ago returns noon, in UTC, of the day the given number of days ago.
func (c crud) ago(days int) time.Time {
	c.t.Helper()
	return c.now().Truncate(24*time.Hour).AddDate(0, 0, -days).Add(12 * time.Hour)
}

// freshDays makes the store forget which days it has looked at, as if an hour had passed.
func (c crud) freshDays() {
	c.Days = days.New(c.DB, c.Archives, c.Options.Retention, c.Options.FailureRetention, c.Options.Log)
}

// ran writes a run whose slot is at the given instant, with an attempt and a body, and makes its partition. If the
// status is final, the run ended at its slot.
func (c crud) ran(job uuid.UUID, slot time.Time, status domain.Status) uuid.UUID {
	c.t.Helper()
	id := domain.SlotRunID(job, slot)
	c.exec(`SELECT punctual.create_partitions($1::date, $1::date)`, slot)
	var finished *time.Time
	if status.Final() {
		finished = &slot
	}
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			status, trigger, reason, fence)
		VALUES ($1, $2, $3, $3, $4, $5, 1, 5, $6::text, 'schedule', CASE WHEN $6::text IN ('dead', 'skipped') THEN 'timeout' END, 1)`,
		id, job, slot, finished, c.tenant, string(status))
	c.exec(`INSERT INTO punctual.attempts (run_id, fence, number, started_at, finished_at, outcome)
		VALUES ($1, 1, 1, $2, $2, 'failed')`, id, slot)
	c.exec(`INSERT INTO punctual.run_data (run_id, body) VALUES ($1, 'x')`, id)
	return id
}

// ranTwice writes a run that is dead and one that succeeded, of a day.
func (c crud) ranTwice(job uuid.UUID, day time.Time) map[string]uuid.UUID {
	c.t.Helper()
	return map[string]uuid.UUID{
		"dead":      c.ran(job, day, domain.StatusDead),
		"succeeded": c.ran(job, day.Add(time.Second), domain.StatusSucceeded),
	}
}

// detach detaches the tables of a day.
func (c crud) detach(day time.Time) {
	c.t.Helper()
	for _, parent := range []string{"runs", "attempts", "run_data"} {
		c.exec(`ALTER TABLE punctual.` + parent + ` DETACH PARTITION punctual.` + parent + `_` + day.Format("20060102"))
	}
}

// kept lists the runs that still exist with their attempt and body. A run that exists in part is listed as "half of"
// its name.
func (c crud) kept(runs map[string]uuid.UUID) string {
	c.t.Helper()
	var names []string
	for name, id := range runs {
		n := c.count(`SELECT (SELECT count(*) FROM punctual.runs WHERE id = $1)
			+ (SELECT count(*) FROM punctual.attempts WHERE run_id = $1)
			+ (SELECT count(*) FROM punctual.run_data WHERE run_id = $1)`, id)
		switch n {
		case 3:
			names = append(names, name)
		case 0:
		default:
			names = append(names, "half of "+name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// tables lists the existing tables of a day, attached or not.
func (c crud) tables(day time.Time) string {
	c.t.Helper()
	return c.text(`
		SELECT coalesce(string_agg(
			replace(c.relname, $1, 'DAY')
				|| CASE WHEN i.inhrelid IS NULL THEN ' detached' WHEN i.inhdetachpending THEN ' pending' ELSE '' END,
			', ' ORDER BY c.relname DESC), '')
		FROM pg_class c
		LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind = 'r'
			AND c.relname LIKE '%' || $1 || '%'`, day.Format("20060102"))
}

const failuresOfDay = "runs_DAY_failures, run_data_DAY_failures, attempts_DAY_failures"

func (c crud) retireRuns() {
	c.t.Helper()
	must(c.t, c.Days.Retire(c.t.Context()))
}

func TestFailuresOutliveSuccesses(t *testing.T) {
	c := newCRUD(t)
	job := c.create("job", never).ID
	runs := map[string]uuid.UUID{}
	for name, days := range map[string]int{"recent": 29, "old": 40, "ancient": 100} {
		for i, status := range []domain.Status{domain.StatusSucceeded, domain.StatusDead, domain.StatusSkipped} {
			runs[name+" "+string(status)] = c.ran(job, c.ago(days).Add(time.Duration(i)*time.Second), status)
		}
	}
	succeeded := c.ran(job, c.ago(50), domain.StatusSucceeded)

	c.retireRuns()
	if got, want := c.kept(runs), "old dead, old skipped, recent dead, recent skipped, recent succeeded"; got != want {
		t.Errorf("there are: %s\nwant: %s", got, want)
	}
	if got := c.tables(c.ago(40)); got != failuresOfDay {
		t.Errorf("the day with failures has %q", got)
	}
	for _, days := range []int{50, 100} {
		if got := c.tables(c.ago(days)); got != "" {
			t.Errorf("%d days ago nothing failed that is kept, and there is %q", days, got)
		}
	}
	if c.count(`SELECT count(*) FROM punctual.runs WHERE id = $1`, succeeded) != 0 {
		t.Error("the run that succeeded is there")
	}
	c.retireRuns()
	if got := c.tables(c.ago(40)); got != failuresOfDay {
		t.Errorf("a second time changes it to %q", got)
	}

	c.Options.FailureRetention = 30 * 24 * time.Hour
	c.freshDays()
	c.retireRuns()
	if got, want := c.kept(runs), "recent dead, recent skipped, recent succeeded"; got != want {
		t.Errorf("after the failures' retention there are: %s\nwant: %s", got, want)
	}
}

func TestDayThatIsStillNeededStays(t *testing.T) {
	for _, tt := range []struct {
		name string
		need func(c crud, slot time.Time)
		over func(c crud)
	}{
		{
			"a run of it is running",
			func(c crud, slot time.Time) {
				c.ran(c.create("job", never).ID, slot.Add(time.Second), domain.StatusRunning)
			},
			func(c crud) {
				c.exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = scheduled_for WHERE status = 'running'`)
			},
		},
		{
			"a run of it ended today",
			func(c crud, slot time.Time) {
				c.ran(c.create("job", never).ID, slot.Add(time.Second), domain.StatusSucceeded)
				c.exec(`UPDATE punctual.runs SET finished_at = now()`)
			},
			func(c crud) { c.exec(`UPDATE punctual.runs SET finished_at = scheduled_for`) },
		},
		{
			"a one-shot that is paused is to fire in it",
			func(c crud, slot time.Time) {
				job := c.create("job", delay(time.Hour)).ID
				c.exec(`UPDATE punctual.schedules SET scheduled_for = $2, next_run_at = $2, enabled = false WHERE job_id = $1`,
					job, slot.Add(time.Second))
			},
			func(c crud) { c.exec(`UPDATE punctual.schedules SET scheduled_for = now(), next_run_at = now()`) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCRUD(t)
			for _, ago := range []int{40, 100} {
				slot := c.ago(ago)
				runs := map[string]uuid.UUID{"it": c.ran(c.create("other", never).ID, slot, domain.StatusSucceeded)}
				tt.need(c, slot)
				c.retireRuns()
				if got := c.kept(runs); got != "it" {
					t.Errorf("%d days ago: it is gone", ago)
				}
				tt.over(c)
				c.retireRuns()
				if got := c.kept(runs); got != "it" {
					t.Errorf("%d days ago: it was looked at again at once", ago)
				}
				c.freshDays()
				c.retireRuns()
				if got := c.kept(runs); got != "" {
					t.Errorf("%d days ago: it is there", ago)
				}
				c.exec(`DELETE FROM punctual.jobs`)
			}
		})
	}
}

// A report that reads the history for hours delays the removal of old runs and nothing else.
func TestReaderOfOldRunsBlocksNeitherWritesNorTheMakingOfPartitions(t *testing.T) {
	c := newCRUD(t)
	ctx := t.Context()
	job := c.create("job", never).ID
	runs := c.ranTwice(job, c.ago(40))
	c.exec(`DROP TABLE punctual.runs_` + c.ago(-7).Format("20060102"))
	reader, err := c.DB.Callers.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	defer func() { _ = reader.Rollback(context.WithoutCancel(ctx)) }()
	read := func() (n int) {
		t.Helper()
		must(t, reader.QueryRow(ctx, `SELECT count(*) FROM punctual.runs`).Scan(&n))
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
	c.waiting(1)
	write := func(when string) {
		t.Helper()
		err := pgx.BeginFunc(ctx, c.DB.Callers, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '100ms'`)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane,
					status, trigger)
				VALUES ($1, $2, now(), now(), $3, 1, 5, 'pending', 'manual')`, domain.NewRunID(time.Now()), job, c.tenant)
			return err
		})
		if err != nil {
			t.Errorf("a run could not be written while %s: %v", when, err)
		}
	}
	write("the removal waits")
	removal.Wait()
	if got := c.tables(c.ago(40)); !strings.Contains(got, "runs_DAY pending") {
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

	must(t, reader.Commit(ctx))
	c.retireRuns()
	if got := c.kept(runs); got != "dead" {
		t.Errorf("in the end there are: %s", got)
	}
}

func TestInterruptedRemovalIsFinished(t *testing.T) {
	interrupted := map[string]func(c crud, day time.Time){
		"with one table detached": func(c crud, day time.Time) {
			c.exec(`ALTER TABLE punctual.runs DETACH PARTITION punctual.runs_` + day.Format("20060102"))
		},
		"with all tables detached": func(c crud, day time.Time) { c.detach(day) },
		"with a detach pending": func(c crud, day time.Time) {
			free := c.locks(`SELECT count(*) FROM punctual.attempts`)
			detach, cancel := context.WithCancel(c.t.Context())
			var detaching sync.WaitGroup
			detaching.Go(func() {
				_, _ = c.DB.Callers.Exec(detach,
					`ALTER TABLE punctual.attempts DETACH PARTITION punctual.attempts_`+day.Format("20060102")+` CONCURRENTLY`,
					pgx.QueryExecModeSimpleProtocol)
			})
			c.waiting(1)
			cancel()
			detaching.Wait()
			c.until("the cancel to arrive", `SELECT count(*) = 0
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
				c := newCRUDOn(t, pgtest.DSN(t))
				job := c.create("job", never).ID
				day := c.ago(tt.days)
				runs := c.ranTwice(job, day)
				interrupt(c, day)
				if got := c.tables(day); !strings.Contains(got, "detached") && !strings.Contains(got, "pending") {
					t.Fatalf("it was not interrupted: %s", got)
				}
				c.retireRuns()
				if got := c.kept(runs); got != tt.kept {
					t.Errorf("%d days ago there is %q, want %q", tt.days, got, tt.kept)
				}
				if got := c.tables(day); strings.Contains(got, "detached") || strings.Contains(got, "pending") {
					t.Errorf("left over: %s", got)
				}
			}
		})
	}
}

// A day whose removal has begun is needed after all, by the run of a slot: the day comes back as it was.
func TestDayThatWasDetachedIsAttachedAgainWhenItIsNeeded(t *testing.T) {
	c := newCRUD(t)
	job := c.create("job", never).ID
	day := c.ago(40)
	runs := c.ranTwice(job, day)
	c.detach(day)
	c.ran(job, day.Add(time.Minute), domain.StatusPending)
	c.retireRuns()
	if got := c.kept(runs); got != "dead, succeeded" {
		t.Errorf("there is %q", got)
	}
}

func TestManyReplicasRemoveOldRunsAtOnce(t *testing.T) {
	c := newCRUD(t)
	job := c.create("job", never).ID
	runs := map[string]uuid.UUID{}
	for _, days := range []int{40, 41, 42} {
		day := c.ago(days)
		runs["dead "+day.Format(time.DateOnly)] = c.ran(job, day, domain.StatusDead)
		runs["succeeded "+day.Format(time.DateOnly)] = c.ran(job, day.Add(time.Second), domain.StatusSucceeded)
	}
	before := c.count(`SELECT count(*) FROM punctual.runs`)
	var replicas sync.WaitGroup
	for range 4 {
		replica := newCRUDOn(t, c.Options.DatabaseURL)
		replicas.Go(func() {
			if err := replica.Days.Retire(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	c.retireRuns() // whatever the replicas left to each other
	if after := c.count(`SELECT count(*) FROM punctual.runs`); before != 6 || after != 3 {
		t.Errorf("there were %d runs and are %d, want 6 and 3", before, after)
	}
	if got := c.kept(runs); strings.Contains(got, "succeeded") || strings.Contains(got, "half") {
		t.Errorf("there are: %s", got)
	}
}

func TestOneReplicaTidiesEachMinute(t *testing.T) {
	c := newCRUD(t)
	run := map[string]uuid.UUID{"it": c.ran(c.create("job", never).ID, c.ago(40), domain.StatusSucceeded)}
	tidy := func() {
		t.Helper()
		if left, err := c.chore(t.Context(), "tidying"); err != nil || left {
			t.Fatal(err)
		}
	}
	c.exec(`UPDATE punctual.deployment SET tidied_at = now()`)
	tidy()
	if c.kept(run) != "it" {
		t.Error("it does what another has just done")
	}
	c.exec(`UPDATE punctual.deployment SET tidied_at = now() - interval '1 minute'`)
	tidy()
	if c.kept(run) != "" {
		t.Error("a minute later it does nothing")
	}
}

func TestOldRunsAreRemovedThroughPgBouncer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	c := newCRUDOn(t, pgtest.PgBouncer(t, pgtest.Server(t), dsn, "default_pool_size = 3"))
	c.Options.DatabaseURL = dsn // of the test's own connections
	job := c.create("job", never).ID
	day := c.ago(40)
	runs := c.ranTwice(job, day)
	free := c.locks(`SELECT count(*) FROM punctual.runs`)
	c.retireRuns()
	if got := c.tables(day); !strings.Contains(got, "pending") {
		t.Errorf("under a reader there are %s", got)
	}
	free()
	for c.kept(runs) != "dead" { // the cancelled statement may take a moment to end
		c.retireRuns()
	}
	if got := c.tables(day); got != failuresOfDay {
		t.Errorf("there are %s", got)
	}
}

func TestMissingPartitionIsNoticedAndMadeBeforeAnythingNeedsIt(t *testing.T) {
	c := newCRUD(t)
	const ahead = "punctual_partition_days_ahead"
	if n := c.metric(ahead); n != "7" {
		t.Errorf("%q days have partitions, want 7", n)
	}
	tomorrow := c.ago(-1)
	c.dropDays(1, 1)
	if n := c.metric(ahead); n != "0" {
		t.Errorf("without tomorrow's %q days have partitions, want 0", n)
	}
	if _, err := c.chore(t.Context(), "maintenance"); err != nil {
		t.Fatal(err)
	}
	if n := c.metric(ahead); n != "7" {
		t.Errorf("afterwards %q days have partitions, want 7", n)
	}
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger)
		VALUES ($1, $2, $3, $3, $4, 1, 5, 'pending', 'schedule')`,
		domain.SlotRunID(uuid.New(), tomorrow), uuid.New(), tomorrow, c.tenant)
}

func TestDeletedJobIsPurgedWhenItsRunsAreGone(t *testing.T) {
	c := newCRUD(t)
	ids := map[string]uuid.UUID{}
	for _, name := range []string{"young", "failed", "runless", "alive"} {
		ids[name] = c.create(name, never, forbid).ID
		if name == "alive" {
			continue
		}
		c.deleteJob(name)
		if name != "young" {
			c.exec(`UPDATE punctual.jobs SET deleted_at = now() - interval '31 days' WHERE id = $1`, ids[name])
		}
	}
	c.ran(ids["failed"], c.ago(40), domain.StatusDead)
	purge := func() (left []string) {
		t.Helper()
		// As if hours had passed, or on another replica.
		c.Jobs = jobs.New(c.DB, c.Claims, c.Definitions, c.Secrets, jobs.Options{Retention: c.Options.Retention})
		if _, _, err := c.Jobs.PurgeJobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, id := range ids {
			switch n := c.count(`SELECT (SELECT count(*) FROM punctual.jobs WHERE id = $1)
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
	c.exec(`DELETE FROM punctual.runs`)
	if left := purge(); !slices.Equal(left, []string{"alive", "young"}) {
		t.Errorf("without runs left: %v", left)
	}
}

func TestWindowReachesNoFurtherBackThanRunsAreKept(t *testing.T) {
	c := newCRUD(t)
	month := c.create("month", every(time.Hour), window(DefaultRetention))
	_, err := c.tryCreate("more", every(time.Hour), window(DefaultRetention+time.Second))
	if wrong, is := errors.AsType[domain.Problem](err); !is || wrong.Field != "missed.window" ||
		!strings.Contains(wrong.Message, DefaultRetention.String()) {
		t.Errorf("a longer window: %v", err)
	}

	// The job was written when the retention was longer.
	c.Definitions = definitions.New(0, 24*time.Hour)
	slot := c.ago(2)
	c.setNext(month.ID, slot)
	job, err := c.Definitions.Compile(definitions.Version{Job: month.ID, Version: 1}, c.tenant, month.Definition)
	must(t, err)
	now := c.ago(0)
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
