package runs_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// agesOfRuns are the days, counted back from today, on which the runs of these tests lie. The days between have no
// runs, and most of them have partitions.
var agesOfRuns = []int{0, 1, 2, 3, 7, 8, 9, 17, 18, 40, 41, 59}

// scattered writes runs on a few days of two months: of a job that mostly succeeds, and of one that ran only long ago.
func scattered(c Fixture) (often, rare uuid.UUID, ids []uuid.UUID) {
	c.T.Helper()
	for age := 2; age < 60; age += 3 {
		c.Exec(`SELECT punctual.create_partitions($1::date, $1::date)`, c.Ago(age))
	}
	often, rare = c.Create("often").ID, c.Create("rare").ID
	for i, age := range agesOfRuns {
		status := domain.StatusSucceeded
		if i%3 == 2 {
			status = domain.StatusDead
		}
		ids = append(ids, c.Ran(often, c.Ago(age).Add(-12*time.Hour), status))
	}
	c.Ran(rare, c.Ago(40).Add(time.Hour), domain.StatusDead)
	c.Exec(`UPDATE punctual.jobs SET created_at = $1`, c.Ago(90))
	return often, rare, ids
}

func TestAListGoesBackThroughAllDays(t *testing.T) {
	c := NewFixture(t)
	often, _, ids := scattered(c)
	for _, size := range []int{1, 5, 50} {
		var got []uuid.UUID
		f := runs.Filter{JobID: &often, Page: pg.Page{Limit: size}}
		for {
			page, next, err := c.Runs.ListRuns(t.Context(), c.Tenant, f)
			Must(t, err)
			got = append(got, pg.Column(page, func(r runs.Run) uuid.UUID { return r.ID })...)
			if f.Cursor = next; next == "" {
				break
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("pages of %d show %v, want %v", size, got, ids)
		}
	}
	from, to := c.Ago(41).Add(-12*time.Hour), c.Ago(8)
	for what, f := range map[string]runs.Filter{
		"dead":    {Status: domain.StatusDead},
		"between": {From: &from, To: &to},
		"before":  {To: &to},
		"since":   {From: &from},
	} {
		f.JobID = &often
		page, next, err := c.Runs.ListRuns(t.Context(), c.Tenant, f)
		Must(t, err)
		want := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
			at := domain.IDTime(id)
			return f.Status != "" && slices.Index(ids, id)%3 != 2 ||
				f.From != nil && at.Before(from) || f.To != nil && !at.Before(to)
		})
		if got := pg.Column(page, func(r runs.Run) uuid.UUID { return r.ID }); !slices.Equal(got, want) || next != "" {
			t.Errorf("%s: %v (%q), want %v", what, got, next, want)
		}
	}
}

// A job may have run on days before it was created, and its last run is found there.
func TestTheLastRunMayBeOlderThanItsJob(t *testing.T) {
	c := NewFixture(t)
	past := c.Ago(5)
	c.Create("past", At(past))
	c.Create("edited", At(past))
	c.Edit("edited", Every(time.Hour))
	c.Create("backfilled", Every(time.Hour))
	c.Backfill(letters.BackfillRequest{Job: "backfilled", From: past.Add(-time.Hour), To: past.Add(time.Hour), Note: "x"})
	for _, job := range []string{"past", "edited", "backfilled"} {
		ran := c.Ran(c.Get(job).ID, past.Add(2*time.Hour), domain.StatusSucceeded)
		if last := c.Get(job).LastRun; last == nil || last.ID != ran {
			t.Errorf("%s: the last run is %+v", job, last)
		}
	}
}

// How many attempts the last run may have is what the version of the job says that the run sends.
func TestTheLastRunHasTheAttemptsOfItsVersion(t *testing.T) {
	c := NewFixture(t)
	attempts := func(n int) Option { return func(d *jobspec.Definition) { d.Retry.MaxAttempts = n } }
	c.Ran(c.Create("job", attempts(7)).ID, c.Ago(0), domain.StatusSucceeded)
	for _, most := range []int{7, 2} {
		c.Edit("job", attempts(most))
		if last := c.Get("job").LastRun; last == nil || last.JobVersion != 1 || last.MaxAttempts != 7 {
			t.Errorf("of a job with %d attempts the last run is %+v", most, last)
		}
	}
}

func TestTheLastRunOfAJobMayBeLongAgo(t *testing.T) {
	c := NewFixture(t)
	_, rare, _ := scattered(c)
	list, _, err := c.Jobs.ListJobs(t.Context(), c.Tenant, jobs.Filter{Recent: 20})
	Must(t, err)
	last := c.Get("rare").LastRun
	edited := c.Edit("rare", Described("x")) // within a transaction
	if last == nil || last.Status != domain.StatusDead || edited.LastRun == nil || edited.LastRun.ID != last.ID {
		t.Errorf("its last run is %+v, and after an edit %+v", last, edited.LastRun)
	}
	for _, j := range list {
		switch want := map[bool]int{true: 1, false: len(agesOfRuns)}[j.ID == rare]; {
		case j.LastRun == nil || len(j.Recent.Runs) != want || j.Recent.Runs[0].ID != j.LastRun.ID:
			t.Errorf("%s: %+v, %+v", j.Definition.Name, j.LastRun, j.Recent)
		}
	}
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts)
		SELECT id, job_id, tenant, 'x', 1, scheduled_for, trigger, 1 FROM punctual.runs WHERE status = 'dead'`)
	f, err := c.Overview.Overview(t.Context(), c.Tenant)
	Must(t, err)
	if len(f.Failing.Jobs) != 1 || f.Failing.Jobs[0].JobID != rare || f.Failing.Jobs[0].Failures != 1 {
		t.Errorf("failing are %+v", f.Failing.Jobs)
	}
}

// A search looks at no more days at a time than it says, and at those with runs only.
func TestASearchLooksAtAFewDaysAtATime(t *testing.T) {
	c := NewFixture(t)
	scattered(c)
	today := c.Clock().Truncate(24 * time.Hour)
	for index, want := range map[days.Index]string{
		days.All: "1-0 5-2 14-7 24-17 47-40 66-59", days.ByReason: "1-0 5-2 15-8 25-18 47-40 66-59", days.Late: "1-0",
	} {
		var windows []string
		_, err := days.Search{Index: index}.Back(t.Context(), c.DB.Callers, func(
			_ context.Context, _ pg.Querier, w days.Window,
		) (bool, error) {
			below := w.Below
			if below.IsZero() {
				below = today.AddDate(0, 0, 1)
			}
			windows = append(windows, ageOf(today, w.From)+"-"+ageOf(today, below.AddDate(0, 0, -1)))
			return false, nil
		})
		Must(t, err)
		left, err := days.Search{Index: days.All, Most: 4}.Back(t.Context(), c.DB.Callers, func(
			context.Context, pg.Querier, days.Window,
		) (bool, error) {
			return false, nil
		})
		if err != nil || ageOf(today, left) != "16" {
			t.Errorf("after four days with runs it has left those before %s, %v", left, err)
		}
		if got := strings.Join(windows, " "); got != want {
			t.Errorf("by %s it looks at the days %s, want %s", index, got, want)
		}
	}
}

// An id may be given twice, or be that of no run, even one of the last day that an id can name.
func TestRunsAreFoundByTheirIDs(t *testing.T) {
	c := NewFixture(t)
	_, _, ids := scattered(c)
	given := append(slices.Clone(ids), ids[0], uuid.New(), uuid.Nil, uuid.Max)
	found, err := pg.All(t.Context(), c.DB.Callers, pgx.RowTo[uuid.UUID],
		`SELECT id FROM punctual.runs_of($1::uuid[] || NULL::uuid) ORDER BY id DESC`, given)
	Must(t, err)
	if !slices.Equal(found, ids) {
		t.Errorf("found %v, want %v", found, ids)
	}
}

func TestTheLockTableIsComparedWithTheDays(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Clone(t)
	for retention, warns := range map[time.Duration]bool{0: false, 5 * 365 * 24 * time.Hour: true} {
		var log bytes.Buffer
		s := OpenStore(t, store.Options{
			DatabaseURL: dsn, Retention: retention, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		s.WarnOfLocks(t.Context())
		if strings.Contains(log.String(), "raise_it_to=186") != warns || !warns && log.Len() > 0 {
			t.Errorf("with a retention of %s it says %q", retention, &log)
		}
	}
}

func ageOf(today, day time.Time) string { return fmt.Sprint(int(today.Sub(day).Hours() / 24)) }
