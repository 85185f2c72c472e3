package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
)

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, path := range []string{
		"/v1", "/v1/", "/v1/jobs/", "/v2/jobs", "/nothing", "/v1/jobs/a/b/c", "/v1/jobs/n/pause/",
	} {
		s.do("GET", path, "").code(problem.CodeNoRoute)
	}
	for request, allow := range map[string]string{
		"DELETE /v1/jobs":           "GET, HEAD, POST",
		"POST /v1/jobs/n":           "GET, HEAD, PUT, PATCH, DELETE",
		"GET /v1/jobs/n/trigger":    "POST",
		"PATCH /v1/runs":            "GET, HEAD",
		"POST /healthz":             "GET, HEAD",
		"PUT /docs":                 "GET, HEAD",
		"OPTIONS /v1/jobs":          "GET, HEAD, POST",
		"GET /v1/schedules/preview": "POST",
	} {
		method, path, _ := strings.Cut(request, " ")
		r := s.do(method, path, "")
		r.code(problem.CodeWrongMethod)
		if got := r.header.Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q, want %q", request, got, allow)
		}
	}
}

func TestEveryAnswerIsSafeForBrowsers(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, path := range []string{"/", "/docs", "/docs.css", "/openapi.json", "/healthz", "/v1/jobs", "/nothing"} {
		h := s.do("GET", path, "").header
		if h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") ||
			h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
	s.create(minimal("n"))
	s.do("POST", "/v1/jobs/n/trigger", "", "Origin: https://evil.example").code(problem.CodeCrossOrigin)
	s.do("DELETE", "/v1/jobs/n", "", "Sec-Fetch-Site: cross-site").code(problem.CodeCrossOrigin)
	s.do("POST", "/v1/jobs/n/trigger", "", "Sec-Fetch-Site: same-origin").want(202)
}

func TestRequestsHaveAnID(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if got := s.do("GET", "/healthz", "", "X-Request-Id: abc-1").header.Get("X-Request-Id"); got != "abc-1" {
		t.Errorf("id %q", got)
	}
	for _, id := range []string{"", "a b", strings.Repeat("x", 65), "ä"} {
		got := s.do("GET", "/healthz", "", "X-Request-Id: "+id).header.Get("X-Request-Id")
		if got == id || !requestIDForm.MatchString(got) {
			t.Errorf("id %q for %q", got, id)
		}
	}
}

func TestPanicsAndUnexpectedErrorsShowNothing(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logs, nil))
	s := &server{Config: Config{Log: log}, api: &api.API{Log: log}}
	observe, err := newObserver(s.Log, nil)
	must(t, err)
	mux := chi.NewMux()
	mux.Use(api.Identify, observe.middleware, s.recoverer)
	mux.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("secret") })
	mux.Get("/error",
		func(w http.ResponseWriter, r *http.Request) {
			s.api.Problem(r.Context(), errors.New("secret"), "").Write(w)
		})
	mux.Get("/gone", func(w http.ResponseWriter, r *http.Request) {
		err := fmt.Errorf("reading: %w", &pgconn.PgError{Code: "57P01", Message: "secret"})
		s.api.Problem(r.Context(), err, "").Write(w)
	})
	for path, status := range map[string]int{"/panic": 500, "/error": 500, "/gone": 503} {
		logs.Reset()
		r := record(t, mux, "GET", path, "").want(status).hides("secret")
		id := r.header.Get("X-Request-Id")
		if status == 500 {
			r.shows(id)
		}
		if !strings.Contains(logs.String(), "secret") || !strings.Contains(logs.String(), id) {
			t.Errorf("%s: logged %s", path, logs.String())
		}
	}
}

// An error that a user reports can be found in the log by its id.
func TestProblemsCarryTheIDOfTheirRequest(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	s := guarded(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	admin := s.as("default", auth.RoleAdmin)
	for name, c := range map[string]struct {
		caller       *service
		method, path string
		body         string
		code         problem.Code
	}{
		"a field at fault":     {admin, "POST", "/v1/jobs", `{"name":"a b"}`, problem.CodeInvalid},
		"a parameter at fault": {admin, "POST", "/v1/jobs/batch?x=1", `{}`, problem.CodeInvalid},
		"no JSON":              {admin, "POST", "/v1/jobs", `{`, problem.CodeMalformed},
		"no such job":          {admin, "POST", "/v1/jobs/nobody/pause", ``, problem.CodeNotFound},
		"no such path":         {admin, "POST", "/v1/nothing", ``, problem.CodeNoRoute},
		"no such method":       {admin, "POST", "/v1/runs", ``, problem.CodeWrongMethod},
		"no key":               {s, "POST", "/v1/jobs", `{}`, problem.CodeUnauthenticated},
		"too low a role":       {admin, "POST", "/v1/tenants", `{}`, problem.CodeForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			own := "report-" + strings.ReplaceAll(name, " ", ".")
			for sent, accepted := range map[string]bool{
				own: true, "": false, strings.Repeat("x", 65): false, "a b": false, `"quoted"`: false,
			} {
				r := c.caller.in(t).do(c.method, c.path, c.body, problem.HeaderRequestID+": "+sent)
				p := r.code(c.code)
				id := r.header.Get(problem.HeaderRequestID)
				if p.RequestID != id || !requestIDForm.MatchString(id) || (id == sent) != accepted {
					t.Errorf("sent %q, the header has %q, the problem %q", sent, id, p.RequestID)
				}
				if !strings.Contains(log.String(), "request_id="+id) {
					t.Errorf("the log does not have %s:\n%s", id, log.String())
				}
			}
		})
	}
	if first, second := s.do("GET", "/v1/jobs", "").problem(),
		s.do("GET", "/v1/jobs", "").problem(); first.RequestID == second.RequestID || auth.ErrUnauthenticated.RequestID != "" {
		t.Errorf("two requests have the ids %q and %q", first.RequestID, second.RequestID)
	}
	if r := admin.do("GET", "/v1/jobs", "").want(http.StatusOK); r.header.Get(problem.HeaderRequestID) == "" {
		t.Error("a response of success has no id")
	}
}

// Somebody holds the lock of a row for long. Callers get an error soon, and nothing of theirs is written.
func TestACallerIsToldThatARowIsLocked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.do("PUT", "/v1/jobs/report",
		`{"schedule": {"every": "1h"}, "target": {"url": "https://api.example.com/"}}`).want(http.StatusCreated)
	tx, err := s.store.Pool().Begin(t.Context())
	must(t, err)
	if _, err := tx.Exec(t.Context(), `SELECT FROM punctual.schedules FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	answer := s.do("PATCH", "/v1/jobs/report", `{"description": "another"}`,
		"Content-Type: application/merge-patch+json").want(http.StatusServiceUnavailable)
	p := answer.problem()
	if p.Code != problem.CodeLocked ||
		!strings.Contains(p.Detail,
			"waited 3s for the job's schedule that another transaction has locked. Nothing was written") {
		t.Errorf("%s: %s", p.Code, p.Detail)
	}
	if after := answer.header.Get("Retry-After"); after != "1" {
		t.Errorf("Retry-After %q", after)
	}
	must(t, tx.Rollback(t.Context()))
	s.do("PATCH", "/v1/jobs/report", `{"description": "another"}`,
		"Content-Type: application/merge-patch+json").want(http.StatusOK)
}
