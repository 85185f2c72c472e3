package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// A page of large definitions ends before its limit, and the next page continues where it ended.
func TestAPageOfLargeJobsIsBoundedInSize(t *testing.T) {
	c := newCRUD(t)
	const size = 200 << 10
	large := func(d *domain.Definition) {
		d.Target.Body = json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	}
	for i := range 45 {
		if i%3 == 2 {
			c.create(fmt.Sprintf("small-%02d", i))
		} else {
			c.create(fmt.Sprintf("large-%02d", i), large)
		}
	}
	for _, limit := range []int{500, 10, 1} {
		var names []string
		page := pg.Page{Limit: limit}
		for pages := 0; ; pages++ {
			jobs, next, err := c.ListJobs(t.Context(), c.tenant, jobs.Filter{Page: page})
			if err != nil {
				t.Fatal(err)
			}
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
			if log, next, err = c.Audit.List(t.Context(), c.tenant, audit.Filter{Page: page}); err != nil {
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
