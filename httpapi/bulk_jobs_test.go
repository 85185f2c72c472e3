package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/problem"
	"punctual/store/letters"
)

// ofX is a job that the filter {"labels":{"team":"x"}} selects.
func ofX(name string) string {
	return with(`"labels":{"team":"x"}`, minimal(name))
}

// end waits for the end of the operation at the path.
func (f *dispatched) end(path string) letters.Operation {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if o := get[letters.Operation](f.service, path); o.State != letters.OperationRunning {
			return o
		}
	}
	f.t.Fatalf("waited for the end of %s", path)
	return letters.Operation{}
}

func (s *service) inState(state string) (names []string) {
	s.t.Helper()
	for _, job := range get[List[Job]](s, "/v1/jobs?state="+state).Data {
		names = append(names, job.Name)
	}
	slices.Sort(names)
	return names
}

func TestJobsArePausedResumedAndDeletedByTheReplicas(t *testing.T) {
	f := newDispatched(t)
	for i := range 5 {
		f.create(ofX(fmt.Sprintf("x%d", i)))
	}
	f.create(minimal("other"))
	const filter = `{"filter":{"labels":{"team":"x"}}`
	for _, step := range []struct {
		action, body string
		note         string
		state        string
		want         []string
	}{
		{
			"pause", filter + `,"note":"moving","until":"2199-01-01T00:00:00Z"`, "moving", "paused",
			[]string{"x0", "x1", "x2", "x3", "x4"},
		},
		{"resume", filter + `,"max_per_second":1000`, "", "active", []string{"other", "x0", "x1", "x2", "x3", "x4"}},
		{"delete", filter + `,"note":"moved"`, "moved", "active", []string{"other"}},
	} {
		path := "/v1/jobs/" + step.action
		if n := f.do("POST", path, step.body+`,"dry_run":true}`).want(200).fields()["matched"]; n != 5. {
			t.Errorf("%s: a dry run counts %v", step.action, n)
		}
		key := "Idempotency-Key: " + step.action
		r := f.do("POST", path, step.body+"}", key).want(202)
		o := into[letters.Operation](r)
		if string(o.Kind) != step.action || o.Matched != 5 || r.header.Get("Location") != operationPath(o.ID) ||
			(o.Note == nil) != (step.note == "") {
			t.Errorf("%s: %s", step.action, r.body)
		}
		if o = f.end(operationPath(o.ID)); o.State != letters.OperationDone || o.Done != 5 || o.Failed != 0 {
			t.Errorf("%s: %+v", step.action, o)
		}
		if diff := cmp.Diff(step.want, f.inState(step.state)); diff != "" {
			t.Errorf("%s: %s", step.action, diff)
		}
		again := f.do("POST", path, step.body+"}", key).want(202)
		if again.header.Get("Idempotent-Replayed") != "true" || into[letters.Operation](again).ID != o.ID {
			t.Errorf("%s again: %s", step.action, again.body)
		}
	}
	var actions []string
	for _, entry := range f.items("/v1/audit-log?name=x0") {
		actions = append(actions, entry["action"].(string))
	}
	if diff := cmp.Diff([]string{"job.delete", "job.resume", "job.pause", "job.create"}, actions); diff != "" {
		t.Error(diff)
	}
}

// A job may have the name of an operation on many jobs. Only POST of the path means many jobs.
func TestJobsNamedLikeOperations(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"pause", "resume", "delete"} {
		path := "/v1/jobs/" + name
		created := s.do("PUT", path, `{"schedule":{"every":"1h"},"target":{"url":"http://example.com/"}}`).want(201).fields()
		if got := s.do("GET", path, "").want(200).fields(); got["id"] != created["id"] || got["name"] != name {
			t.Errorf("GET %s: %v", path, got)
		}
		s.do("HEAD", path, "").want(200)
		if got := s.do("PATCH", path, `{"timeout":"1m"}`).want(200).fields(); got["name"] != name {
			t.Errorf("PATCH %s: %v", path, got)
		}
		for action, state := range map[string]string{"pause": "paused", "resume": "active"} {
			if got := s.do("POST", path+"/"+action, "").want(200).fields(); got["name"] != name ||
				action == "pause" && got["state"] != state {
				t.Errorf("POST %s/%s: %v", path, action, got)
			}
		}
		s.do("POST", path+"/trigger", "").want(202)
		s.do("GET", path+"/runs", "").want(200)
		if got := s.do("POST", path, `{"filter":{"name":"`+name+`"},"dry_run":true}`).want(200).fields()["matched"]; got != 1. {
			t.Errorf("POST %s: %v jobs", path, got)
		}
		s.do("POST", path, "").code(problem.CodeMalformed)
		s.do("DELETE", path, "").want(204)
		s.do("GET", path, "").code(problem.CodeNotFound)
	}
	r := s.do("OPTIONS", "/v1/jobs/pause", "")
	r.code(problem.CodeWrongMethod)
	if got := r.header.Get("Allow"); got != "GET, HEAD, POST, PUT, PATCH, DELETE" {
		t.Errorf("Allow %q", got)
	}
}

func TestRequestsAboutManyJobsAreChecked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for body, at := range map[string]string{
		`{}`:                             "body.filter",
		`{"filter":null}`:                "body.filter",
		`{"filter":{"label":{"a":"b"}}}`: "body.filter.label",
		`{"filter":{"state":"deleted"}}`: "body.filter.state",
		`{"filter":{"queue":5}}`:         "body.filter.queue",
		`{"filter":{"queue":"` + strings.Repeat("x", 65) + `"}}`:   "body.filter.queue",
		`{"filter":{"name":"\u0000"}}`:                             "body.filter.name",
		`{"filter":{"name":""}}`:                                   "body.filter.name",
		`{"filter":{"q":"` + strings.Repeat("ä", 129) + `"}}`:      "body.filter.q",
		`{"filter":{"labels":["team"]}}`:                           "body.filter.labels",
		`{"filter":{"labels":{"a":"\u0000"}}}`:                     "body.filter.labels",
		`{"filter":{},"max_per_second":0}`:                         "body.max_per_second",
		`{"filter":{"paused_by_operation":"x"}}`:                   "body.filter.paused_by_operation",
		`{"filter":{},"max_per_second":1001}`:                      "body.max_per_second",
		`{"filter":{},"dry_run":"yes"}`:                            "body.dry_run",
		`{"filter":{},"note":"` + strings.Repeat("x", 1025) + `"}`: "body.note",
		`{"filter":{},"until":"yesterday"}`:                        "body.until",
		`{"filter":{},"until":"2020-01-01T00:00:00Z"}`:             "body.until",
	} {
		for _, action := range []string{"pause", "resume", "delete"} {
			s.do("POST", "/v1/jobs/"+action, body).blames(at)
		}
	}
	s.do("POST", "/v1/jobs/pause", `{"filter":{"q":"`+strings.Repeat("ä", 128)+`"},"dry_run":true}`).want(200)
	s.do("POST", "/v1/jobs/pause", `{"filter":{"queue":"none"}}`).want(202)
	if list := get[List[letters.Operation]](s, "/v1/operations?state=running"); len(list.Data) != 0 {
		t.Errorf("started %+v", list)
	}
}

func TestDeadLetterGroups(t *testing.T) {
	f := newDispatched(t)
	f.create(f.job("a", `{}`))
	f.create(f.job("b", `{}`))
	var newest string
	for _, job := range []string{"a", "a", "b"} {
		f.do("POST", "/v1/jobs/"+job+"/trigger", "").want(202)
		newest = f.next().run
	}
	page := get[List[letters.DeadLetterGroup]](f.service, "/v1/dead-letters/groups?limit=1")
	if len(page.Data) != 1 || page.NextCursor == nil {
		t.Fatalf("%+v", page)
	}
	if g := page.Data[0]; g.Job != "b" || g.Count != 1 || g.NewestRun.String() != newest || *g.Reason != "http_5xx" ||
		*g.HTTPStatus != 503 || g.Error == nil || !g.OldestSlot.Equal(g.NewestSlot) {
		t.Errorf("%+v", g)
	}
	page = get[List[letters.DeadLetterGroup]](f.service, "/v1/dead-letters/groups?limit=1&cursor="+*page.NextCursor)
	if len(page.Data) != 1 || page.NextCursor != nil || page.Data[0].Job != "a" || page.Data[0].Count != 2 {
		t.Fatalf("%+v", page)
	}
	g := page.Data[0]
	bulk := fmt.Sprintf(`{"filter":{"job_id":%q,"reason":%q}}`, g.JobID, *g.Reason)
	o := into[letters.Operation](f.do("POST", "/v1/dead-letters/resolve", bulk).want(202))
	if o = f.end(operationPath(o.ID)); o.Done != g.Count {
		t.Errorf("%+v", o)
	}
	for query, want := range map[string]int{
		"": 1, "?job=a": 0, "?job=b": 1, "?job_id=" + g.JobID.String(): 0, "?reason=timeout": 0,
		"?label=a=b": 0, "?from=2020-01-01T00:00:00Z&to=2021-01-01T00:00:00Z": 0,
	} {
		list := get[List[letters.DeadLetterGroup]](f.service, "/v1/dead-letters/groups"+query)
		if len(list.Data) != want {
			t.Errorf("%s: %+v", query, list)
		}
	}
	for query, at := range map[string]string{
		"resolved=any": "query.resolved", "reason=paused": "query.reason", "from=x": "query.from", "cursor=x": "query.cursor",
		"job_id=x": "query.job_id", "label=x": "query.label[0]", "limit=0": "query.limit",
	} {
		f.do("GET", "/v1/dead-letters/groups?"+query, "").blames(at)
	}
	f.do("GET", "/v1/dead-letters/groups?job=none", "").code(problem.CodeNotFound)
}
