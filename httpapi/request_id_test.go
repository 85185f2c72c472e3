package httpapi

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
)

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
