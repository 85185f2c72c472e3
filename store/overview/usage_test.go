package overview_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/overview"
	"punctual/store/pg"
)

// countUsage sums the usage of all days.
func countUsage(c Fixture) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.counted_days SET next_at = '-infinity'`)
	for left, days := true, 0; left; days++ {
		var err error
		if _, left, err = c.Overview.CountUsage(c.T.Context()); err != nil || days > 20 {
			c.T.Fatalf("after %d days: %v", days, err)
		}
	}
}

// usage returns what the tenant's jobs used on all days, by name, read in pages of one.
func usage(c Fixture) map[string]overview.Usage {
	c.T.Helper()
	found := map[string]overview.Usage{}
	now := time.Now()
	for page := (pg.Page{Limit: 500}); ; {
		list, next, err := c.Overview.Usage(c.T.Context(), c.Tenant, now.AddDate(0, 0, -9), now.AddDate(0, 0, 2), page)
		Must(c.T, err)
		for _, u := range list {
			found[OrEmpty(u.Job)] = u
		}
		if page.Cursor = next; next == "" {
			return found
		}
		page.Limit = 1
	}
}

// used writes runs of the tenant whose attempts took seconds, with more columns and their values.
func used(c Fixture, job string, n, seconds int, columns, values string) {
	c.T.Helper()
	c.Exec(fmt.Sprintf(`
		INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, started_at, finished_at, tenant, job_version, lane,
		                           trigger, attempt, status%s)
		SELECT (left(punctual.partition_bound((now() AT TIME ZONE 'UTC')::date)::text, 14)
		        || substr(gen_random_uuid()::text, 15))::uuid,
		       %s, now(), now(), now(), now() + $1 * interval '1 s', $2, 1, 5, 'manual', 1, %s
		FROM generate_series(1, $3::int)`, columns, job, values), seconds, c.Tenant, n)
}

func TestTheUsageOfADayIsSummedByJob(t *testing.T) {
	c := NewReplica(t)
	other := c.Intruder()
	id := func(name string) string { return fmt.Sprintf(`'%s'::uuid`, c.Create(name, Never).ID) }
	plain, flow := id("plain"), id("flow")
	used(c.Fixture, plain, 3, 2, ``, `'succeeded'`)
	used(c.Fixture, plain, 1, 50, `, reason`, `'skipped', 'overlap'`)
	used(c.Fixture, flow, 1, 100, `, accepted_at`, `'succeeded', now()`)                               // the workflow's own run
	used(c.Fixture, flow, 2, 4, `, http_status, accepted_at, step`, `'succeeded', 202, now(), 'long'`) // its steps
	used(c.Fixture, flow, 1, 70, `, accepted_at, step`, `'succeeded', now(), 'approved'`)
	used(c.Fixture, flow, 1, 100, `, accepted_at, reason`, `'dead', now(), 'timeout'`)
	c.Exec(`INSERT INTO punctual.attempts (run_id, fence, number, started_at, finished_at, outcome, reason)
		SELECT id, 1, 1, started_at, finished_at, 'timed_out', 'timeout' FROM punctual.runs WHERE status = 'dead'`)
	failed := c.Manual("failed")
	o := Ended(failed, domain.RetryRun)
	o.Reason, o.Response, o.Headers = domain.ReasonHTTP5xx, "0123456789", map[string]string{"server": "s"}
	c.Finish(o)
	c.Exec(`UPDATE punctual.attempts SET finished_at = started_at + interval '7 s' WHERE response IS NOT NULL`)
	c.Exec(`UPDATE punctual.run_data SET body = '12345'`)
	countUsage(c.Fixture)
	countUsage(c.Fixture) // it replaces what it has summed

	type sums struct {
		runs, attempts, bytes int64
		seconds               float64
	}
	want := map[string]sums{"plain": {3, 3, 0, 6}, "flow": {2, 2, 0, 8}, "failed": {1, 1, 15, 7}}
	check := func(what string) {
		t.Helper()
		got := map[string]sums{}
		for name, u := range usage(c.Fixture) {
			got[name] = sums{u.Runs, u.Attempts, u.Bytes, u.Seconds}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(sums{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("summed")
	if foreign := usage(other); len(foreign) > 0 {
		t.Errorf("another tenant sees %v", foreign)
	}
	c.Exec(`DELETE FROM punctual.jobs`)
	check("after the jobs are gone")
	day := Value[string](c.Fixture, `SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')`)
	c.Exec(`ALTER TABLE punctual.runs DETACH PARTITION punctual.runs_` + day)
	countUsage(c.Fixture)
	check("after the runs of the day are removed")
	c.Exec(`UPDATE punctual.daily_usage SET day = day - 401`)
	for left := true; left; {
		var err error
		if _, left, err = c.ForgetOld(t.Context(), "daily_usage"); err != nil {
			t.Fatal(err)
		}
	}
	want = map[string]sums{}
	check("after more than 400 days")
}

func TestTheUsageOfManyJobsIsBounded(t *testing.T) {
	c := NewReplica(t)
	used(c.Fixture, `gen_random_uuid()`, 1010, 1, ``, `'succeeded'`)
	countUsage(c.Fixture)
	c.WantCount(1001, "rows of a day", `SELECT count(*) FROM punctual.daily_usage`)
	c.WantCount(10, "runs of other jobs", `SELECT sum(runs) FROM punctual.daily_usage WHERE job_id IS NULL`)
	c.WantCount(1010, "runs in the view", `SELECT sum(runs) FROM punctual.usage WHERE tenant = 'default'`)
}

// A day of many runs takes longer to sum than a batch of any other chore may take.
func TestTheSumOfADayHasMinutes(t *testing.T) {
	c := NewReplica(t)
	used(c.Fixture, `gen_random_uuid()`, 1, 1, ``, `'succeeded'`)
	c.Exec(`
		CREATE FUNCTION punctual.allowed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			NEW.job := current_setting('statement_timeout');
			RETURN NEW;
		END $$;
		CREATE TRIGGER allowed BEFORE INSERT ON punctual.daily_usage FOR EACH ROW EXECUTE FUNCTION punctual.allowed()`)
	countUsage(c.Fixture)
	if got := Value[string](c.Fixture, `SELECT job FROM punctual.daily_usage`); got != "10min" {
		t.Errorf("a statement may take %s", got)
	}
}
