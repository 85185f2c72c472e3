package letters_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/letters"
	"punctual/store/pg"
)

// dead is a dead letter to be written. A later one has a newer id.
type dead struct {
	job    string
	reason domain.Reason
	slot   time.Duration // after the first slot of the test
	status int
	error  string
}

// firstSlot is the oldest slot of the dead letters that bury writes.
var firstSlot = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// bury writes open dead letters, and returns their ids.
func bury(c Fixture, all ...dead) (ids []uuid.UUID) {
	c.T.Helper()
	for i, d := range all {
		id := domain.NewRunID(firstSlot.Add(time.Duration(c.Count(`SELECT count(*) FROM punctual.dead_letters`)) * time.Second))
		if d.status == 0 {
			d.status = 500 + i
		}
		c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
				reason, attempts, http_status, error)
			SELECT $1, id, tenant, name, 1, $3, 'schedule', nullif($4, ''), 1, $5, $6 FROM punctual.jobs
			WHERE name = $2 AND tenant = $7`,
			id, d.job, firstSlot.Add(d.slot), string(d.reason), d.status, d.error, c.Tenant)
		ids = append(ids, id)
	}
	return ids
}

// groups reads all pages of groups, of the given size.
func groups(c Fixture, f letters.DeadLetterFilter, size int) (all []letters.DeadLetterGroup) {
	c.T.Helper()
	f.Page = pg.Page{Limit: size}
	for {
		found, next, err := c.Letters.ListGroups(c.T.Context(), c.Tenant, f)
		Must(c.T, err)
		if len(found) > size || next != "" && len(found) != size {
			c.T.Errorf("a page of %d groups, and the next is %q", len(found), next)
		}
		all = append(all, found...)
		if f.Cursor = next; next == "" {
			return all
		}
	}
}

// counted counts groups in the obvious way: from the list of the dead letters themselves.
func counted(c Fixture, f letters.DeadLetterFilter) (all []letters.DeadLetterGroup) {
	c.T.Helper()
	f.Resolved, f.Page = open, pg.Page{Limit: 500}
	found, _, err := c.Letters.ListDeadLetters(c.T.Context(), c.Tenant, f)
	Must(c.T, err)
	at := map[string]int{}
	for _, d := range found { // the newest first
		key := d.JobID.String() + string(OrEmpty(d.Reason))
		i, known := at[key]
		if !known {
			i = len(all)
			at[key] = i
			all = append(all, letters.DeadLetterGroup{
				JobID: d.JobID, Job: d.Job, Reason: d.Reason, OldestSlot: d.ScheduledFor, NewestSlot: d.ScheduledFor,
				NewestRun: d.RunID, HTTPStatus: d.HTTPStatus, Error: d.Error,
			})
		}
		g := &all[i]
		g.Count++
		if d.ScheduledFor.Before(g.OldestSlot) {
			g.OldestSlot = d.ScheduledFor
		}
		if d.ScheduledFor.After(g.NewestSlot) {
			g.NewestSlot = d.ScheduledFor
		}
	}
	return all
}

func TestGroupsOfDeadLetters(t *testing.T) {
	c := NewFixture(t)
	a, b := c.Create("a"), c.Create("b")
	ids := bury(c,
		dead{job: "a", reason: domain.ReasonHTTP5xx, slot: 2 * time.Hour},
		dead{job: "a", reason: domain.ReasonTimeout, slot: 3 * time.Hour, error: "too slow", status: 200},
		dead{job: "b", slot: 4 * time.Hour},
		dead{job: "a", reason: domain.ReasonHTTP5xx, slot: 5 * time.Hour},
		dead{job: "b", reason: domain.ReasonGone}, // resolved
		dead{job: "a", reason: domain.ReasonHTTP5xx, slot: time.Hour, error: "a replay of an old slot", status: 503},
	)
	c.Exec(`UPDATE punctual.dead_letters SET resolved_at = now() WHERE reason = 'gone'`)
	slot := func(hours int) time.Time { return firstSlot.Add(time.Duration(hours) * time.Hour) }
	want := []letters.DeadLetterGroup{
		{
			JobID: a.ID, Job: "a", Reason: new(domain.ReasonHTTP5xx), Count: 3, OldestSlot: slot(1), NewestSlot: slot(5),
			NewestRun: ids[5], HTTPStatus: new(503), Error: new("a replay of an old slot"),
		},
		{
			JobID: b.ID, Job: "b", Count: 1, OldestSlot: slot(4), NewestSlot: slot(4), NewestRun: ids[2],
			HTTPStatus: new(502), Error: new(""),
		},
		{
			JobID: a.ID, Job: "a", Reason: new(domain.ReasonTimeout), Count: 1, OldestSlot: slot(3), NewestSlot: slot(3),
			NewestRun: ids[1], HTTPStatus: new(200), Error: new("too slow"),
		},
	}
	if diff := gocmp.Diff(want, groups(c, letters.DeadLetterFilter{}, 50)); diff != "" {
		t.Error(diff)
	}
	if got := groups(c.Intruder(), letters.DeadLetterFilter{}, 50); len(got) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
}

// Page after page, groups are what the list of the dead letters says.
func TestGroupsAreWhatTheListSays(t *testing.T) {
	c := NewFixture(t)
	for i := range 6 {
		c.Create(fmt.Sprintf("job-%d", i), Labelled("odd", fmt.Sprint(i%2 == 1)))
	}
	reasons := []domain.Reason{domain.ReasonHTTP5xx, domain.ReasonTimeout, domain.ReasonGone, ""}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 120 {
		bury(c, dead{
			job: fmt.Sprintf("job-%d", rng.IntN(6)), reason: reasons[rng.IntN(4)],
			slot: time.Duration(rng.IntN(100)) * time.Minute,
		})
	}
	c.Exec(`UPDATE punctual.dead_letters SET resolved_at = now() WHERE http_status = 500 AND attempts = 1
		AND run_id IN (SELECT run_id FROM punctual.dead_letters ORDER BY run_id DESC OFFSET 20 LIMIT 15)`)
	gone := c.Get("job-3").ID
	c.DeleteJob("job-3")
	from, to := firstSlot.Add(10*time.Minute), firstSlot.Add(90*time.Minute)
	for name, f := range map[string]letters.DeadLetterFilter{
		"all": {}, "by reason": {Reason: domain.ReasonTimeout}, "by job": {Job: "job-1"},
		"by the id of a deleted job": {JobID: &gone}, "a deleted job": {Job: gone.String()},
		"by label": {Labels: map[string]string{"odd": "true"}}, "since": {From: &from}, "until": {To: &to},
		"by everything": {
			Job: "job-2", Reason: domain.ReasonHTTP5xx, From: &from, To: &to, Labels: map[string]string{"odd": "false"},
		},
	} {
		want := counted(c, f)
		if len(want) == 0 && name != "a deleted job" {
			t.Errorf("%s: the test says nothing", name)
		}
		for _, size := range []int{1, 2, 5, 50} {
			if diff := gocmp.Diff(want, groups(c, f, size)); diff != "" {
				t.Errorf("%s, pages of %d: %s", name, size, diff)
			}
		}
	}
}

// flood writes n open dead letters of a new tenant, of as many jobs as are given, in turn. Each is newer than the one
// before.
func flood(c Fixture, n, jobs int) Fixture {
	c.T.Helper()
	c.Tenant = Value[int32](c, `INSERT INTO punctual.tenants (name) VALUES ($1) RETURNING id`,
		fmt.Sprintf("flood-%d-%d", n, jobs))
	c.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			reason, attempts, http_status, error)
		SELECT (lpad(to_hex(i), 12, '0') || '8' || substr(gen_random_uuid()::text, 16, 4) || '8'
				|| substr(gen_random_uuid()::text, 21, 3) || substr(gen_random_uuid()::text, 25))::uuid,
			('00000000-0000-7000-8000-' || lpad(to_hex(i % $2::int), 12, '0'))::uuid, $3, 'job', 1,
			to_timestamp(i), 'schedule', 'http_5xx', 1, 503, repeat('x', 100)
		FROM generate_series(1, $1::int) i`, n, jobs, c.Tenant)
	return c
}

func TestAGroupIsCountedUpToTenThousand(t *testing.T) {
	c := NewFixture(t)
	for n, want := range map[int]int{9_999: 9_999, 10_000: 10_000, 10_002: 10_000} {
		got := groups(flood(c, n, 1), letters.DeadLetterFilter{}, 50)
		if len(got) != 1 || got[0].Count != want || got[0].OldestSlot.Unix() != 1 || got[0].NewestSlot.Unix() != int64(n) {
			t.Errorf("of %d dead letters: %+v", n, got)
		}
	}
}

// The newest dead letters, among which a page is searched first, may all be of one job.
func TestAGroupHidesNoOther(t *testing.T) {
	c := NewFixture(t)
	c = flood(c, 5_000, 1)
	const few = 7
	c.Exec(`UPDATE punctual.dead_letters
		SET job_id = ('00000000-0000-7000-8000-0000000001' || lpad(n::text, 2, '0'))::uuid
		FROM (SELECT run_id AS id, row_number() OVER (ORDER BY run_id) AS n FROM punctual.dead_letters
			WHERE tenant = $1) o WHERE run_id = id AND n <= $2`, c.Tenant, few)
	for _, size := range []int{1, 3, 50} {
		got := groups(c, letters.DeadLetterFilter{}, size)
		newestFirst := func(a, b letters.DeadLetterGroup) int {
			return cmp.Compare(b.NewestSlot.Unix(), a.NewestSlot.Unix())
		}
		if len(got) != 1+few || got[0].Count != 5_000-few || !slices.IsSortedFunc(got, newestFirst) {
			t.Errorf("pages of %d: %+v", size, got)
		}
	}
}

func TestAGroupThatGetsANewerDeadLetterMovesToTheFront(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	c.Create("b")
	bury(c, dead{job: "a", reason: domain.ReasonGone}, dead{job: "b", reason: domain.ReasonGone})
	first, next, err := c.Letters.ListGroups(t.Context(), c.Tenant, letters.DeadLetterFilter{Page: pg.Page{Limit: 1}})
	if err != nil || len(first) != 1 || first[0].Job != "b" {
		t.Fatalf("%+v, %v", first, err)
	}
	newest := bury(c, dead{job: "a", reason: domain.ReasonGone})
	rest, _, err := c.Letters.ListGroups(t.Context(), c.Tenant, letters.DeadLetterFilter{Page: pg.Page{Cursor: next}})
	if err != nil || len(rest) != 0 {
		t.Errorf("the rest: %+v, %v", rest, err)
	}
	if again := groups(c, letters.DeadLetterFilter{}, 50); len(again) != 2 || again[0].NewestRun != newest[0] {
		t.Errorf("from the beginning: %+v", again)
	}
	var bad *pg.CursorError
	if _, _, err := c.Letters.ListDeadLetters(t.Context(), c.Tenant,
		letters.DeadLetterFilter{Page: pg.Page{Cursor: next}}); !errors.As(err, &bad) {
		t.Errorf("the cursor of another list: %v", err)
	}
}

// A page of groups of dead letters reads at most a row for each group.
//
// After an outage of 2,000 jobs and of one job that died 3,000 times. The test counts pages of the database, not time.
//
//prove:data
func TestAPageOfGroupsIsReadByIndex(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	var outage, one int32
	AnalysedOrNot(t, func(c Replica) {
		outage, one = flood(c.Fixture, 20_000, 2_000).Tenant, flood(c.Fixture, 3_000, 1).Tenant
	}, func(t *testing.T, watch Replica) {
		for _, k := range []struct {
			name   string
			tenant int32
			filter letters.DeadLetterFilter
			groups int
			most   int
		}{
			{"the first page after an outage", outage, letters.DeadLetterFilter{}, 20, 2_000},
			// It looks at every group: four pages of the index, and the newest dead letter.
			{"a reason that there is none of", outage, letters.DeadLetterFilter{Reason: domain.ReasonGone}, 0, 20_000},
			{"a label", outage, letters.DeadLetterFilter{Labels: map[string]string{"a": "b"}}, 0, 20_000},
			{"one job", one, letters.DeadLetterFilter{}, 1, 8_000},
		} {
			n := watch.PagesRead(`^dead_letters$`, func() {
				k.filter.Limit = 20
				found, _, err := watch.Letters.ListGroups(t.Context(), k.tenant, k.filter)
				if err != nil || len(found) != k.groups {
					t.Errorf("%s: %d groups, %v", k.name, len(found), err)
				}
			})
			if n > k.most {
				t.Errorf("%s: %d pages were read", k.name, n)
			}
		}
	})
}

func TestGroupsWorkInEveryExecMode(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(t *testing.T, c Fixture) {
		job := c.Create("a", Labelled("x", "y"))
		c.Create("b", Labelled("x", "y"))
		bury(c, dead{job: "a", reason: domain.ReasonGone}, dead{job: "a", reason: domain.ReasonGone},
			dead{job: "b", reason: domain.ReasonGone})
		if got := groups(c, letters.DeadLetterFilter{}, 1); len(got) != 2 {
			t.Errorf("%+v", got)
		}
		if got := groups(c, letters.DeadLetterFilter{
			Job: "a", JobID: &job.ID, Reason: domain.ReasonGone, From: &firstSlot, To: new(time.Now().AddDate(9, 0, 0)),
			Labels: map[string]string{"x": "y"},
		}, 1); len(got) != 1 || got[0].Count != 2 {
			t.Errorf("%+v", got)
		}
	})
}
