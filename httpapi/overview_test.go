package httpapi

import (
	"testing"

	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/overview"
	"punctual/store/runs"
)

func TestTheOverviewOfATenantThatHasNothing(t *testing.T) {
	t.Parallel()
	s := serve(t)
	o := get[Overview](s, "/v1/overview")
	if o.Overdue.Slots+o.Overdue.Runs != 0 || o.Overdue.Oldest != nil || o.DeadLetters.Open != 0 || o.Failing.Count != 0 ||
		o.Failing.Jobs == nil || o.Frozen != nil || o.AsOf.IsZero() {
		t.Errorf("%+v", o)
	}
	if d := o.Day; len(d.Hours) != 24 || d.CountedAt != nil || d.SuccessRate != nil || d.Lateness.P99 != nil ||
		!d.Hours[0].Hour.Equal(d.From) || d.Hours[0].CountedAt != nil {
		t.Errorf("%+v", o.Day)
	}
	s.do("POST", "/v1/freeze", `{"scope":"tenant","note":"why"}`).want(200)
	if o := get[Overview](s, "/v1/overview"); o.Frozen == nil || *o.Frozen.Note != "why" {
		t.Errorf("frozen: %+v", o.Frozen)
	}
}

func TestWhatTheOverviewCountsIsListed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("well"))
	run, token := s.working("dead")
	s.do("POST", run+"/fail", `{"error":"it died","retry":false}`, token).want(200)
	s.create(minimal("late"))
	s.exec(`UPDATE punctual.schedules
		SET scheduled_for = now() - interval '1 minute', next_run_at = now() - interval '1 minute'
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'late')`)
	o := get[Overview](s, "/v1/overview")
	if o.Overdue.Slots != 1 || o.Overdue.Oldest == nil || o.Overdue.Oldest.Job != "late" || o.DeadLetters.Open != 1 ||
		len(o.Failing.Jobs) != 1 {
		t.Fatalf("%+v", o)
	}
	if f := o.Failing.Jobs[0]; f.Job != "dead" || runPath(f.Run) != run || *f.Reason != domain.ReasonFailed ||
		*f.Error != "it died" || f.Failures != 1 || f.Letters != 1 || f.NextTryAt != nil {
		t.Errorf("%+v", f)
	}
	for query, want := range map[string]string{"failing=true": "dead", "overdue=true": "late"} {
		if list := get[List[ListedJob]](s, "/v1/jobs?"+query); len(list.Data) != 1 ||
			list.Data[0].Name != want || list.Data[0].Recent != nil {
			t.Errorf("%s: %+v", query, list.Data)
		}
	}
	for _, query := range []string{"failing=true&overdue=true", "failing=true&name=well", "failing=true&state=paused"} {
		if list := get[List[ListedJob]](s, "/v1/jobs?"+query); len(list.Data) != 0 {
			t.Errorf("%s: %+v", query, list.Data)
		}
	}
	for _, view := range []string{"full", "summary"} {
		list := get[List[ListedJob]](s, "/v1/jobs?recent=5&view="+view).Data
		if len(list) != 3 || list[0].Recent == nil || len(list[0].Recent.Runs) != 0 || len(list[1].Recent.Runs) != 1 ||
			list[1].Recent.Runs[0].Status != domain.StatusDead || list[1].Recent.DurationP95 == nil {
			t.Errorf("%s: %+v", view, list)
		}
	}
	stats := get[runs.JobStats](s, "/v1/jobs/dead/stats")
	if stats.Runs != 1 || stats.Dead != 1 || !stats.Complete || *stats.SuccessRate != 0 || stats.Job != "dead" {
		t.Errorf("%+v", stats)
	}
	s.do("GET", "/v1/jobs/nobody/stats", "").code(problem.CodeNotFound)
	s.do("DELETE", "/v1/jobs/dead", "").want(204)
	s.do("GET", "/v1/jobs/"+stats.JobID.String()+"/stats", "").code(problem.CodeNotFound)
}

func TestUsageIsListedForUpToAHundredDays(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(`INSERT INTO punctual.daily_usage (id, day, tenant, runs, attempts, seconds, bytes)
		SELECT punctual.partition_bound(date '2026-01-01' + n), date '2026-01-01' + n, 1, 1, 1, 0.5, 7
		FROM generate_series(0, 2) n`)
	for query, days := range map[string]int{
		"": 0, "?from=2026-01-01&to=2026-04-11": 3, "?to=2026-01-02": 1, "?from=2026-01-02&to=2026-01-03": 1,
		"?from=2026-01-02&to=2026-01-02": 0,
	} {
		list := get[List[overview.Usage]](s, "/v1/usage"+query).Data
		if len(list) != days || days > 1 && (list[0].Day != "2026-01-03" || list[0].Job != nil || list[0].Bytes != 7) {
			t.Errorf("%s: %+v", query, list)
		}
	}
	for query, field := range map[string]string{
		"?from=2026-01-01&to=2026-04-12": "query.from", "?from=2026-01-02&to=2026-01-01": "query.from",
		"?from=yesterday": "query.from", "?to=2026-1-1": "query.to", "?from=2300-01-01&to=2300-01-02": "query.from",
	} {
		s.do("GET", "/v1/usage"+query, "").blames(field)
	}
}

// A caller that asks again and again gets no overview that it already has. When it was read tells no overviews apart.
func TestAnOverviewThatTheCallerHasIsNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	first := s.do("GET", "/v1/overview", "").want(200)
	tag := first.header.Get("ETag")
	s.do("GET", "/v1/overview", "", "If-None-Match: "+tag).want(304)
	s.do("POST", "/v1/freeze", `{"scope":"tenant","note":"why"}`).want(200)
	if again := s.do("GET", "/v1/overview", "", "If-None-Match: "+tag).want(200).header.Get("ETag"); again == tag || tag == "" {
		t.Errorf("the tag is %q, and %q while the tenant is frozen", tag, again)
	}
}
