package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/store/letters"
)

func TestCreateAnswersTheWholeJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.do("POST", "/v1/jobs", `{"name":"n","description":"d","labels":{"team":"a"},`+
		`"schedule":{"cron":"30 2 * * *","timezone":"America/New_York"},"jitter":"0s",
		"expires_after":"90m","target":{"url":"http://example.com/","headers":{"X-A":"b"},"body":{"z":1,"a":"<&>"}},`+
		`"timeout":"1h30m","paused":null}`).want(201)
	job := r.fields()
	if got, want := r.header.Get("Location"), "/v1/jobs/"+job["id"].(string); got != want {
		t.Errorf("Location %q, want %q", got, want)
	}
	if got := r.header.Get("ETag"); !strings.HasPrefix(got, `"1.`) {
		t.Errorf("ETag %q", got)
	}
	for field, want := range map[string]any{
		"tenant": "default", "version": 1., "state": "active", "paused": false, "timeout": "1h30m", "expires_after": "90m",
		"jitter": "0s", "concurrency_policy": "allow", "queue": "default", "priority": "normal", "last_run": nil,
		"labels": map[string]any{"team": "a"}, "target": map[string]any{
			"url": "http://example.com/", "method": "POST", "headers": map[string]any{"X-A": "b"},
			"body": map[string]any{"z": 1., "a": "<&>"},
		},
	} {
		if diff := cmp.Diff(want, job[field]); diff != "" {
			t.Errorf("%s: %s", field, diff)
		}
	}
	r.shows(`"body":{"z":1,"a":"<&>"}`) // it keeps its bytes
	if next := job["next_scheduled_for"]; next == nil || next != job["next_run_at"] {
		t.Errorf("next slot %v, due %v", next, job["next_run_at"])
	}
	if local := job["next_local"].(string); !strings.Contains(local, "T02:30:00-0") &&
		!strings.Contains(local, "T03:30:00-0") {
		t.Errorf("next_local %s", local)
	}
	for _, ref := range []string{
		"n", job["id"].(string), strings.ToUpper(job["id"].(string)), strings.ReplaceAll(job["id"].(string), "-", ""),
	} {
		got := s.do("GET", "/v1/jobs/"+ref, "").want(200)
		if diff := cmp.Diff(job, got.fields()); diff != "" {
			t.Errorf("GET %s: %s", ref, diff)
		}
	}
	s.do("HEAD", "/v1/jobs/n", "").want(200)
}

func TestTheEffectiveJitterIsShown(t *testing.T) {
	t.Parallel()
	s := serve(t) // its default jitter is 10 s
	for i, c := range []struct{ schedule, jitter, want string }{
		{`"cron":"0 3 * * *"`, ``, "10s"},
		{`"cron":"*/30 * * * * *"`, ``, "0s"},
		{`"cron":"0 3 * * *"`, `"0s"`, "0s"},
		{`"cron":"0 3 * * *"`, `"120s"`, "120s"},
		{`"every":"1h"`, ``, "0s"},
		{`"every":"1h"`, `"5m"`, "5m"},
		{`"delay":"1h"`, ``, "0s"},
		{``, ``, "0s"},
	} {
		job := fmt.Sprintf(`{"name":"j%d","schedule":{%s},"target":{"url":"http://example.com/"}`, i, c.schedule)
		if c.jitter != "" {
			job += `,"jitter":` + c.jitter
		}
		if got := s.create(job + "}")["jitter"]; got != c.want {
			t.Errorf("%s}: jitter %v, want %s", job, got, c.want)
		}
	}
}

func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const id = "019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"
	for _, request := range []string{
		"GET /v1/jobs/none", "GET /v1/jobs/" + id, "DELETE /v1/jobs/none", "PATCH /v1/jobs/none {}",
		"PUT /v1/jobs/" + id + " " + minimal("n"), "POST /v1/jobs/none/pause", "POST /v1/jobs/none/resume",
		"POST /v1/jobs/none/trigger", "GET /v1/jobs/none/upcoming", "GET /v1/jobs/none/runs", "GET /v1/jobs/" + id + "/runs",
		"GET /v1/runs/" + id, "GET /v1/runs/none", "GET /v1/jobs/%00", "GET /v1/jobs/%ff", "GET /v1/jobs/a%2Fb",
		"GET /v1/runs/%00", "DELETE /v1/jobs/%00", "POST /v1/jobs/%C3%A4/trigger", "GET /v1/jobs/batch",
		"PATCH /v1/jobs/%00 {}",
		"GET /v1/runs?job=none",
	} {
		part := strings.SplitN(request, " ", 3)
		t.Run(request, func(t *testing.T) {
			s := s.in(t)
			p := s.do(part[0], part[1], strings.Join(part[2:], "")).code(problem.CodeNotFound)
			what := "job"
			if strings.HasPrefix(part[1], "/v1/runs/") {
				what = "run"
			}
			if !strings.Contains(part[1], "?") && !strings.Contains(p.Detail, what) {
				t.Errorf("detail %q", p.Detail)
			}
		})
	}
}

func TestNameIsTakenByOneJobOnly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("one"))
	s.create(minimal("two"))
	s.do("POST", "/v1/jobs", minimal("one")).blamesAs(problem.CodeNameTaken, "body.name")
	s.do("PATCH", "/v1/jobs/two", `{"name":"one"}`).blamesAs(problem.CodeNameTaken, "body.name")
	s.do("PATCH", "/v1/jobs/two", `{"name":"three"}`).want(200)
	s.do("GET", "/v1/jobs/two", "").want(404)
	s.do("GET", "/v1/jobs/three", "").want(200)
}

func TestUnknownQueueNamesThoseThereAre(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.do("POST", "/v1/jobs", with(`"queue":"slow"`, minimal("n"))).code(problem.CodeInvalid)
	if diff := cmp.Diff([]problem.FieldError{problem.At("body.queue", `there is no queue "slow"; there are: default`)},
		p.Errors); diff != "" {
		t.Error(diff)
	}
}

func TestPutCreatesThenReplaces(t *testing.T) {
	t.Parallel()
	s := serve(t)
	body := minimal("n")
	created := s.do("PUT", "/v1/jobs/n", body).want(201)
	id := created.fields()["id"].(string)
	if got := created.header.Get("Location"); got != "/v1/jobs/"+id {
		t.Errorf("Location %q", got)
	}
	same := s.do("PUT", "/v1/jobs/n", body).want(200)
	if got := same.header.Get("ETag"); got != created.header.Get("ETag") || !strings.HasPrefix(got, `"1.`) {
		t.Errorf("without a change the ETag is %s", got)
	}
	changed := s.do("PUT", "/v1/jobs/n", `{"schedule":{"every":"90s"},"target":{"url":"http://example.com/"}}`).want(200)
	if got := changed.header.Get("ETag"); !strings.HasPrefix(got, `"2.`) || changed.header.Get("Location") != "" {
		t.Errorf("after a change the ETag is %s, Location %q", got, changed.header.Get("Location"))
	}
	byID := s.do("PUT", "/v1/jobs/"+id,
		`{"schedule":{"every":"60s"},"target":{"url":"http://example.com/"}}`).want(200).fields()
	if byID["name"] != "n" || byID["version"] != 3. {
		t.Errorf("by id: %v", byID)
	}
	renamed := s.do("PUT", "/v1/jobs/"+id, minimal("m")).want(200).fields()
	if renamed["name"] != "m" {
		t.Errorf("by id with another name: %v", renamed)
	}
}

func TestPutNeedsOneName(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, path := range []string{"/v1/jobs/other", "/v1/jobs/a%20b", "/v1/jobs/batch"} {
		s.do("PUT", path, minimal("n")).blames("body.name")
	}
	for _, path := range []string{"/v1/jobs/batch", "/v1/jobs/a%20b", "/v1/jobs/%00"} {
		s.do("PUT", path, `{"target":{"url":"http://example.com"}}`).blames("path.job")
	}
}

func TestPutWithoutPausedNeverResumes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(with(`"paused":true`, minimal("n")))
	for _, step := range []struct {
		body   string
		paused bool
	}{
		{`{"schedule":{"every":"90s"},"target":{"url":"http://example.com/"}}`, true},
		{`{"schedule":{"every":"90s"},"target":{"url":"http://example.com/"},"paused":null}`, true},
		{`{"schedule":{"every":"90s"},"target":{"url":"http://example.com/"},"paused":false}`, false},
	} {
		if job := s.do("PUT", "/v1/jobs/n", step.body).want(200).fields(); job["paused"] != step.paused {
			t.Errorf("%s: paused %v", step.body, job["paused"])
		}
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.create(minimal("n"))["id"].(string)
	s.do("PATCH", "/v1/jobs/n", `{"timeout":"1m"}`, `If-Match: "1"`).want(200)
	for _, c := range []struct {
		name, method, path, body, header string
		status                           int
	}{
		{"a patch of an older version is refused", "PATCH", "/v1/jobs/n", `{"timeout":"2m"}`, `If-Match: "1"`, 412},
		{"a put of an older version is refused", "PUT", "/v1/jobs/n", minimal("n"), `If-Match: "1"`, 412},
		{"a put by id of an older version is refused", "PUT", "/v1/jobs/" + id, minimal("n"), `If-Match: "1"`, 412},
		{"a delete of an older version is refused", "DELETE", "/v1/jobs/n", "", `If-Match: "1"`, 412},
		{"a weak tag never matches", "DELETE", "/v1/jobs/n", "", `If-Match: W/"2"`, 412},
		{"a tag that is no job's never matches", "DELETE", "/v1/jobs/n", "", `If-Match: "x"`, 412},
		{"a tag without quotes never matches", "DELETE", "/v1/jobs/n", "", `If-Match: 2`, 412},
		{"several tags are not read", "DELETE", "/v1/jobs/n", "", `If-Match: "1", "2"`, 422},
		{"a put of a job that should exist", "PUT", "/v1/jobs/none", minimal("none"), `If-Match: *`, 412},
		{"a put of a version that should exist", "PUT", "/v1/jobs/none", minimal("none"), `If-Match: "1"`, 412},
		{"only create, but it exists", "PUT", "/v1/jobs/n", minimal("n"), `If-None-Match: *`, 412},
		{"only create, but it exists by id", "PUT", "/v1/jobs/" + id, minimal("n"), `If-None-Match: *`, 412},
		{"only create takes no tag", "PUT", "/v1/jobs/n", minimal("n"), `If-None-Match: "1"`, 422},
		{"only create, and it does not exist", "PUT", "/v1/jobs/new", minimal("new"), `If-None-Match: *`, 201},
		{"any version will do", "PUT", "/v1/jobs/n", minimal("n"), `If-Match: *`, 200},
		{"the current version is deleted", "DELETE", "/v1/jobs/n", "", `If-Match: "3"`, 204},
	} {
		t.Run(c.name, func(t *testing.T) { s.in(t).do(c.method, c.path, c.body, c.header).want(c.status) })
	}
	s.do("GET", "/v1/jobs/n", "").want(404)
}

// The answer to a resume says what the pause swallowed, and a backfill takes that; nothing else of the job changes.
func TestAResumeSaysWhatItsPauseSwallowed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(fmt.Sprintf(`{"name":"n","schedule":%s,"target":{"url":"http://example.com/hook"}}`, hourly()))
	s.do("POST", "/v1/jobs/n/pause", "").want(200)
	s.exec(`UPDATE punctual.jobs SET paused_at = paused_at - interval '3 hours' WHERE name = 'n'`)
	s.exec(`UPDATE punctual.schedules SET scheduled_for = scheduled_for - interval '3 hours',
		next_run_at = next_run_at - interval '3 hours'`)
	r := s.do("POST", "/v1/jobs/n/resume", "").want(200)
	job := into[Job](r)
	passed := job.SkippedWhilePaused
	if passed == nil || *passed.Count != 3 || !passed.Last.Equal(passed.First.Add(2*time.Hour)) ||
		!passed.Last.Equal(job.NextScheduledFor.Add(-time.Hour)) {
		t.Fatalf("%s", r.body)
	}
	if got := s.do("GET", "/v1/jobs/n", "").want(200); got.header.Get("ETag") != r.header.Get("ETag") ||
		strings.Contains(string(got.body), "skipped_while_paused") {
		t.Errorf("ETag %s, then %s: %s", r.header.Get("ETag"), got.header.Get("ETag"), got.body)
	}
	body, err := body.Render(MakeUp(*passed))
	if err != nil {
		t.Fatal(err)
	}
	if o := into[letters.Operation](s.do("POST", "/v1/jobs/n/backfill", string(body)).want(202)); o.Matched != 3 {
		t.Errorf("the backfill covers %d slots", o.Matched)
	}
}

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

func TestWindowLongerThanTheRetentionNamesItsFieldAndTheLimit(t *testing.T) {
	t.Parallel()
	s := serve(t)
	long := func(name string) string {
		return with(`"missed":{"window":"721h"}`, minimal(name))
	}
	wrong := `"721h" reaches further back than runs are kept: at most 720h0m0s`
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", "/v1/jobs", long("n"), "body.missed.window"},
		{"PUT", "/v1/jobs/n", long("n"), "body.missed.window"},
		{"POST", "/v1/jobs/batch", `{"jobs":[` + minimal("a") + `,` + long("b") + `]}`, "body.jobs[1].missed.window"},
	} {
		p := s.do(c.method, c.path, c.body).code(problem.CodeInvalid)
		if diff := cmp.Diff([]problem.FieldError{problem.At(c.field, wrong)}, p.Errors); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.method, c.path, diff)
		}
	}
}
