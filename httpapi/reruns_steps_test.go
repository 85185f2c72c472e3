package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store/runs"
)

// A step reads the results that its body leaves out, with its token and while its attempt goes on. The workflow is then
// rerun from that step.
func TestAStepReadsResultsThatWereLeftOut(t *testing.T) {
	t.Parallel()
	s := serve(t)
	type call struct{ href, run, token string }
	called, let := make(chan call, 2), make(chan struct{})
	var joins atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Punctual-Step") != "join" {
			w.Header().Set("Content-Type", "application/json")
			bytes := map[bool]int{true: 61<<10 - 2, false: 60<<10 - 2}[r.Header.Get("Punctual-Step") == "a"]
			fmt.Fprintf(w, `{"result":%q}`, strings.Repeat(r.Header.Get("Punctual-Step"), bytes))
			return
		}
		var sent struct {
			Steps map[string]struct{ Result json.RawMessage }
		}
		_ = json.Unmarshal(body, &sent)
		var left struct{ Href string }
		_ = json.Unmarshal(sent.Steps["a"].Result, &left)
		called <- call{left.Href, r.Header.Get("Punctual-Run"), "Punctual-Run-Token: " + r.Header.Get("Punctual-Run-Token")}
		<-let
		if joins.Add(1) == 1 {
			w.WriteHeader(http.StatusGone)
		}
	}))
	defer target.Close()
	at := func(name, more string) string {
		return fmt.Sprintf(`{"name":%q,"target":{"url":%q}%s}`, name, target.URL, more)
	}
	s.create(workflow("n", at("a", ""), at("b", ""), at("c", ""), at("d", ""), at("e", ""),
		at("join", `,"depends_on":["a","b","c","d","e"]`)))
	s.create(workflow("other", at("a", "")))
	run := into[runs.Run](s.do("POST", "/v1/jobs/n/trigger", "").want(202))
	s.do("POST", "/v1/jobs/other/trigger", "").want(202)
	s.dispatch(guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), make(chan domain.Outcome, 100))
	join := <-called
	if want := "/v1/runs/" + join.run + "/results/a"; join.href != want {
		t.Fatalf("the result is at %s, want %s", join.href, want)
	}
	s.do("GET", join.href, "", join.token).want(200).shows(`{"result":"` + strings.Repeat("a", 61<<10-2) + `"}`)
	s.do("GET", "/v1/runs/"+join.run+"/results/none", "", join.token).code(problem.CodeNotFound)
	s.do("GET", "/v1/runs/"+join.run+"/results/join", "", join.token).code(problem.CodeNotFound)
	s.do("GET", join.href, "").code(problem.CodeRunToken)
	s.do("GET", runPath(domain.StepRunID(run.ID, "a"))+"/results/b", "", join.token).code(problem.CodeRunToken)
	s.do("POST", "/v1/runs/"+join.run+"/complete", "", join.token).code(problem.CodeRunToken) // it is not async
	close(let)
	ended := func(run runs.Run) runs.Run {
		t.Helper()
		until(t, "the workflow to end", func() bool {
			run = get[runs.Run](s, runPath(run.ID))
			return run.Status.Final()
		})
		return run
	}
	ended(run)
	s.do("GET", join.href, "", join.token).code(problem.CodeSuperseded)

	rerun := runPath(run.ID) + "/rerun"
	plan := into[domain.RerunPlan](s.do("POST", rerun, `{"from":["join"],"dry_run":true}`).want(200))
	if got := fmt.Sprint(plan); got != "{[join] [a b c d e] [] []}" {
		t.Errorf("the plan is %s", got)
	}
	if n := len(get[List[runs.Run]](s, "/v1/jobs/n/runs").Data); n != 1 {
		t.Errorf("%d runs after a dry run", n)
	}
	again := ended(into[runs.Run](s.do("POST", rerun, `{"from":["join"],"set":{"a":{"result":{"n":1},"note":"INC-12"}}}`).
		want(202)))
	if got := stages(again); got != "a succeeded, b succeeded, c succeeded, d succeeded, e succeeded, join succeeded" ||
		again.Steps[0].SetBy == nil || *again.Steps[0].Note != "INC-12" ||
		*again.Steps[1].KeptFrom != domain.StepRunID(run.ID, "b") {
		t.Errorf("the rerun: %s, %+v", got, again.Steps)
	}
	s.do("GET", "/v1/runs/"+(<-called).run, "").want(200).shows(`"a":{"status":"succeeded","result":{"n":1}}`)
	s.do("GET", runPath(*again.Steps[1].Run), "").want(200).hides(`"request"`).shows(`"result":"bbb`)
	s.do("GET", "/v1/audit-log?job=n", "").want(200).shows(`"from":["join"]`, `"set":{"a":"INC-12"}`).hides(`"n":1`)
	s.do("POST", runPath(*again.Steps[1].Run)+"/rerun", "").code(problem.CodeState, "from this step")
}

func TestRerunsOfStepsThatAreInvalid(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(workflow("n", step("load", "")))
	run := into[runs.Run](s.do("POST", "/v1/jobs/n/trigger", "").want(202))
	rerun := runPath(run.ID) + "/rerun"
	s.do("POST", rerun, `{"from":["load"],"dry_run":true}`).code(problem.CodeState, "is pending")
	s.do("POST", runPath(run.ID)+"/cancel", "").want(202)
	for _, c := range []struct{ body, at, says string }{
		{`{"from":["lod"]}`, "body.from[0]", "did you mean load?"},
		{`{"from":["lod"],"dry_run":true}`, "body.from[0]", "did you mean load?"},
		{`{"from":[]}`, "body.from", "1 to 50"},
		{`{"set":{"lod":{}}}`, "body.set.lod", "did you mean load?"},
		{`{"set":{"load":{"result":"` + strings.Repeat("x", domain.MaxResult) + `"}}}`, "body.set.load.result", "65536"},
		{`{"set":{"load":{"note":"\u0000"}}}`, "body.set.load.note", "NUL"},
		{`{"definition":"old"}`, "body.definition", "original"},
		{`{"from":["load"],"same_key":true}`, "body.same_key", "keys of their own"},
	} {
		s.do("POST", rerun, c.body).wantMessage(c.at, c.says)
	}
	s.do("POST", s.over("plain", "")+"/rerun", `{"from":["a"],"dry_run":true}`).blames("body.from", "body.dry_run")
	guarded := guarded(t)
	guarded.tenant("alpha")
	for _, body := range []string{"", `{"dry_run":true}`} {
		guarded.as("alpha", auth.RoleViewer).do("POST", rerun, body).code(problem.CodeForbidden)
	}
	s.do("POST", rerun, `{"set":{"load":{}}}`).want(202)
}
