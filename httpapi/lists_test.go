package httpapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/problem"
)

func TestListsPageStably(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range 7 {
		s.create(with(fmt.Sprintf(`"labels":{"n":"%d","all":"y"}`, i%2), minimal(fmt.Sprint("job-", i))))
	}
	s.create(`{"name":"other","description":"About Mice","target":{"url":"http://example.com/"},"paused":true}`)
	names := func(query string) []string {
		t.Helper()
		var list []string
		for cursor := ""; ; {
			page := s.do("GET", "/v1/jobs?limit=3&"+query+cursor, "").want(200).fields()
			for _, job := range page["data"].([]any) {
				list = append(list, job.(map[string]any)["name"].(string))
			}
			next, ok := page["next_cursor"].(string)
			if !ok {
				return list
			}
			cursor = "&cursor=" + next
			s.create(minimal(fmt.Sprint("meanwhile-", len(list), "-", strings.Trim(strings.Map(letter, query), "-"))))
		}
	}
	for query, want := range map[string][]string{
		"name=job-":                    {"job-6", "job-5", "job-4", "job-3", "job-2", "job-1", "job-0"},
		"label=all=y&label=n%3D1":      {"job-5", "job-3", "job-1"},
		"q=MICE":                       {"other"},
		"state=paused":                 {"other"},
		"queue=default&name=other":     {"other"},
		"queue=none":                   nil,
		"name=job%25":                  nil,
		"state=completed&q=x&label=a=": nil,
	} {
		if diff := cmp.Diff(want, names(query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

func letter(r rune) rune {
	if r >= 'a' && r <= 'z' {
		return r
	}
	return '-'
}

func TestQueriesAreChecked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	for path, at := range map[string]string{
		"/v1/jobs?limit=0": "query.limit", "/v1/jobs?limit=501": "query.limit", "/v1/jobs?limit=x": "query.limit",
		"/v1/jobs?limits=5": "query.limits", "/v1/jobs?state=gone": "query.state", "/v1/jobs?cursor=x": "query.cursor",
		"/v1/jobs?label=x": "query.label[0]", "/v1/jobs?label=a=1&label=a=2": "query.label[1]",
		"/v1/jobs?q=%00": "query.q", "/v1/jobs?q=%ff": "query.q", "/v1/jobs/n?x=1": "query.x",
		"/v1/jobs/n/upcoming?n=0": "query.n", "/v1/jobs/n/upcoming?n=101": "query.n", "/v1/runs?status=x": "query.status",
		"/v1/runs?late=maybe": "query.late", "/v1/runs?from=yesterday": "query.from", "/v1/runs?to=5": "query.to",
		"/v1/runs?job_id=x": "query.job_id", "/v1/runs?reason=bad": "query.reason",
		"/v1/runs?trigger=x": "query.trigger", "/v1/runs?cursor=AAAA": "query.cursor",
		"/v1/jobs/n/runs?limit=0": "query.limit", "/v1/jobs?recent=21": "query.recent", "/v1/jobs?recent=x": "query.recent",
		"/v1/jobs?failing=false": "query.failing", "/v1/jobs?overdue=1": "query.overdue",
		"/v1/jobs?paused_by_operation=x": "query.paused_by_operation",
		"/v1/overview?hours=5":           "query.hours", "/v1/jobs/n/stats?n=5": "query.n",
	} {
		t.Run(path, func(t *testing.T) {
			s := s.in(t)
			s.do("GET", path, "").blames(at)
		})
	}
	for path, of := range map[string]string{
		"/v1/runs?job=nobody": "job with that id or name", "/v1/dead-letters?job=nobody": "job with that id or name",
		"/v1/runs/nobody": "run with that id",
	} {
		if p := s.do("GET", path, "").code(problem.CodeNotFound); p.Detail != "There is no "+of+"." {
			t.Errorf("%s: %s", path, p.Detail)
		}
	}
	for _, path := range []string{"/v1/jobs?q=%zz", "/v1/jobs?a;b"} {
		s.do("GET", path, "").code(problem.CodeMalformed)
	}
	for _, path := range []string{
		"/v1/runs?from=2026-01-01T00:00:00+01:00&to=2026-01-02T00:00:00Z&late=true&job=n&status=dead" +
			"&reason=gone&trigger=manual&label=a=b",
		"/v1/jobs?limit=&cursor=", "/v1/runs?late&limit=5", "/v1/runs?from=0000-01-01T00:00:00Z&to=9999-12-31T23:59:59Z",
		"/v1/runs?to=0000-01-01T00:00:00Z", "/v1/jobs/n/runs?limit=500",
	} {
		s.do("GET", path, "").want(200)
	}
}

func TestRunsOfADeletedJobStay(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.create(minimal("n"))["id"].(string)
	run := s.do("POST", "/v1/jobs/n/trigger", "").want(202).fields()["id"]
	s.do("DELETE", "/v1/jobs/n", "").want(204)
	s.do("GET", "/v1/jobs/"+id, "").want(404)
	for _, path := range []string{"/v1/jobs/" + id + "/runs", "/v1/runs?job_id=" + id, "/v1/runs?job=" + id, "/v1/runs"} {
		data := s.items(path)
		if len(data) != 1 || data[0]["id"] != run {
			t.Errorf("%s: %v", path, data)
		}
	}
}

func TestListsInShort(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(`{"name":"n","labels":{"team":"billing"},"schedule":{"every":"1h"},` +
		`"target":{"url":"http://example.com/","body":"a large body","headers":{"X-A":"1"}}}`)
	s.do("POST", "/v1/jobs/n/trigger", "").want(202)
	names := func(item map[string]any) []string { return slices.Sorted(maps.Keys(item)) }
	job := []string{
		"id", "labels", "last_run", "name", "next_run_at", "next_scheduled_for", "queue", "schedule", "state", "tenant",
		"version",
	}
	run := []string{
		"attempt", "due_at", "error", "finished_at", "http_status", "id", "job", "job_id", "late", "queue", "reason",
		"scheduled_for", "started_at", "status", "trigger",
	}
	jobs := s.items("/v1/jobs?view=summary")
	if diff := cmp.Diff(job, names(jobs[0])); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(run, names(jobs[0]["last_run"].(map[string]any))); diff != "" {
		t.Error(diff)
	}
	for _, list := range []string{"/v1/runs", "/v1/jobs/n/runs"} {
		data := s.items(list + "?view=summary")
		if diff := cmp.Diff(run, names(data[0])); diff != "" {
			t.Errorf("%s: %s", list, diff)
		}
		if one := names(s.items(list + "?view=full")[0]); !slices.Contains(one, "created_at") {
			t.Errorf("%s: %s", list, one)
		}
	}
	full, plain := s.do("GET", "/v1/jobs?view=full", "").want(200), s.do("GET", "/v1/jobs", "").want(200)
	if string(full.shows(`"a large body"`).body) != string(plain.body) {
		t.Errorf("%s, %s", full.body, plain.body)
	}
	// In full, an item of a list is the same as the job itself.
	plain.shows(strings.TrimSpace(string(s.do("GET", "/v1/jobs/n", "").want(200).body)))
}
