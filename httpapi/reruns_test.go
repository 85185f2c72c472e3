package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/runs"
)

// over creates a job and a run of it that has ended.
func (s *service) over(name, more string) string {
	s.t.Helper()
	s.create(jobOf(name, more))
	run := into[runs.Run](s.do("POST", "/v1/jobs/"+name+"/trigger", "").want(202))
	s.do("POST", runPath(run.ID)+"/cancel", "").want(202)
	return runPath(run.ID)
}

func TestRerun(t *testing.T) {
	t.Parallel()
	s := serve(t)
	first := s.over("a", "")
	original := get[runs.Run](s, first)
	got := s.do("POST", first+"/rerun", `{"body":{"n":1},"headers":{"x-y":"z"}}`, "Idempotency-Key: k").want(202)
	run := into[runs.Run](got)
	if run.RerunOf == nil || *run.RerunOf != original.ID || run.Status != domain.StatusPending ||
		run.Trigger != domain.TriggerManual || !run.ScheduledFor.Equal(original.ScheduledFor) ||
		!run.DueAt.After(original.DueAt) {
		t.Errorf("the rerun is %s", got.body)
	}
	if got.header.Get("Location") != runPath(run.ID) {
		t.Errorf("it is at %q", got.header.Get("Location"))
	}
	if again := into[runs.Run](s.do("POST", first+"/rerun", `{"body":{"n":1},"headers":{"x-y":"z"}}`,
		"Idempotency-Key: k").want(202)); again.ID != run.ID {
		t.Error("the same Idempotency-Key made another run")
	}
	shown := get[runs.Run](s, runPath(run.ID))
	if shown.Request == nil || string(shown.Request.Body) != `{"n":1}` || shown.Request.Headers["X-Y"] != "z" ||
		shown.Request.Headers["Webhook-Id"] != run.ID.String() || *shown.RerunOf != original.ID {
		t.Errorf("it sends %+v", shown.Request)
	}
	// A rerun of a rerun sends what that one sent, by the definition of now.
	s.do("POST", runPath(run.ID)+"/cancel", "").want(202)
	s.do("PATCH", "/v1/jobs/a", `{"target":{"url":"http://example.com/other"}}`,
		"Content-Type: application/merge-patch+json").want(200)
	second := into[runs.Run](s.do("POST", runPath(run.ID)+"/rerun", `{"same_key":true}`).want(202))
	shown = get[runs.Run](s, runPath(second.ID))
	if string(shown.Request.Body) != `{"n":1}` || shown.Request.URL != "http://example.com/other" ||
		shown.Request.Headers["Webhook-Id"] != run.ID.String() ||
		shown.Request.Headers["Idempotency-Key"] != run.ID.String() {
		t.Errorf("the second one sends %+v", shown.Request)
	}
	s.do("GET", "/v1/audit-log?job=a", "").want(200).shows(`"rerun_of":"` + original.ID.String())
}

func TestRerunsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	running, _ := s.working("running")
	s.create(jobOf("pending", ""))
	pending := runPath(into[runs.Run](s.do("POST", "/v1/jobs/pending/trigger", "").want(202)).ID)
	ended := s.over("ended", "")
	deleted := s.over("deleted", "")
	s.do("DELETE", "/v1/jobs/deleted", "").want(204)
	forbidding := s.over("forbidding", `,"concurrency_policy":"forbid"`)
	active := into[runs.Run](s.do("POST", "/v1/jobs/forbidding/trigger", "").want(202))
	for _, c := range []struct {
		name, run, body string
		code            problem.Code
		detail          string
	}{
		{"of a run that waits", pending, "", problem.CodeState, "is pending"},
		{"of a run that is sent", running, "", problem.CodeState, "is running"},
		{"of a job that was deleted", deleted, "", problem.CodeState, "was deleted"},
		{"beside an active run", forbidding, "", problem.CodeActiveRun, active.ID.String()},
		{"of no run", runPath(uuid.New()), "", problem.CodeNotFound, ""},
		{"of what cannot be a run", "/v1/runs/x", "", problem.CodeNotFound, ""},
		{"with an unknown field", ended, `{"bodi":1}`, problem.CodeInvalid, ""},
		{"with a header that cannot be sent", ended, `{"headers":{"Host":"x"}}`, problem.CodeInvalid, ""},
		{"with too large a body", ended, `{"body":"` + strings.Repeat("x", jobspec.MaxPayload) + `"}`, problem.CodeInvalid, ""},
		{"with what is not JSON", ended, `{`, problem.CodeMalformed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.in(t).do("POST", c.run+"/rerun", c.body).code(c.code, c.detail)
		})
	}
	s.do("POST", ended+"/rerun", "").want(202) // none of the refused requests prevents it
}

func TestARecordedSkipIsMadeUpFor(t *testing.T) {
	t.Parallel()
	s := serve(t)
	job := s.create(minimal("a"))["id"].(string)
	skip := func(first, last string, count int) string {
		t.Helper()
		id := uuid.Must(uuid.NewV7()).String()
		s.exec(`
			INSERT INTO punctual.runs (id, job_id, tenant, job_version, lane, status, trigger, reason,
				scheduled_for, due_at, finished_at, skipped_first, skipped_last, skipped_count)
			SELECT $1, $2::uuid, tenant, 1, lane, 'skipped', 'schedule', 'overlap',
				$4::timestamptz, $4, now(), $3::timestamptz, $4, $5
			FROM punctual.schedules
			WHERE job_id = $2`, id, job, first, last, count)
		return "/v1/runs/" + id
	}
	s.do("POST", skip("2026-11-01T03:00:00Z", "2026-11-02T03:00:00Z", 2)+"/rerun", "").code(problem.CodeState, "backfill")
	one := skip("2026-11-01T03:00:00Z", "2026-11-01T03:00:00Z", 1)
	if shown := s.do("GET", one, "").want(200).fields(); shown["request"] != nil {
		t.Errorf("a skip has the request %v", shown["request"])
	}
	if run := into[runs.Run](s.do("POST", one+"/rerun", "").
		want(202)); run.ScheduledFor.Format("2006-01-02T15:04") != "2026-11-01T03:00" {
		t.Errorf("made up for at %s", run.ScheduledFor)
	}
}

func TestWhoMayRerun(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	run := s.as("alpha", auth.RoleEditor).over("a", "")
	s.as("alpha", auth.RoleViewer).do("POST", run+"/rerun", "").code(problem.CodeForbidden)
	s.as("alpha", auth.RoleSubmitter).do("POST", run+"/rerun", "").code(problem.CodeForbidden)
	s.as("alpha", auth.RoleEditor).do("POST", run+"/rerun", "").want(202)
	s.tenant("beta")
	s.as("beta", auth.RoleAdmin).do("POST", run+"/rerun", "").code(problem.CodeNotFound)
}

func TestCompletionBringsAResult(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run, token := s.working("a")
	long := strings.Repeat("x", domain.MaxResult-1) // one byte too many with its quotes
	for _, c := range []struct {
		name, body string
		code       problem.Code
		message    string
	}{
		{"too large", `{"result":"` + long + `"}`, problem.CodeInvalid, "65537 bytes; at most 65536"},
		{"far too large", `{"result":"` + long + long + `"}`, problem.CodeTooLarge, ""},
		{"not to be stored", `{"result":"\u0000"}`, problem.CodeInvalid, "u0000"},
		{"of an unknown field", `{"results":1}`, problem.CodeInvalid, "did you mean result?"},
		{"not JSON", `{"result":}`, problem.CodeMalformed, ""},
		{"not an object", `1`, problem.CodeInvalid, "must be an object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.in(t).do("POST", run+"/complete", c.body, token).code(c.code)
			if c.message != "" && (len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, c.message)) {
				t.Errorf("errors %v", p.Errors)
			}
		})
	}
	const result = `{"b":[1, 2.50],"a":"ü"}`
	for _, body := range []string{`{"result":` + result + `}`, `{"result":"another"}`, ""} { // the first result stays
		ended := into[runs.Run](s.do("POST", run+"/complete", body, token).want(200))
		if ended.Status != domain.StatusSucceeded || compact(t, ended.Result) != compact(t, []byte(result)) {
			t.Errorf("completed with %q: %s, result %s", body, ended.Status, ended.Result)
		}
	}
	run, token = s.working("b")
	exact := `"` + long[1:] + `"`
	if ended := into[runs.Run](s.do("POST", run+"/complete", `{"result":`+exact+`}`,
		token).want(200)); string(ended.Result) != exact {
		t.Errorf("of 64 KiB %d bytes are kept", len(ended.Result))
	}
	run, token = s.working("c")
	if ended := s.do("POST", run+"/complete", `{"result":null}`, token).want(200).fields(); ended["result"] != nil ||
		ended["result_note"] != nil {
		t.Errorf("without a result: %v", ended)
	}
}

func TestKeepResponseAndCompletionAreJudged(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for body, at := range map[string]string{
		`"keep_response":65537`:   "body.keep_response",
		`"keep_response":-1`:      "body.keep_response",
		`"keep_response":"1KiB"`:  "body.keep_response",
		`"completion":"callback"`: "body.completion",
	} {
		p := s.do("POST", "/v1/jobs", jobOf("a", ","+body)).blames(at)
		if at == "body.completion" && !strings.Contains(p.Errors[0].Message, `"async"`) {
			t.Errorf("the message does not name async: %s", p.Errors[0].Message)
		}
	}
	for _, c := range []struct{ name, body, policy string }{
		{"plain", `"keep_response":0`, "allow"},
		{"async", `"completion":"async","schedule":{"every":"24h"}`, "forbid"},
		{"async-without-slots", `"completion":"async"`, "allow"},
		{"async-that-overlaps", `"completion":"async","concurrency_policy":"allow"`, "allow"},
	} {
		job := s.create(jobOf(c.name, ","+c.body))
		if job["concurrency_policy"] != c.policy {
			t.Errorf("%s: the policy is %v, want %s", c.name, job["concurrency_policy"], c.policy)
		}
		if keep, given := job["keep_response"]; given != (c.name == "plain") || given && keep != 0.0 {
			t.Errorf("%s: keep_response is %v", c.name, keep)
		}
	}
	// The second trigger is really refused; the policy is not only shown.
	s.do("POST", "/v1/jobs/async/trigger", "").want(202)
	s.do("POST", "/v1/jobs/async/trigger", "").code(problem.CodeActiveRun)
}

func TestASilentTargetIsCalledSilent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	run, _ := s.working("a")
	claim := s.claim()
	for n := range 3 { // the target accepts, then stays silent
		shown := get[runs.Run](s, run)
		job, err := domain.Compile(shown.JobID, 1, 1,
			jobspec.Definition{Name: "a", Completion: jobspec.CompleteAsync, Target: jobspec.Target{URL: "http://x"}}, 0)
		must(t, err)
		a := domain.Assignment{RunID: shown.ID, Job: job, Attempt: n + 1, Lease: &domain.Lease{ID: uuid.New()}}
		if err := s.store.Pool().QueryRow(t.Context(), `SELECT fence FROM punctual.runs WHERE id = $1`,
			shown.ID).Scan(&a.Fence); err != nil {
			t.Fatal(err)
		}
		o := domain.Outcome{
			Assignment: a, Verdict: domain.Await, StartedAt: *shown.StartedAt, FinishedAt: *shown.StartedAt, HTTPStatus: 202,
			RetryIn: -1,
		}
		if _, err := s.store.Claims.Finish(t.Context(), []domain.Outcome{o}, nil); err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{
			`UPDATE punctual.deployment SET back_at = '-infinity'`, `UPDATE punctual.replicas SET renewed_at = now()`,
			`UPDATE punctual.runs SET started_at = started_at - interval '2 minutes' WHERE status = 'running'`,
			`UPDATE punctual.ready SET due_at = now() - interval '1 s'`,
		} {
			s.exec(sql)
		}
		for _, chore := range s.store.Chores() {
			if _, _, err := chore.Batch(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "the next attempt, or the end", func() bool {
			_, err := s.store.Claims.ClaimReady(t.Context(), claim)
			must(t, err)
			return get[runs.Run](s, run).Status != domain.StatusRetrying
		})
	}
	shown := get[runs.Run](s, run)
	if shown.Status != domain.StatusDead || *shown.Reason != domain.ReasonSilent || len(shown.Attempts) != 3 {
		t.Fatalf("the run is %+v", shown)
	}
	for _, a := range shown.Attempts {
		if a.Outcome != domain.AttemptLost || *a.Reason != domain.ReasonSilent {
			t.Errorf("attempt %d is %s, %s", a.Number, a.Outcome, *a.Reason)
		}
	}
	for _, path := range []string{"/v1/runs?reason=silent", "/v1/dead-letters?reason=silent"} {
		s.do("GET", path, "").want(200).shows(strings.TrimPrefix(run, "/v1/runs/"))
	}
}

func compact(t *testing.T, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	must(t, json.Compact(&b, text))
	return b.String()
}
