package httpapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/internal/pgtest"
	"punctual/store"
)

func TestHealthAndReadiness(t *testing.T) {
	t.Parallel()
	var draining error
	s := serve(t, func(c *Config) { c.Ready = func(context.Context) error { return draining } })
	s.do("GET", "/healthz", "").want(200)
	s.do("GET", "/readyz", "").want(200)
	draining = errors.New("draining")
	if p := s.do("GET", "/readyz", "").code(problem.CodeNotReady); p.Detail != "Draining." {
		t.Errorf("detail %q", p.Detail)
	}
	draining = nil
	s.store.Close()
	p := s.do("GET", "/readyz", "").code(problem.CodeNotReady)
	if p.Detail != "The database cannot be reached." {
		t.Errorf("detail %q", p.Detail)
	}
	s.do("GET", "/healthz", "").want(200)
	if r := s.do("GET", "/v1/jobs", "").hides("pool"); r.status < 500 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestNotReadyWithoutASchema(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), store.Options{DatabaseURL: pgtest.EmptyDSN(t)})
	must(t, err)
	defer st.Close()
	handler, err := NewHandler(Config{Store: st, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	record(t, handler, "GET", "/readyz", "").want(503).shows("punctual migrate")
}

func TestAChangeOfReadinessIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var reason error
	s := serve(t, func(c *Config) {
		c.Ready = func(context.Context) error { return reason }
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, reason = range []error{
		errors.New("draining"), errors.New("draining"), errors.New("other"), nil, nil, errors.New("draining"),
	} {
		s.do("GET", "/readyz", "")
	}
	var messages []string
	for line := range strings.Lines(log.String()) {
		if _, message, ok := strings.Cut(line, "msg="); ok && strings.Contains(message, "ready") {
			messages = append(messages, strings.TrimSpace(message))
		}
	}
	want := []string{
		`"not ready" error=draining`, `"not ready" error=other`, `"ready again"`, `"not ready" error=draining`,
	}
	if !slices.Equal(messages, want) {
		t.Errorf("logged %q, want %q", messages, want)
	}
}

func TestRootLeadsPeopleToTheDocs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if r := s.do("GET", "/", "", "Accept: text/html,*/*"); r.status != 303 || r.header.Get("Location") != "/docs" {
		t.Errorf("%d %v", r.status, r.header)
	}
	if root := s.do("GET", "/", "").want(200).fields(); root["version"] != "test" {
		t.Errorf("%v", root)
	}
}

func TestMetricsTellRoutesNotPaths(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.do("GET", "/v1/jobs/some-name", "")
	s.do("GET", "/secret-path", "")
	s.do("BREW", "/v1/jobs", "")
	s.do("GET", "/metrics", "").want(200).
		shows(`_count{method="GET",route="/v1/jobs/{job}",status="4xx"} 1`,
			`_count{method="GET",route="none",status="4xx"} 1`, `method="other"`).
		hides("some-name", "secret-path")
}

func TestTheRoleMetricsReadsMetricsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	metrics := s.as("default", auth.RoleMetrics)
	metrics.do("GET", "/metrics", "").want(200)
	metrics.do("GET", "/metrics", "").want(200).shows(`route="/metrics"`)
	for _, path := range []string{"/v1/jobs", "/v1/queues", "/v1/tenant", "/v1/replicas", "/v1/runs"} {
		metrics.do("GET", path, "").code(problem.CodeForbidden)
	}
	s.tenant("alpha")
	metrics.acting("alpha").do("GET", "/metrics", "").code(problem.CodeForbidden)
	// The metrics name all tenants. So the admin of one tenant may neither read them, nor create or revoke a key that
	// does.
	admin, operator := s.as("alpha", auth.RoleAdmin), s.as("default", auth.RoleOperator)
	for _, role := range []auth.Role{auth.RoleViewer, auth.RoleSubmitter, auth.RoleEditor, auth.RoleAdmin} {
		s.as("alpha", role).do("GET", "/metrics", "").code(problem.CodeForbidden, "metrics or operator")
	}
	const key = `{"name":"prometheus","role":"metrics"}`
	admin.do("POST", "/v1/api-keys", key).code(problem.CodeForbidden)
	made := into[NewKey](operator.acting("alpha").do("POST", "/v1/api-keys", key).want(201))
	s.with(made.Secret).do("GET", "/metrics", "").want(200)
	operator.acting("alpha").do("DELETE", "/v1/api-keys/"+made.ID.String(), "").want(204)
}

func TestTheAddressOfTheMetricsServesThemAndNothingElse(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "punctual_something", Help: "Something."}))
	handler := MetricsOnly(registry)
	for path, want := range map[string]int{
		"/metrics": 200, "/healthz": 200, "/": 404, "/v1/jobs": 404, "/readyz": 404, "/docs": 404,
	} {
		if got := record(t, handler, "GET", path, ""); got.status != want {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	record(t, handler, "GET", "/metrics", "").shows("punctual_something 0")
	if got := record(t, handler, "POST", "/metrics", ""); got.status != 405 {
		t.Errorf("POST: %d", got.status)
	}
	run := httptest.NewRequest("GET", "/metrics", nil)
	run.Header.Set("Punctual-Fencing-Token", "1")
	run.Header.Set("Punctual-Attempt", "1")
	w := httptest.NewRecorder()
	if handler.ServeHTTP(w, run); w.Code != 403 {
		t.Errorf("to a run: %d", w.Code)
	}
}
