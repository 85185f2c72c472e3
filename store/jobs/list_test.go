package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// Jobs have bodies of 200 KiB. A page of them ends after 4 MiB.
//
// So does a page of their audit log. The next page continues where it ended.
//
//prove:tenants
func TestAPageOfLargeJobsIsBoundedInSize(t *testing.T) {
	c := NewFixture(t)
	const size = 200 << 10
	large := func(d *jobspec.Definition) {
		d.Target.Body = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	}
	for i := range 45 {
		if i%3 == 2 {
			c.Create(fmt.Sprintf("small-%02d", i))
		} else {
			c.Create(fmt.Sprintf("large-%02d", i), large)
		}
	}
	for _, limit := range []int{500, 1} {
		var names []string
		page := pg.Page{Limit: limit}
		for pages := 0; ; pages++ {
			jobs, next, err := c.Jobs.ListJobs(t.Context(), c.Tenant, jobs.Filter{Page: page})
			Must(t, err)
			bytes := 0
			for _, j := range jobs {
				names = append(names, j.Definition.Name)
				bytes += len(j.Definition.Target.Body)
			}
			if bytes > pg.MostListed+size || len(jobs) == 0 || len(jobs) > limit {
				t.Errorf("limit %d: a page of %d jobs and %d bytes", limit, len(jobs), bytes)
			}
			if next == "" {
				if limit == 500 && pages != 1 {
					t.Errorf("%d pages, want 2", pages+1)
				}
				break
			}
			page.Cursor = next
		}
		if len(names) != 45 {
			t.Errorf("limit %d: %d jobs on all pages, want 45", limit, len(names))
		}
		// The entries of the audit log contain the definitions too.
		entries, page := 0, pg.Page{Limit: limit}
		for next := "."; next != ""; page.Cursor = next {
			var log []audit.Entry
			var err error
			if log, next, err = c.Audit.List(t.Context(), c.Tenant, audit.Filter{Page: page}); err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for _, e := range log {
				bytes += len(e.Before) + len(e.After)
			}
			if entries += len(log); bytes > pg.MostListed+2*size || len(log) > limit || limit == 500 && len(log) == 45 {
				t.Errorf("limit %d: a page of %d entries and %d bytes", limit, len(log), bytes)
			}
		}
		if entries != 45 {
			t.Errorf("limit %d: %d entries on all pages, want 45", limit, entries)
		}
		for i := range len(names) - 1 {
			if names[i][len(names[i])-2:] <= names[i+1][len(names[i+1])-2:] {
				t.Errorf("limit %d: %s comes before %s", limit, names[i], names[i+1])
			}
		}
	}
}

// A search for a text goes on page by page, however many jobs there are, and finds all of them in the end.
func TestASearchForATextGoesOn(t *testing.T) {
	c := NewReplica(t)
	c.Many(2_000, "hay", -1e15)
	c.Exec(`UPDATE punctual.jobs SET name = 'needle' WHERE id = (SELECT id FROM punctual.jobs ORDER BY id LIMIT 1)`)
	search := func(f jobs.Filter) (found []string, pages int) {
		t.Helper()
		for f.Page = (pg.Page{Limit: 50}); ; {
			list, next, err := c.Jobs.ListJobs(t.Context(), c.Tenant, f)
			Must(t, err)
			for _, j := range list {
				found = append(found, j.Definition.Name)
			}
			if pages++; next == "" || pages > 10 {
				return found, pages
			}
			f.Cursor = next
		}
	}
	if found, pages := search(jobs.Filter{Query: "NEEDLE"}); len(found) != 1 || pages != 1 {
		t.Errorf("of 2,000 jobs %v in %d pages", found, pages)
	}
	c.Many(1, "hay-more", -1e15)
	if found, pages := search(jobs.Filter{Query: "needle"}); len(found) != 1 || pages != 2 {
		t.Errorf("of 2,001 jobs %v in %d pages", found, pages)
	}
	if found, pages := search(jobs.Filter{Query: "needle", NamePrefix: "needle"}); len(found) != 1 || pages != 1 {
		t.Errorf("by the beginning of its name, too: %v in %d pages", found, pages)
	}
	if found, pages := search(jobs.Filter{Query: "hay"}); len(found) != 550 || pages != 11 {
		t.Errorf("of many that match %d in %d pages", len(found), pages)
	}
}

// A page of a search for a text reads the jobs that it looks into, and not the tables beside them as a whole.
func TestASearchForATextReadsTheJobsOfAPageOnly(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	t.Parallel()
	dsn := pgtest.Clone(t)
	c := OpenReplica(t, dsn)
	c.Many(30_000, "hay", -1e15)
	c.Exec(`ANALYZE punctual.jobs, punctual.schedules, punctual.job_versions`)
	c.Close()
	watch := OpenReplica(t, dsn)
	rows := func() int {
		watch.Scans() // it waits for the other sessions to end
		return watch.Count(`SELECT sum(seq_tup_read + idx_tup_fetch)::int FROM pg_stat_user_tables
			WHERE schemaname = 'punctual' AND relname IN ('jobs', 'schedules', 'job_versions')`)
	}
	before := rows()
	reader := OpenReplica(t, dsn)
	list, next, err := reader.Jobs.ListJobs(t.Context(), reader.Tenant, jobs.Filter{Query: "needle", Page: pg.Page{Limit: 50}})
	reader.Close()
	if err != nil || len(list) != 0 || next == "" {
		t.Fatalf("%d jobs, next page %q, %v", len(list), next, err)
	}
	// Of each of 2,000 jobs: its row when the page is bounded, when it is read and by row security, its schedule and
	// its version.
	if n := rows() - before; n < 2_000 || n > 15_000 {
		t.Errorf("%d rows were read, want about 10,000", n)
	}
}

// Recent runs that cannot be read soon are told to be unread, and the list comes all the same. A list without them,
// which has no word for that, fails. (The page of jobs waited for half a minute, and was 503.)
func TestAListComesWithoutRunsThatCannotBeRead(t *testing.T) {
	c := NewFixture(t)
	c.Create("b")
	c.Create("a", Then("b"))
	free := c.Locks(`LOCK TABLE punctual.runs IN ACCESS EXCLUSIVE MODE`)
	list, _, err := c.Jobs.ListJobs(Bounded(t), c.Tenant, jobs.Filter{Recent: 20})
	Must(t, err)
	for _, j := range list {
		if j.Recent == nil || !j.Recent.Unread || len(j.Recent.Runs) > 0 || j.LastRun != nil {
			t.Errorf("%s: %+v, last %+v", j.Definition.Name, j.Recent, j.LastRun)
		}
	}
	if len(list) != 2 || list[0].Definition.Then[0].Job != "b" {
		t.Errorf("the list has %+v", list)
	}
	limited, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := c.Jobs.ListJobs(limited, c.Tenant, jobs.Filter{}); err == nil {
		t.Error("a list without recent runs says that none has run")
	}
	free()
	list, _, err = c.Jobs.ListJobs(t.Context(), c.Tenant, jobs.Filter{Recent: 20})
	if err != nil || list[0].Recent.Unread {
		t.Errorf("later: %+v (%v)", list, err)
	}
}
