package httpapi

import (
	"strings"
	"testing"

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
		r := s.do("GET", "/v1/jobs/n", "", "If-None-Match: "+tag).want(200).shows(`"name":"n"`)
		if r.header.Get("ETag") == tag {
			t.Errorf("ETag %s", tag)
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
