package httpapi

import (
	"testing"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
)

func TestSubmittersTriggerWhatAllowsIt(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	submitter, other, editor := s.as("default", auth.RoleSubmitter), s.as("default", auth.RoleSubmitter), s.as("default", auth.RoleEditor)
	job := func(name, rest string) string {
		return `{"name":"` + name + `","target":{"url":"http://example.com/"}` + rest + `}`
	}
	const open, shut, once = `,"submitters_may_trigger":true`, `,"submitters_may_trigger":false`,
		`,"schedule":{"delay":"100h"}`
	refused := func(s *service, name string) {
		t.Helper()
		s.do("POST", "/v1/jobs/"+name+"/trigger", "").code(problem.CodeForbidden, "submitters_may_trigger", name)
		if runs := get[List[ListedRun]](editor, "/v1/jobs/"+name+"/runs"); len(runs.Data) != 0 {
			t.Errorf("%s has run", name)
		}
		editor.do("POST", "/v1/jobs/"+name+"/trigger", "").want(202)
	}
	allowed := func(s *service, name string) {
		t.Helper()
		s.do("POST", "/v1/jobs/"+name+"/trigger", "").want(202)
	}
	shows := func(name string, want bool) {
		t.Helper()
		if got := editor.do("GET", "/v1/jobs/"+name, "").want(200).fields()["submitters_may_trigger"]; got != want {
			t.Errorf("%s shows %v", name, got)
		}
	}
	editor.create(job("plain", ""))
	shows("plain", false)
	refused(submitter, "plain")
	editor.create(job("open", open))
	shows("open", true)
	allowed(submitter, "open")
	editor.do("PATCH", "/v1/jobs/open", `{"submitters_may_trigger":null,"name":"shut-again"}`).want(200)
	submitter.do("POST", "/v1/jobs/shut-again/trigger", "").code(problem.CodeForbidden)
	// Submitters may trigger a job that a submitter creates, unless the job says that they may not.
	submitter.create(job("own", once))
	shows("own", true)
	allowed(submitter, "own")
	allowed(other, "own")
	submitter.create(job("own-shut", once+shut))
	refused(submitter, "own-shut")
	submitter.do("POST", "/v1/jobs/batch", `{"jobs":[`+job("batched", once)+`]}`).want(201)
	allowed(submitter, "batched")
	// A batch that skips a job does not open it to submitters.
	editor.create(job("reserved", once))
	submitter.do("POST", "/v1/jobs/batch", `{"on_conflict":"skip","jobs":[`+job("reserved", once)+`]}`).want(201)
	refused(submitter, "reserved")
	s.as("default", auth.RoleViewer).do("POST", "/v1/jobs/own/trigger", "").code(problem.CodeForbidden)
}
