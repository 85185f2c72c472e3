//prove:other

package prove

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// Secrets in bodies of jobs and steps reach the target, also in reruns and replays.
//
// They stand next to what callers and other steps pass on, in which nothing is a secret.
func TestSecretsInBodiesReachTheTarget(t *testing.T) {
	t.Parallel()
	r := serve(t, pgtest.DSN(t))
	got := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
		if r.URL.Path == "/dead" {
			w.WriteHeader(http.StatusGone)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"result":{"$secret":"token"}}`))
	}))
	t.Cleanup(server.Close)
	wants := func(what, body string) {
		t.Helper()
		if sent := within(t, what, got); sent != body {
			t.Errorf("%s sent %s, want %s", what, sent, body)
		}
	}
	secret := map[string]any{"$secret": "token"}
	put := func(name, path string, more process.JobSpec) {
		t.Helper()
		target := map[string]any{"url": server.URL + path, "body": map[string]any{"key": secret, "run": "{{job}}"}}
		job := process.JobSpec{"name": name, "target": target}
		for field, value := range more {
			job[field] = value
		}
		if more["steps"] != nil {
			delete(job, "target")
		}
		create(t, r.API, job)
	}
	_, err := r.API.Do(t.Context(), "PUT", "/v1/secrets/token", map[string]any{"value": "s3cr3t"}, nil)
	must(t, err)

	put("plain", "/", nil)
	run := trigger(t, r.API, "plain")
	wants("the job's own body", `{"key":"s3cr3t","run":"plain"}`)
	finalRun(t, r.API, run)
	do[any](t, r.API, "POST", "/v1/runs/"+run+"/rerun", map[string]any{})
	wants("a rerun", `{"key":"s3cr3t","run":"plain"}`)
	do[any](t, r.API, "POST", "/v1/jobs/plain/trigger", map[string]any{"body": map[string]any{"key": secret}})
	wants("the body of a trigger", `{"key":{"$secret":"token"}}`)

	put("dead", "/dead", nil)
	run = trigger(t, r.API, "dead")
	wants("a run that dies", `{"key":"s3cr3t","run":"dead"}`)
	finalRun(t, r.API, run)
	do[any](t, r.API, "POST", "/v1/dead-letters/"+run+"/replay", nil)
	wants("its replay", `{"key":"s3cr3t","run":"dead"}`)

	put("after", "/dead", nil)
	put("before", "/", process.JobSpec{"then": []any{map[string]any{"job": "after"}}})
	run = trigger(t, r.API, "before")
	wants("a run of a chain", `{"key":"s3cr3t","run":"before"}`)
	chained := regexp.MustCompile(`^\{"key":"s3cr3t","run":"after","upstream":\{"run":"` + run +
		`".*"result":\{"\$secret":"token"\}\}\}$`)
	var sent bytes.Buffer
	must(t, json.Compact(&sent, []byte(within(t, "the run that it triggers", got))))
	if !chained.Match(sent.Bytes()) {
		t.Errorf("the run that it triggers sent %s, want %s", &sent, chained)
	}
	step := func(name string, after ...string) map[string]any {
		return map[string]any{
			"name": name, "depends_on": after,
			"target": map[string]any{"url": server.URL, "body": map[string]any{"key": secret, "job": "{{job}}"}},
		}
	}
	put("flow", "", process.JobSpec{"steps": []any{step("a"), step("b", "a")}})
	do[any](t, r.API, "POST", "/v1/jobs/flow/trigger", map[string]any{"body": map[string]any{"in": secret}})
	wants("the first step", `{"job":"flow","key":"s3cr3t","input":{"in":{"$secret":"token"}}}`)
	wants("the second step", `{"job":"flow","key":"s3cr3t","input":{"in":{"$secret":"token"}},`+
		`"steps":{"a":{"status":"succeeded","result":{"$secret":"token"}}}}`)
	stop(t, r)
}
