package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store/history"
	"punctual/store/runs"
)

const (
	wholeDeployment = `{"scope":"deployment","note":"the warehouse moves"}`
	ownTenant       = `{"scope":"tenant","note":"a bad deploy"}`
)

func TestTheDeploymentIsFrozenByOperatorsAndSeenByAll(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	operator, admin, viewer := s.as("default", auth.RoleOperator), s.as("alpha", auth.RoleAdmin), s.as("alpha", auth.RoleViewer)
	for _, path := range []string{"/v1/freeze", "/v1/unfreeze"} {
		admin.do("POST", path, wholeDeployment).code(problem.CodeForbidden, "the role operator")
		viewer.do("POST", path, wholeDeployment).code(problem.CodeForbidden)
		viewer.do("POST", path, ownTenant).code(problem.CodeForbidden)
	}
	admin.do("GET", "/v1/freeze?scope=deployment", "").code(problem.CodeForbidden)
	if got := get[FreezeState](viewer, "/v1/freeze"); got.Deployment != nil || got.Tenant != nil {
		t.Errorf("%+v", got)
	}
	if r := viewer.do("GET", "/v1/jobs", "").want(200); r.header.Get(headerFrozen) != "" {
		t.Errorf("%s", r.header.Get(headerFrozen))
	}

	frozen := into[FreezeState](operator.do("POST", "/v1/freeze", wholeDeployment).want(200)).Deployment
	if frozen == nil || frozen.By == nil || !strings.HasPrefix(*frozen.By, "key operator (") ||
		*frozen.Note != "the warehouse moves" || frozen.Reason != scheduler.FrozenAsked {
		t.Fatalf("%+v", frozen)
	}
	if again := into[FreezeState](operator.do("POST", "/v1/freeze",
		`{"scope":"deployment"}`).want(200)).Deployment; !again.Since.Equal(frozen.Since) {
		t.Errorf("a second freeze is %+v", again)
	}
	header := "deployment; since=" + frozen.Since.Format("2006-01-02T15:04:05Z") + "; reason=asked"
	made := admin.do("POST", "/v1/jobs", minimal("n")).want(201)
	triggered := admin.do("POST", "/v1/jobs/n/trigger", "").want(202)
	for what, r := range map[string]*reply{
		"create": made, "trigger": triggered, "list": viewer.do("GET", "/v1/jobs", "").want(200),
		"an error": viewer.do("GET", "/v1/jobs/nothing", "").want(404),
	} {
		if r.header.Get(headerFrozen) != header {
			t.Errorf("%s: %s is %q, want %q", what, headerFrozen, r.header.Get(headerFrozen), header)
		}
	}
	// Tenants do not see which operator froze the deployment.
	own := *frozen
	own.By = nil
	for what, got := range map[string]*Frozen{
		"queues": get[QueueList](viewer, "/v1/queues").Frozen,
		"job":    get[Job](viewer, "/v1/jobs/n").Frozen,
		"freeze": get[FreezeState](viewer, "/v1/freeze").Deployment,
	} {
		if diff := cmp.Diff(&own, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if diff := cmp.Diff(frozen, get[ReplicaList](operator, "/v1/replicas").Frozen); diff != "" {
		t.Error(diff)
	}
	if got := s.do("GET", "/readyz", "").want(200).fields(); got["status"] != "ready" || got["frozen_since"] == nil ||
		got["frozen_reason"] != "asked" {
		t.Errorf("%v", got)
	}
	run := into[runs.Run](triggered)
	e := get[history.Explanation](viewer,
		"/v1/jobs/n/explain?at="+frozen.Since.AddDate(0, 0, 2).Format(time.DateOnly)+"T03:00:00Z")
	if !strings.Contains(e.Text, "the deployment has been frozen since") || strings.Contains(e.Text, "operator") {
		t.Errorf("%s", e.Text)
	}
	if run.Status != domain.StatusPending {
		t.Errorf("%s", run.Status)
	}
	admin.do("PUT", "/v1/jobs/n", string(viewer.do("GET", "/v1/jobs/n", "").body)).want(200) // the field frozen is ignored

	if got := into[FreezeState](operator.do("POST", "/v1/unfreeze",
		`{"scope":"deployment","note":"done"}`).want(200)); got.Deployment != nil {
		t.Errorf("%+v", got)
	}
	if r := viewer.do("GET", "/v1/jobs/n", "").want(200); r.header.Get(headerFrozen) != "" || into[Job](r).Frozen != nil {
		t.Errorf("%s", r.body)
	}
	if got := s.do("GET", "/readyz", "").want(200).fields(); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestATenantIsFrozenByItsAdmins(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	s.tenant("beta")
	operator, alpha, beta := s.as("default", auth.RoleOperator), s.as("alpha", auth.RoleAdmin), s.as("beta", auth.RoleAdmin)
	state := into[FreezeState](alpha.do("POST", "/v1/freeze", ownTenant).want(200))
	if f := state.Tenant; state.Deployment != nil || f == nil || f.Scope != ScopeTenant || *f.Note != "a bad deploy" ||
		f.By == nil {
		t.Errorf("%+v", state)
	}
	if got := get[FreezeState](beta, "/v1/freeze"); got.Tenant != nil || got.Deployment != nil {
		t.Errorf("beta sees %+v", got)
	}
	if r := beta.do("GET", "/v1/queues", "").want(200); r.header.Get(headerFrozen) != "" ||
		into[QueueList](r).Frozen != nil {
		t.Errorf("beta: %s", r.body)
	}
	if r := alpha.do("GET", "/v1/queues", "").want(200); !strings.HasPrefix(r.header.Get(headerFrozen),
		"tenant; since=") || into[QueueList](r).Frozen == nil {
		t.Errorf("alpha: %s", r.body)
	}
	if got := get[FreezeState](operator.acting("alpha"), "/v1/freeze"); got.Tenant == nil {
		t.Errorf("%+v", got)
	}
	// Unfreezing the deployment leaves the tenant frozen, and the other way round.
	operator.do("POST", "/v1/freeze", wholeDeployment).want(200)
	operator.do("POST", "/v1/unfreeze", wholeDeployment).want(200)
	if got := get[FreezeState](alpha, "/v1/freeze"); got.Tenant == nil {
		t.Error("alpha is not frozen any more")
	}
	operator.do("POST", "/v1/freeze", wholeDeployment).want(200)
	if got := into[FreezeState](alpha.do("POST", "/v1/unfreeze", ownTenant).want(200)); got.Tenant != nil ||
		got.Deployment == nil {
		t.Errorf("%+v", got)
	}
	operator.do("POST", "/v1/unfreeze", wholeDeployment).want(200)
	if got := into[FreezeState](operator.acting("beta").do("POST", "/v1/freeze", ownTenant).want(200)); got.Tenant == nil {
		t.Errorf("%+v", got)
	}
	alpha.do("GET", "/v1/audit-log", "").want(200).shows(`"tenant.freeze"`, `"tenant.unfreeze"`)
}

func TestFreezesAreChecked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for body, at := range map[string]string{
		`{}`:                                 "body.scope",
		`{"scope":"all"}`:                    "body.scope",
		`{"scope":"tenant","tenant":"x"}`:    "body.tenant",
		`{"scope":"Tenant","note":"\u0000"}`: "body.scope body.note",
	} {
		for _, path := range []string{"/v1/freeze", "/v1/unfreeze"} {
			if diff := cmp.Diff(strings.Fields(at), locations(s.do("POST", path, body).code(problem.CodeInvalid))); diff != "" {
				t.Errorf("%s %s: %s", path, body, diff)
			}
		}
	}
	s.do("GET", "/v1/freeze?scope=all", "").code(problem.CodeInvalid)
	if got := get[FreezeState](s, "/v1/freeze?scope=deployment"); got.Deployment != nil ||
		got.Tenant != nil {
		t.Errorf("%+v", got)
	}
}
