package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"punctual/httpapi/problem"
)

// Somebody holds the lock of a row for long. Callers get an error soon, and nothing of theirs is written.
func TestACallerIsToldThatARowIsLocked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.do("PUT", "/v1/jobs/report",
		`{"schedule": {"every": "1h"}, "target": {"url": "https://api.example.com/"}}`).want(http.StatusCreated)
	tx, err := s.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.do("PATCH", "/v1/jobs/report", `{"description": "another"}`,
		"Content-Type: application/merge-patch+json").want(http.StatusOK)
}
