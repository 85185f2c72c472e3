package httpapi

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/store/audit"
)

// On every route of the document, exactly the roles that it implies suffice.
func TestEveryOperationNeedsItsRole(t *testing.T) {
	t.Parallel()
	s, all := guarded(t), routes(t)
	for _, role := range auth.Roles {
		caller := s.as("default", role)
		for _, r := range all {
			needed := r.role
			path := r.path
			for _, parameter := range r.parameters {
				path = strings.Replace(path, "{"+parameter+"}", uuid.NewString(), 1)
			}
			got := caller.do(r.method, path, "")
			if got.status == http.StatusForbidden {
				got.code(problem.CodeForbidden, "the role "+string(needed), "is "+string(role))
				if role.Includes(needed) {
					t.Errorf("%s as %s: %s", r.id, role, got.body)
				}
			} else if !role.Includes(needed) {
				t.Errorf("%s as %s: %d", r.id, role, got.status)
			}
			if needed == auth.RoleNone && got.status != http.StatusUnauthorized {
				t.Errorf("%s without a run token: %d", r.id, got.status)
			}
			if needed != auth.RoleNone && role == auth.Roles[0] {
				s.do(r.method, path, "").code(problem.CodeUnauthenticated)
			}
		}
	}
}

func TestRolesAreThoseOfOperations(t *testing.T) {
	t.Parallel()
	for id, role := range rolesOf(t) {
		if role != auth.RoleNone && !slices.Contains(auth.Roles, role) {
			t.Errorf("%s needs %q", id, role)
		}
	}
	bare := &api.API{API: huma.NewAPI(humaConfig(""), nopAdapter{})}
	api.Register(bare, api.Operation{ID: "frobnicate", Route: "GET /v1/frobnicate/{name}"},
		func(context.Context, int32, *struct{}) (*struct{}, error) { return nil, nil })
	want := []string{"a role for frobnicate", "a check of the names in the path of frobnicate"}
	if diff := cmp.Diff(want, bare.Missing); diff != "" {
		t.Error(diff)
	}
}

// rolesOf returns the least role of each operation, as the description says it.
func rolesOf(t *testing.T) map[string]auth.Role {
	t.Helper()
	roles := map[string]auth.Role{}
	for _, r := range routes(t) {
		roles[r.id] = r.role
	}
	return roles
}

type nopAdapter struct{ huma.Adapter }

func (nopAdapter) Handle(*huma.Operation, func(huma.Context)) {}

// A table in docs/security/callers.md says which role each operation needs.
func TestTheRolesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/security/callers.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Roles\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]auth.Role{}
	for _, line := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*$").FindAllStringSubmatch(section, -1) {
		for _, id := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(strings.SplitN(line[0], "|", 3)[2], -1) {
			documented[id[1]] = auth.Role(strings.Replace(line[1], "none", "", 1))
		}
	}
	if diff := cmp.Diff(rolesOf(t), documented); diff != "" {
		t.Errorf("docs/security/callers.md has other roles (- code, + docs):\n%s", diff)
	}
}

func TestWhatIsOpenAndWhatIsNot(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	for _, path := range []string{"/", "/healthz", "/readyz", "/docs", "/docs.css", "/openapi.json", "/openapi-3.0.json"} {
		s.do("GET", path, "").want(200)
	}
	s.do("GET", "/metrics", "").code(problem.CodeUnauthenticated)
	s.as("default", auth.RoleAdmin).do("GET", "/metrics", "").code(problem.CodeForbidden)
	s.as("default", auth.RoleOperator).do("GET", "/metrics", "").want(200)
	s.do("GET", "/nothing", "").code(problem.CodeNoRoute)
	serve(t).do("GET", "/metrics", "").want(200)
}

func TestTargetsNeedNoKey(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	path, token := s.as("alpha", auth.RoleEditor).working("n")
	s.do("POST", path+"/heartbeat", `{"progress":1}`, token).want(200)
	s.do("GET", path+"/progress", "", token).want(200)
	s.do("POST", path+"/heartbeat", "").code(problem.CodeRunToken)
	s.with("punctual_wrong").do("POST", path+"/complete", "", token).want(200)
}

func TestSubmittersCreateOneShotsOnly(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	submitter := s.as("default", auth.RoleSubmitter)
	const cron, every, in, at = `,"schedule":{"cron":"0 3 * * *"}`, `,"schedule":{"every":"1h"}`,
		`,"schedule":{"delay":"1h"}`, `,"schedule":{"at":"2099-01-01T00:00:00Z"}`
	submitter.create(jobOf("delay", in))
	submitter.create(jobOf("at", at))
	for _, schedule := range []string{cron, every, ""} {
		r := submitter.do("POST", "/v1/jobs", jobOf("n", schedule))
		r.code(problem.CodeForbidden, "one-shots")
		r.blamesAs(problem.CodeForbidden, "body.schedule")
	}
	submitter.do("POST", "/v1/jobs/batch", batch("error", jobOf("b1", in), jobOf("b2", at))).want(201)
	submitter.do("POST", "/v1/jobs/batch", batch("skip", jobOf("b1", in), jobOf("b3", at))).want(201)
	submitter.do("POST", "/v1/jobs/batch", batch("skip", jobOf("b4", in), jobOf("b5", cron))).
		blamesAs(problem.CodeForbidden, "body.jobs[1].schedule")
	submitter.do("POST", "/v1/jobs/batch", batch("replace", jobOf("b1", in))).
		blamesAs(problem.CodeForbidden, "body.on_conflict")
	submitter.do("POST", "/v1/jobs",
		`{"name":"n","schedule":{"cron":"61 * * * *"},"target":{"url":"http://example.com"}}`).code(problem.CodeInvalid)
	submitter.do("POST", "/v1/jobs/at/trigger", "").want(202)
	s.as("default", auth.RoleEditor).create(jobOf("cron", cron))
}

func TestWritesAreTheCallers(t *testing.T) {
	t.Parallel()
	c := auth.Caller{Actor: audit.Actor{Kind: audit.Key, Name: "k"}, Role: auth.RoleViewer}
	if got := auth.CallerOf(c.Within(t.Context())); got != c {
		t.Errorf("%+v", got)
	}
	s := guarded(t)
	key := into[NewKey](s.as("default", auth.RoleAdmin).do("POST", "/v1/api-keys", `{"name":"first","role":"admin"}`).want(201))
	second := into[NewKey](s.with(key.Secret).do("POST", "/v1/api-keys", `{"name":"second","role":"viewer"}`).want(201))
	if second.CreatedBy != "key:"+key.ID.String() {
		t.Errorf("made by %s", second.CreatedBy)
	}
}

func TestSubmittersTriggerWhatAllowsIt(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	submitter, other, editor := s.as("default", auth.RoleSubmitter), s.as("default", auth.RoleSubmitter), s.as("default", auth.RoleEditor)
	const open, shut, once = `,"submitters_may_trigger":true`, `,"submitters_may_trigger":false`,
		`,"schedule":{"delay":"100h"}`
	refused := func(s *service, name string) {
		t.Helper()
		s.do("POST", "/v1/jobs/"+name+"/trigger", "").code(problem.CodeForbidden, "submitters_may_trigger", name)
		if runs := get[List[ListedRun]](editor, "/v1/jobs/"+name+"/runs"); len(runs.Data) != 0 {
			t.Errorf("%s has run", name)
		}
		editor.do("POST", "/v1/jobs/"+name+"/trigger", "").want(202)
	}
	allowed := func(s *service, name string) {
		t.Helper()
		s.do("POST", "/v1/jobs/"+name+"/trigger", "").want(202)
	}
	shows := func(name string, want bool) {
		t.Helper()
		if got := editor.do("GET", "/v1/jobs/"+name, "").want(200).fields()["submitters_may_trigger"]; got != want {
			t.Errorf("%s shows %v", name, got)
		}
	}
	editor.create(jobOf("plain", ""))
	shows("plain", false)
	refused(submitter, "plain")
	editor.create(jobOf("open", open))
	shows("open", true)
	allowed(submitter, "open")
	editor.do("PATCH", "/v1/jobs/open", `{"submitters_may_trigger":null,"name":"shut-again"}`).want(200)
	submitter.do("POST", "/v1/jobs/shut-again/trigger", "").code(problem.CodeForbidden)
	// Submitters may trigger a job that a submitter creates, unless the job says that they may not.
	submitter.create(jobOf("own", once))
	shows("own", true)
	allowed(submitter, "own")
	allowed(other, "own")
	submitter.create(jobOf("own-shut", once+shut))
	refused(submitter, "own-shut")
	submitter.do("POST", "/v1/jobs/batch", `{"jobs":[`+jobOf("batched", once)+`]}`).want(201)
	allowed(submitter, "batched")
	// A batch that skips a job does not open it to submitters.
	editor.create(jobOf("reserved", once))
	submitter.do("POST", "/v1/jobs/batch", `{"on_conflict":"skip","jobs":[`+jobOf("reserved", once)+`]}`).want(201)
	refused(submitter, "reserved")
	s.as("default", auth.RoleViewer).do("POST", "/v1/jobs/own/trigger", "").code(problem.CodeForbidden)
}
