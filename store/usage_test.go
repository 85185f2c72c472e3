package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/scheduler/domain"
	"punctual/store/overview"
	"punctual/store/pg"
)

// countUsage sums the usage of all days.
func (c crud) countUsage() {
	c.t.Helper()
	c.exec(`UPDATE punctual.counted_days SET next_at = '-infinity'`)
	for left, days := true, 0; left; days++ {
		var err error
		if _, left, err = c.Overview.CountUsage(c.t.Context()); err != nil || days > 20 {
			c.t.Fatalf("after %d days: %v", days, err)
		}
	}
}

// usage returns what the tenant's jobs used on all days, by name, read in pages of one.
func (c crud) usage() map[string]overview.Usage {
	c.t.Helper()
	found := map[string]overview.Usage{}
	now := time.Now()
	for page := (pg.Page{Limit: 500}); ; {
		list, next, err := c.Overview.Usage(c.t.Context(), c.tenant, now.AddDate(0, 0, -9), now.AddDate(0, 0, 2), page)
		must(c.t, err)
		for _, u := range list {
			found[orEmpty(u.Job)] = u
		}
		if page.Cursor = next; next == "" {
			return found
		}
		page.Limit = 1
	}
}

// used writes runs of the tenant whose attempts took seconds, with more columns and their values.
func (c crud) used(job string, n, seconds int, columns, values string) {
	c.t.Helper()
	c.exec(fmt.Sprintf(`
		INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, started_at, finished_at, tenant, job_version, lane,
		                           trigger, attempt, status%s)
		SELECT (left(punctual.partition_bound((now() AT TIME ZONE 'UTC')::date)::text, 14)
		        || substr(gen_random_uuid()::text, 15))::uuid,
		       %s, now(), now(), now(), now() + $1 * interval '1 s', $2, 1, 5, 'manual', 1, %s
		FROM generate_series(1, $3::int)`, columns, job, values), seconds, c.tenant, n)
}

func TestTheUsageOfADayIsSummedByJob(t *testing.T) {
	c := newClaimer(t)
	other := c.intruder()
	id := func(name string) string { return fmt.Sprintf(`'%s'::uuid`, c.create(name, never).ID) }
	plain, flow := id("plain"), id("flow")
	c.used(plain, 3, 2, ``, `'succeeded'`)
	c.used(plain, 1, 50, `, reason`, `'skipped', 'overlap'`)
	c.used(flow, 1, 100, `, accepted_at`, `'succeeded', now()`)                               // the workflow's own run
	c.used(flow, 2, 4, `, http_status, accepted_at, step`, `'succeeded', 202, now(), 'long'`) // its steps
	c.used(flow, 1, 70, `, accepted_at, step`, `'succeeded', now(), 'approved'`)
	c.used(flow, 1, 100, `, accepted_at, reason`, `'dead', now(), 'timeout'`)
	c.exec(`INSERT INTO punctual.attempts (run_id, fence, number, started_at, finished_at, outcome, reason)
		SELECT id, 1, 1, started_at, finished_at, 'timed_out', 'timeout' FROM punctual.runs WHERE status = 'dead'`)
	failed := c.manual("failed")
	o := ended(failed, domain.RetryRun)
	o.Reason, o.Response, o.Headers = domain.ReasonHTTP5xx, "0123456789", map[string]string{"server": "s"}
	c.finish(o)
	c.exec(`UPDATE punctual.attempts SET finished_at = started_at + interval '7 s' WHERE response IS NOT NULL`)
	c.exec(`UPDATE punctual.run_data SET body = '12345'`)
	c.countUsage()
	c.countUsage() // it replaces what it has summed

	type sums struct {
		runs, attempts, bytes int64
		seconds               float64
	}
	want := map[string]sums{"plain": {3, 3, 0, 6}, "flow": {2, 2, 0, 8}, "failed": {1, 1, 15, 7}}
	check := func(what string) {
		t.Helper()
		got := map[string]sums{}
		for name, u := range c.usage() {
			got[name] = sums{u.Runs, u.Attempts, u.Bytes, u.Seconds}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(sums{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("summed")
	if foreign := other.usage(); len(foreign) > 0 {
		t.Errorf("another tenant sees %v", foreign)
	}
	c.exec(`DELETE FROM punctual.jobs`)
	check("after the jobs are gone")
	day := value[string](c.crud, `SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')`)
	c.exec(`ALTER TABLE punctual.runs DETACH PARTITION punctual.runs_` + day)
	c.countUsage()
	check("after the runs of the day are removed")
	c.exec(`UPDATE punctual.daily_usage SET day = day - 401`)
	for left := true; left; {
		var err error
		if _, left, err = c.Overview.ForgetUsage(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want = map[string]sums{}
	check("after more than 400 days")
}

func TestTheUsageOfManyJobsIsBounded(t *testing.T) {
	c := newClaimer(t)
	c.used(`gen_random_uuid()`, 1010, 1, ``, `'succeeded'`)
	c.countUsage()
	c.wantCount(1001, "rows of a day", `SELECT count(*) FROM punctual.daily_usage`)
	c.wantCount(10, "runs of other jobs", `SELECT sum(runs) FROM punctual.daily_usage WHERE job_id IS NULL`)
	c.wantCount(1010, "runs in the view", `SELECT sum(runs) FROM punctual.usage WHERE tenant = 'default'`)
}
