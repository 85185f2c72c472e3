package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// What a page says of a rare job costs as little as what it says of a frequent one. The planner does not know which job
// is asked for: of a day with few jobs it expects that every job has many runs.
func TestTheRunsOfARareJobAreReadByItsIndex(t *testing.T) {
	AnalysedOrNot(t, Replica.Uneven, func(t *testing.T, watch Replica) {
		ctx := t.Context()
		id := func(name string) uuid.UUID {
			return Value[uuid.UUID](watch.Fixture, `SELECT id FROM punctual.jobs WHERE name = $1`, name)
		}
		never := id("never-1")
		all := pg.Page{Limit: 100}
		for what, read := range map[string]func() error{
			"the list of jobs, with a strip": func() error {
				_, _, err := watch.Jobs.ListJobs(ctx, 1, jobs.Filter{Recent: 20, Page: all})
				return err
			},
			"a job": func() error { _, err := watch.Jobs.GetJob(ctx, 1, "never-1"); return err },
			"a job's runs": func() error {
				_, _, err := watch.Runs.ListRuns(ctx, 1, runs.Filter{JobID: &never, Page: all})
				return err
			},
			"a job's dead runs": func() error {
				_, _, err := watch.Runs.ListRuns(ctx, 1, runs.Filter{JobID: &never, Status: domain.StatusDead, Page: all})
				return err
			},
			"a job's figures":      func() error { _, err := watch.Runs.JobStats(ctx, 1, "never-1"); return err },
			"the failing jobs":     func() error { _, err := watch.Overview.Overview(ctx, 1); return err },
			"jobs without success": func() error { watch.Tell(); return nil },
			"jobs that overlap":    func() error { return watch.Notices.FindOverlapping(ctx) },
			"why a job did not run": func() error {
				watch.Explained("never-1", time.Now().Add(-50*time.Hour))
				return nil
			},
			"job_status": func() error {
				watch.WantCount(8, "jobs have succeeded, of those that have run", `
					SELECT count(s.last_succeeded_at) FROM (SELECT * FROM punctual.job_status OFFSET 0) s
					HAVING count(s.last_run_id) = 68`)
				return nil
			},
			"metrics": func() error { shows(watch.Fixture, measured(watch.Fixture, 1000)); return nil },
		} {
			if n := watch.PagesRead(`^runs_`, func() { watch.Must(read()) }); n > 10_000 {
				t.Errorf("%s: %d pages were read", what, n)
			}
		}
	})
}

func TestJobStatusHasTheLastSuccess(t *testing.T) {
	c := NewReplica(t)
	c.Create("flaky", Never)
	want := func(what, is string) {
		t.Helper()
		c.WantCount(1, what, `SELECT count(*) FROM punctual.job_status s WHERE `+is)
	}
	want("has none before its first run", `last_succeeded_at IS NULL`)
	for _, status := range []string{"succeeded", "dead"} {
		run := c.Trigger("flaky").ID
		c.FinishAll(c.ClaimReady(1).Runs)
		c.Exec(`UPDATE punctual.runs SET status = $2 WHERE id = $1`, run, status)
	}
	want("failed last, and succeeded before", `last_status = 'dead' AND last_succeeded_at = (
		SELECT finished_at FROM punctual.runs WHERE status = 'succeeded')`)
}

// newestOfJob matches a search for the newest or oldest runs of a job that is not by a key of package days.
var newestOfJob = regexp.MustCompile(
	`(?s)FROM punctual\.runs \w+\s[^;)]{0,200}?WHERE \w+\.job_id = [^;]{0,600}?ORDER BY \w+\.id( DESC)?( OFFSET \d+)? LIMIT`)

func TestTheNewestRunsOfAJobAreReadByItsKey(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*/*.go")
	Must(t, err)
	more, err := filepath.Glob("../migrations/*.sql")
	Must(t, err)
	for _, file := range slices.Concat(files, more, []string{"job_metrics.go", "collector.go"}) {
		text, err := os.ReadFile(file)
		Must(t, err)
		for _, found := range newestOfJob.FindAll(text, -1) {
			if !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s finds the newest runs of a job in other words than days.Key: %s", file, found)
			}
		}
	}
}
