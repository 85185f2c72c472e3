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

func TestAReadThatWouldTellNothingNewIs304(t *testing.T) {
	t.Parallel()
	s := serve(t)
	created := s.do("POST", "/v1/jobs", minimal("n")).want(201)
	tag := created.header.Get("ETag")
	notModified := func(tags string) {
		t.Helper()
		r := s.do("GET", "/v1/jobs/n", "", "If-None-Match: "+tags)
		if r.status != 304 || len(r.body) != 0 || r.header.Get("ETag") != tag {
			t.Errorf("%s: %d %v %s", tags, r.status, r.header, r.body)
		}
		if r := s.do("HEAD", "/v1/jobs/n", "", "If-None-Match: "+tags); r.status != 304 {
			t.Errorf("HEAD %s: %d", tags, r.status)
		}
	}
	for _, tags := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		notModified(tags)
	}
	fresh := func() {
		t.Helper()
		r := s.do("GET", "/v1/jobs/n", "", "If-None-Match: "+tag).want(200)
		if r.header.Get("ETag") == tag || !strings.Contains(string(r.body), `"name":"n"`) {
			t.Errorf("ETag %s, body %s", r.header.Get("ETag"), r.body)
		}
		tag = r.header.Get("ETag")
		notModified(tag)
	}
	version := func() string { return strings.Split(tag, ".")[0] }
	// A run changes the answer but not the version, so an edit of an earlier answer still succeeds.
	before := tag
	run := s.do("POST", "/v1/jobs/n/trigger", "").want(202).fields()["id"].(string)
	fresh()
	if version() != `"1` {
		t.Errorf("a run made a version: %s", tag)
	}
	s.do("POST", "/v1/runs/"+run+"/cancel", "").want(202)
	fresh()
	changed := s.do("PATCH", "/v1/jobs/n", `{"timeout":"5s"}`, "If-Match: "+before).want(200)
	fresh()
	if changed.header.Get("ETag") != tag {
		t.Errorf("PATCH answers the ETag %s, GET %s", changed.header.Get("ETag"), tag)
	}
	for _, stale := range []string{before, `"1"`, `"1.0"`} {
		s.do("PATCH", "/v1/jobs/n", `{"timeout":"6s"}`, "If-Match: "+stale).code(problem.CodeVersion)
	}
	for _, now := range []string{tag, `"2"`} {
		s.do("PATCH", "/v1/jobs/n", `{"timeout":"5s"}`, "If-Match: "+now).want(200)
	}
	for _, rubbish := range []string{`"2`, `".2"`, `2.x`, `W/"2"`} {
		s.do("PATCH", "/v1/jobs/n", `{}`, "If-Match: "+rubbish).code(problem.CodeVersion)
	}
	s.do("GET", "/v1/jobs/nobody", "", "If-None-Match: *").code(problem.CodeNotFound)
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
		"attempt", "due_at", "finished_at", "http_status", "id", "job", "job_id", "late", "queue", "reason",
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
		if one := names(s.items(list + "?view=full")[0]); !slices.Contains(one, "created_at") || slices.Contains(one, "step") ||
			slices.Contains(one, "parent_run") {
			t.Errorf("%s: %s", list, one)
		}
	}
	full, plain := s.do("GET", "/v1/jobs?view=full", "").want(200), s.do("GET", "/v1/jobs", "").want(200)
	if string(full.body) != string(plain.body) || !strings.Contains(string(full.body), `"a large body"`) {
		t.Errorf("%s, %s", full.body, plain.body)
	}
	// In full, an item of a list is the same as the job itself.
	if one := s.do("GET", "/v1/jobs/n", "").
		want(200); !strings.Contains(string(plain.body), strings.TrimSpace(string(one.body))) {
		t.Errorf("%s is not in %s", one.body, plain.body)
	}
}

func TestABatchSaysWhatBecameOfEachJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	batch := func(on string, jobs ...string) (results []string) {
		t.Helper()
		answer := into[BatchAnswer](s.do("POST", "/v1/jobs/batch",
			fmt.Sprintf(`{"on_conflict":%q,"jobs":[%s]}`, on, strings.Join(jobs, ","))).want(201))
		for i, item := range answer.Data {
			results = append(results, fmt.Sprint(item.Name, " ", item.Result))
			if got := get[Job](s, "/v1/jobs/"+item.Name); got.ID != item.ID {
				t.Errorf("item %d has the id %s, the job %s", i, item.ID, got.ID)
			}
		}
		return results
	}
	changed := with(`"timeout":"5s"`, minimal("b"))
	for _, c := range []struct {
		on   string
		jobs []string
		want []string
	}{
		{"error", []string{minimal("a"), minimal("b")}, []string{"a created", "b created"}},
		{"skip", []string{minimal("c"), changed, minimal("a")}, []string{"c created", "b skipped", "a skipped"}},
		{"replace", []string{minimal("d"), changed, minimal("a")}, []string{"d created", "b replaced", "a unchanged"}},
		{"replace", []string{changed, minimal("d")}, []string{"b unchanged", "d unchanged"}},
	} {
		if diff := cmp.Diff(c.want, batch(c.on, c.jobs...)); diff != "" {
			t.Errorf("%s: %s", c.on, diff)
		}
	}
	// The same batch does not fire a one-shot again.
	once := `{"name":"once","schedule":{"delay":"0s"},"target":{"url":"http://example.com/"}}`
	if got := batch("skip", once); got[0] != "once created" {
		t.Error(got)
	}
	if got := batch("skip", once); got[0] != "once skipped" {
		t.Error(got)
	}
	// A repeated request returns what the first one did.
	body := `{"jobs":[` + minimal("e") + `]}`
	for range 2 {
		r := s.do("POST", "/v1/jobs/batch", body, "Idempotency-Key: k").want(201)
		if into[BatchAnswer](r).Data[0].Result != "created" {
			t.Errorf("%s", r.body)
		}
	}
}
