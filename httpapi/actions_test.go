package httpapi

import (
	"strings"
	"testing"

	"punctual/httpapi/problem"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	job := s.do("POST", "/v1/jobs/n/pause", `{"note":"holidays","until":"2199-01-01T00:00:00+01:00"}`).want(200).fields()
	for field, want := range map[string]any{
		"paused": true, "state": "paused", "pause_note": "holidays", "paused_until": "2198-12-31T23:00:00Z",
		"next_run_at": nil, "next_local": nil,
	} {
		if job[field] != want {
			t.Errorf("%s: %v, want %v", field, job[field], want)
		}
	}
	if slots := s.do("GET", "/v1/jobs/n/upcoming", "").want(200).fields()["slots"].([]any); len(slots) != 0 {
		t.Errorf("a paused job has upcoming slots: %v", slots)
	}
	job = s.do("POST", "/v1/jobs/n/resume", "").want(200).fields()
	if _, ok := job["pause_note"]; ok || job["paused"] != false || job["next_run_at"] == nil {
		t.Errorf("resumed: %v", job)
	}
	s.do("POST", "/v1/jobs/n/pause", "").want(200)
	for body, at := range map[string]string{
		`{"until":"2020-01-01T00:00:00Z"}`: "body.until", `{"until":"tomorrow"}`: "body.until", `{"until":5}`: "body.until",
		`{"note":5}`: "body.note", `{"note":"` + strings.Repeat("x", 1025) + `"}`: "body.note",
		`{"note":"\u0000"}`: "body.note", `{"why":"x"}`: "body.why",
	} {
		s.do("POST", "/v1/jobs/n/pause", body).blames(at)
	}
}

func TestTrigger(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(with(`"concurrency_policy":"forbid"`, minimal("n")))
	r := s.do("POST", "/v1/jobs/n/trigger", `{"body":"text","headers":{"X-A":"b"}}`).want(202)
	run := r.fields()
	if got := r.header.Get("Location"); got != "/v1/runs/"+run["id"].(string) {
		t.Errorf("Location %q", got)
	}
	if run["status"] != "pending" || run["trigger"] != "manual" || run["job"] != "n" || run["max_attempts"] != 5. {
		t.Errorf("%s", r.body)
	}
	p := s.do("POST", "/v1/jobs/n/trigger", "").code(problem.CodeActiveRun)
	if p.ActiveRun == nil || p.ActiveRun.String() != run["id"] {
		t.Errorf("the active run is %v, want %v", p.ActiveRun, run["id"])
	}
	s.do("POST", "/v1/jobs/n/trigger", `{"headers":{"Host":"x","X-B":1},"body":"`+strings.Repeat("x", 256<<10)+`"}`).
		blames("body.headers.X-B", "body.headers.Host", "body.body")
	one := s.do("GET", "/v1/runs/"+run["id"].(string), "").want(200).fields()
	if attempts, ok := one["attempts"].([]any); !ok || len(attempts) != 0 {
		t.Errorf("attempts: %v", one["attempts"])
	}
	last := s.do("GET", "/v1/jobs/n", "").want(200).fields()["last_run"].(map[string]any)
	if last["id"] != run["id"] {
		t.Errorf("last run: %v", last)
	}
}
