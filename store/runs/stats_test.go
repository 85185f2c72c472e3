package runs_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/runs"
)

func stats(c Fixture, job string) runs.JobStats {
	c.T.Helper()
	stats, err := c.Runs.JobStats(c.T.Context(), c.Tenant, job)
	Must(c.T, err)
	return stats
}

func TestTheStatisticsOfAJobAreThoseOfADay(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("j", Never)
	none := stats(c.Fixture, "j")
	if none.Runs != 0 || !none.Complete || none.SuccessRate != nil || none.Duration.P50 != nil || none.JobID != job.ID ||
		none.Lateness.Runs != 0 || time.Since(none.From) < 23*time.Hour {
		t.Errorf("no runs: %+v", none)
	}
	c.RunsOf(job.ID, 1, time.Second, `'succeeded'`)
	one := stats(c.Fixture, job.ID.String())
	if one.Runs != 1 || one.Succeeded != 1 || *one.SuccessRate != 1 || *one.Duration.P50 != 2 || *one.Duration.Max != 2 ||
		*one.Lateness.P95 != 0 {
		t.Errorf("one run: %+v", one)
	}
	c.RunsOf(job.ID, 3, 2*time.Second, `'dead'`)
	c.Exec(`UPDATE punctual.runs SET reason = 'expired', started_at = NULL, attempt = 0 WHERE id IN (
		SELECT id FROM punctual.runs WHERE status = 'dead' ORDER BY id LIMIT 1)`)
	c.Exec(`UPDATE punctual.runs SET attempt = 2, reason = 'http_5xx' WHERE id IN (
		SELECT id FROM punctual.runs WHERE status = 'dead' AND attempt = 1 ORDER BY id LIMIT 1)`)
	c.Exec(`UPDATE punctual.runs SET reason = 'http_5xx' WHERE status = 'dead' AND reason IS NULL`)
	c.RunsOf(job.ID, 2, 3*time.Second, `'cancelled'`)
	for i, status := range []domain.Status{domain.StatusSkipped, domain.StatusRunning} {
		c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane, status,
				reason, trigger, fence)
			VALUES ($1, $2, $3, $3, CASE WHEN $5 <> 'running' THEN now() END, $4, 1, 5, $5, 'overlap', 'schedule', 1)`,
			domain.NewRunID(c.Midnight().Add(time.Duration(i)*time.Minute)), job.ID, c.Midnight(), c.Tenant, status)
	}
	older := time.Now().Add(-25 * time.Hour)
	c.Exec(`SELECT punctual.create_partition_of($1)`, older) // in a day's first hour it is of the day before yesterday
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane, status,
			trigger)
		VALUES ($1, $2, now(), now(), now(), $3, 1, 5, 'succeeded', 'schedule')`,
		domain.NewRunID(older), job.ID, c.Tenant)
	all := stats(c.Fixture, "j")
	want := runs.Outcomes{Succeeded: 1, Dead: 3, Cancelled: 2, Skipped: 1, Unended: 1, SuccessRate: all.SuccessRate}
	if all.Runs != 8 || all.Outcomes != want || *all.SuccessRate != 0.25 || all.Duration.Runs != 3 ||
		all.Lateness.Runs != 4 {
		t.Errorf("all kinds: %+v, %d durations, %d lateness", all, all.Duration.Runs, all.Lateness.Runs)
	}

	for _, ref := range []string{"none", uuid.NewString()} {
		_, err := c.Runs.JobStats(t.Context(), c.Tenant, ref)
		WantError(t, err, store.ErrNotFound)
	}
	_, err := c.Runs.JobStats(t.Context(), c.Intruder().Tenant, job.ID.String())
	WantError(t, err, store.ErrNotFound)
	c.DeleteJob("j")
	_, err = c.Runs.JobStats(t.Context(), c.Tenant, job.ID.String())
	WantError(t, err, store.ErrNotFound)
}

func TestTheStatisticsOfABusyJobSayHowFarBackTheyGo(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("j", Never)
	c.RunsOf(job.ID, 100, time.Second, `'dead'`)
	c.RunsOf(job.ID, 1000, 2*time.Second, `'succeeded'`)
	c.Exec(`UPDATE punctual.runs r SET finished_at = r.started_at + interval '1 s' * (
		SELECT count(*) FROM punctual.runs o WHERE o.id <= r.id)`)
	got := stats(c.Fixture, "j")
	if got.Runs != 1000 || got.Complete || got.Dead != 0 ||
		!got.From.Equal(c.Midnight().Add(2*time.Second+time.Millisecond)) ||
		*got.Duration.P50 != 600 || *got.Duration.P95 != 1050 || *got.Duration.Max != 1100 {
		t.Errorf("%+v, durations %g, %g, %g", got, *got.Duration.P50, *got.Duration.P95, *got.Duration.Max)
	}
}

func TestAListShowsRecentRunsWhenItIsAskedTo(t *testing.T) {
	c := NewReplica(t)
	none, busy := c.Create("none"), c.Create("busy")
	c.RunsOf(busy.ID, 30, time.Second, `CASE WHEN i = 30 THEN 'cancelled' WHEN i = 29 THEN 'dead' ELSE 'succeeded' END`)
	c.Exec(`UPDATE punctual.runs SET reason = 'http_5xx', finished_at = started_at + interval '7 s' WHERE status = 'dead'`)
	c.Exec(`UPDATE punctual.runs SET status = 'skipped', reason = 'missed' WHERE status = 'cancelled'`)
	list := func(n int) map[uuid.UUID]*runs.RecentRuns {
		t.Helper()
		records, _, err := c.Jobs.ListJobs(t.Context(), c.Tenant, jobs.Filter{Recent: n})
		if err != nil || len(records) != 2 {
			t.Fatalf("%d jobs, %v", len(records), err)
		}
		recent := map[uuid.UUID]*runs.RecentRuns{}
		for _, r := range records {
			recent[r.ID] = r.Recent
		}
		return recent
	}
	if got := list(0); got[busy.ID] != nil || got[none.ID] != nil {
		t.Errorf("not asked for: %+v", got)
	}
	for _, n := range []int{1, 5, 20, 100} {
		got := list(n)
		of := got[busy.ID].Runs
		if len(of) != min(n, 20) || of[0].Status != domain.StatusSkipped ||
			!of[0].ScheduledFor.Equal(c.Midnight().Add(time.Second+30*time.Millisecond)) {
			t.Errorf("%d asked for: %+v", n, of)
		}
		if n == 5 && (of[1].Status != domain.StatusDead || *got[busy.ID].DurationP95 != 7) {
			t.Errorf("%+v, p95 %g", of, *got[busy.ID].DurationP95)
		}
		if n == 20 && *got[busy.ID].DurationP95 != 7 || n == 1 && got[busy.ID].DurationP95 != nil {
			t.Errorf("%d asked for: p95 %v", n, got[busy.ID].DurationP95)
		}
		if got[none.ID] == nil || len(got[none.ID].Runs) != 0 || got[none.ID].DurationP95 != nil {
			t.Errorf("a job without runs: %+v", got[none.ID])
		}
	}
}
