package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store/history"
	"punctual/store/runs"
)

// step is a step with more fields, such as ,"depends_on":["a"].
func step(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"target":{"url":"http://example.com/%s"}%s}`, name, name, more)
}

// workflow is a job with steps.
func workflow(name string, steps ...string) string {
	return fmt.Sprintf(`{"name":%q,"steps":[%s]}`, name, strings.Join(steps, ","))
}

func TestWorkflowsThatCannotBe(t *testing.T) {
	t.Parallel()
	s := serve(t)
	many := make([]string, 51)
	for i := range many {
		many[i] = step(fmt.Sprint("s", i), "")
	}
	for _, c := range []struct{ job, at, says string }{
		{`{"name":"n"}`, "body.target.url", "required"},
		{`{"name":"n","steps":[]}`, "body.target.url", "required"},
		{
			workflow("n", step("a", `,"depends_on":["c"]`), step("b", `,"depends_on":["a"]`), step("c", `,"depends_on":["b"]`)),
			"body.steps", "in a circle: a → b → c → a",
		},
		{workflow("n", step("a", `,"depends_on":["a"]`)), "body.steps[0].depends_on[0]", "itself"},
		{
			workflow("n", step("extract", ""), step("load", `,"depends_on":["extrakt"]`)),
			"body.steps[1].depends_on[0]", `did you mean extract?`,
		},
		{workflow("n", step("a", ""), step("a", "")), "body.steps[1].name", "earlier step"},
		{workflow("n", many...), "body.steps", "51 steps; at most 50"},
		{with(`"target":{"url":"http://example.com/"}`, workflow("n", step("a", ""))), "body.target", "each step has its own"},
		{with(`"target":{"method":"GET"}`, workflow("n", step("a", ""))), "body.target", "each step has its own"},
		{workflow("n", `{"name":"a"}`), "body.steps[0].target.url", "required"},
		{workflow("n", step("a", `,"timeout":"25h"`)), "body.steps[0].timeout", "24h"},
		{workflow("n", step("a", `,"when":"failed"`)), "body.steps[0].when", "ended"},
		{workflow("n", step("a", `,"schedule":{"every":"1h"}`)), "body.steps[0].schedule", "unknown field"},
		{workflow("n", step("a", `,"approval":{}`)), "body.steps[0].target", "sends nothing"},
		{workflow("n", `{"name":"a","approval":{},"timeout":"1m"}`), "body.steps[0].timeout", "sends nothing"},
		{workflow("n", `{"name":"a","approval":{},"limits":[]}`), "body.steps[0].limits", "sends nothing"},
		{
			with(`"max_duration":"1h"`, workflow("n", `{"name":"a","approval":{"expires_after":"2h"}}`)),
			"body.steps[0].approval.expires_after", "outside 1s to 1h",
		},
		{workflow("n", `{"name":"a","approval":{"notify":[{"format":"slack"}]}}`), "body.steps[0].approval.notify[0].url", "required"},
		{workflow("n", `{"name":"a","approval":{"notify":[{"format":"pagerduty","url":"http://example.com/"}]}}`), "body.steps[0].approval.notify[0].format", "is for failures"},
		{workflow("n", step("a", `,"queue":"none"`)), "body.steps[0].queue", "there is no queue"},
		{workflow("n", step("a", `,"limits":["none"]`)), "body.steps[0].limits[0]", "there is no limit"},
		{
			workflow("n", `{"name":"b","target":{"url":"http://example.com/"}}`,
				`{"name":"a","target":{"url":"http://example.com/","auth":{"type":"bearer","secret":"none"}}}`),
			"body.steps[1].target.auth.secret", "there is no secret",
		},
	} {
		s.do("POST", "/v1/jobs", c.job).wantMessage(c.at, c.says)
	}
	s.do("POST", "/v1/jobs/batch", batch("error", workflow("n", `{"name":"a"}`))).
		blames("body.jobs[0].steps[0].target.url")
	s.do("PUT", "/v1/jobs/n", workflow("n", `{"name":"a"}`)).blames("body.steps[0].target.url")
}

// The guard refuses a step's target as it does a job's.
func TestStepsCallAllowedTargetsOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *Config) { c.Guard = guard.New(nil) })
	job := workflow("n", step("a", ""), `{"name":"b","target":{"url":"http://169.254.169.254/"}}`)
	s.do("POST", "/v1/jobs", job).blames("body.steps[1].target.url")
	s.do("POST", "/v1/jobs", jobOf("n", "")).want(201)
	s.do("PATCH", "/v1/jobs/n", with(`"target":null`, job)).blames("body.steps[1].target.url")
}

// secretStep is a step with a secret of its own.
func secretStep(name, value, more string) string {
	return fmt.Sprintf(`{"name":%q,"target":{"url":"http://example.com/","auth":{"type":"bearer","value":%q}}%s}`,
		name, value, more)
}

// Secrets of steps are sealed and masked, and the mask keeps the secret of the step with the name, wherever it stands.
func TestSecretsOfSteps(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sealed := func() (values string) {
		t.Helper()
		must(t, s.store.Pool().QueryRow(t.Context(), `
			SELECT string_agg(s ->> 'name' || ' ' || (s #>> '{target,auth,value,sealed}'), ', ' ORDER BY s ->> 'name')
			FROM punctual.jobs j
			JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
			CROSS JOIN json_array_elements(v.definition -> 'steps') s
			WHERE s #>> '{target,auth,value,sealed}' IS NOT NULL`).Scan(&values))
		return values
	}
	s.do("POST", "/v1/jobs", workflow("n", secretStep("a", "***", ""))).blames("body.steps[0].target.auth.value")
	s.do("PUT", "/v1/jobs/n", workflow("n", secretStep("a", "***", ""))).blames("body.steps[0].target.auth.value")
	s.do("POST", "/v1/jobs", workflow("n", secretStep("a", "planted-a", ""), secretStep("b", "planted-b", ""))).want(201).
		hides("planted", "sealed").shows(`"value":"***"`)
	was := sealed()
	reordered := workflow("n", step("c", ""), secretStep("b", "***", `,"depends_on":["a"]`), secretStep("a", "***", ""))
	s.do("PUT", "/v1/jobs/n", reordered).want(200).hides("planted", "sealed").shows(`"version":2`)
	if is := sealed(); is != was || strings.Count(is, ",") != 1 {
		t.Errorf("after a PUT in another order: %s, was %s", is, was)
	}
	s.do("PATCH", "/v1/jobs/n", workflow("n", secretStep("b", "***", ""), secretStep("a", "***", ""))).want(200)
	if is := sealed(); is != was {
		t.Errorf("after a PATCH in another order: %s, was %s", is, was)
	}
	s.do("PATCH", "/v1/jobs/n", `{"description":"d"}`).want(200).hides("planted", "sealed")
	if is := sealed(); is != was {
		t.Errorf("after a PATCH of another field: %s, was %s", is, was)
	}
	s.do("PUT", "/v1/jobs/n", workflow("n", secretStep("renamed", "***", ""))).blames("body.steps[0].target.auth.value")
	s.do("PATCH", "/v1/jobs/n", workflow("n", secretStep("a", "planted-a", ""), secretStep("b", "planted-c", ""))).want(200)
	if is := sealed(); is == was || strings.Split(is, ",")[0] != strings.Split(was, ",")[0] {
		t.Errorf("with a new value for b: %s, was %s", is, was)
	}
	for _, path := range []string{"", "/versions", "/versions/1?against=5", "/changes"} {
		s.do("GET", "/v1/jobs/n"+path, "").want(200).hides("planted", "sealed")
	}
	s.do("POST", "/v1/jobs/n/versions/1/restore", "").want(200).hides("planted", "sealed")
	if is := sealed(); strings.Split(is, ",")[0] != strings.Split(was, ",")[0] {
		t.Errorf("after a restore: %s, was %s", is, was)
	}
}

// A job may change from a target to steps and back. A body keeps its bytes, and null is a value in it.
func TestAPatchReplacesSteps(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(jobOf("n", ""))
	const body = `{"b":1.50,"a":null,"c":[null,{"d":null}]}`
	steps := `"steps":[{"name":"a","target":{"url":"http://example.com/","body":` + body + `}},{"name":"b","target":{"url":"http://example.com/"},"timeout":null}]`
	s.do("PATCH", "/v1/jobs/n", `{`+steps+`}`).blames("body.target")
	s.do("PATCH", "/v1/jobs/n", `{"target":null,`+steps+`}`).want(200).shows(body, `"max_duration":"168h"`).hides(`"target":null`)
	s.do("PATCH", "/v1/jobs/n", `{"max_duration":"1h"}`).want(200).shows(body, `"max_duration":"1h"`)
	s.do("PATCH", "/v1/jobs/n", `{"steps":[`+step("c", "")+`]}`).want(200).hides(body)
	s.do("PATCH", "/v1/jobs/n", `{"steps":null,"max_duration":null}`).blames("body.target.url")
	s.do("PATCH", "/v1/jobs/n", `{"steps":null,"target":{"url":"http://example.com/"},"max_duration":null}`).want(200).
		hides(`"steps"`)
	// The response of a GET can be sent back.
	s.create(workflow("w", step("a", ""), step("b", `,"depends_on":["a"]`)))
	got := s.do("GET", "/v1/jobs/w", "").want(200)
	s.do("PUT", "/v1/jobs/w", string(got.body)).want(200).shows(`"version":1`)
}

// A submitter creates one-shots with steps, and triggers them.
func TestSubmittersAndWorkflows(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	submitter := s.as("default", auth.RoleSubmitter)
	submitter.do("POST", "/v1/jobs", workflow("n", step("a", ""))).code(problem.CodeForbidden)
	submitter.do("POST", "/v1/jobs", with(`"schedule":{"delay":"1h"}`, workflow("n", step("a", "")))).want(201)
	submitter.do("POST", "/v1/jobs/n/trigger", `{"body":{"day":1}}`).want(202)
	submitter.do("POST", "/v1/jobs/n/trigger", `{"headers":{"x-y":"z"}}`).blames("body.headers")
	submitter.do("POST", "/v1/jobs/n/trigger", `{"headers":{"x-y":"z"},"delay":"1h"}`).blames("body.headers")
}

// stages is how the steps of a run stand: "a succeeded, b waiting for a".
func stages(run runs.Run) string {
	var list []string
	for _, st := range run.Steps {
		text := st.Name + " " + st.Status
		if len(st.WaitsFor) > 0 {
			text += " for " + strings.Join(st.WaitsFor, " and ")
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// A workflow's run shows its steps while it goes on and when it has ended. Their runs are runs of their own, which
// lists of runs leave out unless they are asked for.
func TestRunsOfWorkflows(t *testing.T) {
	t.Parallel()
	s := serve(t)
	let := make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Punctual-Step") == "load" {
			<-let
			w.WriteHeader(http.StatusGone)
		}
	}))
	defer target.Close()
	at := func(name, more string) string {
		return fmt.Sprintf(`{"name":%q,"target":{"url":%q}%s}`, name, target.URL, more)
	}
	s.create(with(`"retry":{"max_attempts":3}`, workflow("n", at("report", `,"depends_on":["load"]`),
		at("extract", ""), at("load", `,"depends_on":["extract"],"retry":{"max_attempts":2}`),
		at("tidy", `,"depends_on":["report","extract"],"when":"ended"`))))
	run := into[runs.Run](s.do("POST", "/v1/jobs/n/trigger", "").want(202))
	if got := stages(get[runs.Run](s, runPath(run.ID))); got !=
		"report waiting for load, extract waiting, load waiting for extract, tidy waiting for report and extract" {
		t.Errorf("before its claim: %s", got)
	}
	s.dispatch(guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), make(chan domain.Outcome, 100))
	var shown runs.Run
	until(t, "load to run", func() bool {
		shown = get[runs.Run](s, runPath(run.ID))
		return strings.Contains(stages(shown), "load running")
	})
	if got := stages(shown); got !=
		"report waiting for load, extract succeeded, load running, tidy waiting for report" {
		t.Errorf("while it goes on: %s", got)
	}
	if w := shown.WaitingFor; shown.Status != domain.StatusRunning || shown.MaxAttempts != 1 || shown.Request != nil ||
		w == nil ||
		w.What != "steps: report waits for load, load running, tidy waits for report" || w.Until == nil {
		t.Errorf("while it goes on: %+v, waiting for %+v", shown, w)
	}
	load := get[runs.Run](s, runPath(*shown.Steps[2].Run))
	if load.Step != "load" || *load.Workflow != run.ID || load.Trigger != domain.TriggerStep || load.MaxAttempts != 2 ||
		load.Request == nil || load.Request.Headers["Punctual-Step"] != "load" || load.WaitingFor != nil ||
		!load.ScheduledFor.Equal(run.ScheduledFor) {
		t.Errorf("the step's run: %+v", load)
	}
	if extract := get[runs.Run](s, runPath(*shown.Steps[1].Run)); extract.MaxAttempts != 3 {
		t.Errorf("a step without retry may have %d attempts", extract.MaxAttempts)
	}
	s.do("POST", runPath(load.ID)+"/rerun", "").code(problem.CodeState, "rerun the run of its workflow, "+run.ID.String())
	close(let)
	until(t, "the workflow to end", func() bool {
		shown = get[runs.Run](s, runPath(run.ID))
		return shown.Status.Final()
	})
	if got := stages(shown); got != "report skipped, extract succeeded, load dead, tidy succeeded" {
		t.Errorf("in the end: %s", got)
	}
	if shown.Status != domain.StatusDead || *shown.Reason != domain.ReasonGone || shown.WaitingFor != nil ||
		!strings.Contains(*shown.Error, "step load is dead (gone)") || *shown.Steps[0].Reason != domain.ReasonUpstreamFailed ||
		!strings.Contains(*shown.Steps[0].Error, "step load is dead") {
		t.Errorf("in the end: %+v, steps %+v", shown, shown.Steps)
	}
	tidy := get[runs.Run](s, runPath(*shown.Steps[3].Run)) // it is told of a step that was skipped with its own start
	if body := string(tidy.Request.Body); !strings.Contains(body, `"report":{"status":"skipped","reason":"upstream_failed"`) {
		t.Errorf("tidy is sent %s", body)
	}
	slot := run.ScheduledFor.UTC().Truncate(time.Second).Format(time.RFC3339)
	s.create(with(`"schedule":{"at":"`+slot+`"}`, workflow("once", at("load", ""))))
	until(t, "the slot to be explained", func() bool {
		e := get[history.Explanation](s, "/v1/jobs/once/explain?at="+slot)
		return e.Outcome == history.OutcomeDead && strings.Contains(e.Text, "gone (step load is dead (gone): ") &&
			len(e.Run.Steps) == 1
	})
	s.do("DELETE", "/v1/jobs/once", "").want(204)
	names := func(query string) (list []string) {
		for _, r := range get[List[runs.Run]](s, query).Data {
			list = append(list, strings.TrimSpace(string(r.Trigger)+" "+r.Step))
		}
		return list
	}
	for _, query := range []string{"/v1/runs?job=n", "/v1/jobs/n/runs", "/v1/runs?job=n&status=dead", "/v1/runs?job=n&view=summary"} {
		if diff := cmp.Diff([]string{"manual"}, names(query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	to := "&to=" + run.ScheduledFor.UTC().AddDate(0, 0, 1).Format("2006-01-02T15:04:05Z")
	for query, want := range map[string]int{
		"/v1/runs?trigger=step": 5, "/v1/jobs/n/runs?trigger=step": 4, "/v1/runs?trigger=step&status=skipped": 1,
		"/v1/runs?workflow_run=" + run.ID.String():                               4,
		"/v1/runs?view=summary&status=dead&workflow_run=" + run.ID.String() + to: 1,
		"/v1/jobs/n/runs?workflow_run=" + run.ID.String() + to:                   4,
		"/v1/runs?status=running&workflow_run=" + run.ID.String():                0,
		"/v1/runs?trigger=manual&workflow_run=" + run.ID.String():                0,
		"/v1/runs?workflow_run=" + domain.NewRunID(run.ScheduledFor).String():    0,
		"/v1/runs?caused_by=" + load.ID.String():                                 0,
		"/v1/runs?trigger=step&caused_by=" + load.ID.String():                    1,
	} {
		if got := names(query); len(got) != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	s.do("GET", "/v1/runs?workflow_run=x", "").blames("query.workflow_run")
	var text string
	must(t, s.store.Pool().QueryRow(t.Context(), `
		SELECT string_agg(coalesce(step, '-') || ' ' || (workflow_run IS NOT NULL), ', ' ORDER BY step)
		FROM punctual.run_history WHERE job = 'n'`).Scan(&text))
	if text != "extract true, load true, report true, tidy true, - false" {
		t.Errorf("run_history: %s", text)
	}
	must(t, s.store.Pool().QueryRow(t.Context(), `
		SELECT last_run_id || ' ' || steps || ' ' || waiting_runs FROM punctual.job_status`).Scan(&text))
	if text != run.ID.String()+" 4 0" {
		t.Errorf("job_status: %s, want run %s", text, run.ID)
	}
	again := into[runs.Run](s.do("POST", runPath(run.ID)+"/rerun", "").want(202))
	s.do("POST", runPath(run.ID)+"/rerun", `{"same_key":true}`).blames("body.same_key")
	until(t, "the rerun to end", func() bool { return get[runs.Run](s, runPath(again.ID)).Status.Final() })
	if got := names("/v1/runs?workflow_run=" + again.ID.String()); len(got) != 4 {
		t.Errorf("the rerun's steps: %v", got)
	}
}
