package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// bearerScheme is the name of the security scheme in the description.
const bearerScheme = "bearer"

// securitySchemes returns how callers authenticate.
func securitySchemes() map[string]*huma.SecurityScheme {
	return map[string]*huma.SecurityScheme{bearerScheme: {
		Type: "http", Scheme: "bearer",
		Description: "An API key, or a JWT from the issuer that the deployment is configured with. A server that runs with " +
			"--auth=none needs neither.",
	}}
}

// describeRole says which role an operation needs, for people and for programs. It also describes the tenant header.
// An operation without a role needs a run token. huma does not check that: the handlers do, and answer 401.
func describeRole(op *api.Operation) {
	if op.Role == auth.RoleNone {
		for _, p := range op.Doc.Parameters {
			p.Required = true
		}
		return
	}
	needs := fmt.Sprintf("Needs the role %s.", op.Role)
	op.Doc.Description = strings.TrimPrefix(op.Description+" "+needs, " ")
	op.Doc.Security = []map[string][]string{{bearerScheme: {}}}
	op.Doc.Parameters = append(op.Doc.Parameters, &huma.Param{
		Name: auth.HeaderTenant, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "The tenant to act for. Operators may name any tenant; other callers only their own. Absent: the " +
			"tenant of the key or token.",
		Example: "billing",
	})
}

// isSubmitter reports whether the caller may do no more than submitters may.
func isSubmitter(ctx context.Context) bool { return !auth.CallerOf(ctx).Role.Includes(auth.RoleEditor) }

// submitted lets submitters trigger a job that a submitter creates, unless the job says whether they may.
func submitted(ctx context.Context, job JobInput) JobInput {
	if isSubmitter(ctx) && job.SubmittersMayTrigger == nil {
		job.SubmittersMayTrigger = new(true)
	}
	return job
}

// mayCreate refuses jobs that a submitter may not create: all but one-shots.
func mayCreate(ctx context.Context, job JobInput) error {
	return oneShots(auth.CallerOf(ctx).Role, []JobInput{job}, func(int) string { return "body.schedule" })
}

// mayWrite refuses batches that a submitter may not write.
func mayWrite(ctx context.Context, batch BatchInput) error {
	if c := auth.CallerOf(ctx); batch.OnConflict == jobs.ConflictReplace && !c.Role.Includes(auth.RoleEditor) {
		return problem.New(problem.CodeForbidden,
			fmt.Sprintf("Replacing jobs needs the role %s; the caller's role is %s.", auth.RoleEditor, c.Role),
			problem.At("body.on_conflict", "must be error or skip"))
	}
	at := func(i int) string { return fmt.Sprintf("body.jobs[%d].schedule", i) }
	return oneShots(auth.CallerOf(ctx).Role, batch.Jobs, at)
}

// oneShots refuses jobs that are not one-shots, from callers below editor.
func oneShots(role auth.Role, jobs []JobInput, at func(i int) string) error {
	if role.Includes(auth.RoleEditor) {
		return nil
	}
	var fields []problem.FieldError
	for i, job := range jobs {
		if kind := job.Schedule.Kind(); kind != jobspec.KindAt && kind != jobspec.KindDelay {
			fields = append(fields, problem.At(at(i), "must have at or delay"))
		}
	}
	if len(fields) == 0 {
		return nil
	}
	detail := fmt.Sprintf("The role %s creates one-shots only; "+
		"a job with another schedule, or with none, needs the role %s.", role, auth.RoleEditor)
	return problem.New(problem.CodeForbidden, detail, problem.Capped(fields)...)
}

// only admits callers whose role suffices for handlers that are not described as operations.
func (s *server) only(role auth.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(r.Context(), w, r, role)
		if err != nil {
			s.api.Problem(r.Context(), err, "").Write(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(c.Within(r.Context())))
	})
}

// admit returns the caller of a request, and tells it of a freeze.
func (s *server) admit(
	ctx context.Context, w http.ResponseWriter, r *http.Request, role auth.Role,
) (auth.Caller, error) {
	c, err := s.callers.Admit(ctx, w.Header(), r, role)
	if err == nil {
		s.freezes.tell(ctx, c, w.Header())
	}
	return c, err
}

func (s *server) callerRoutes() {
	api.Register(s.api, api.Operation{
		ID: "get-caller", Route: "GET /v1/caller", Role: auth.RoleViewer, Tag: tagTenants, Summary: "Get the caller",
		Description: "Says what the key or token of the request may do, and for which tenant.",
	}, s.getCaller)
}

// Caller is the sender of a request.
type Caller struct {
	Role       auth.Role       `json:"role" enum:"viewer,submitter,editor,admin,operator" doc:"The permissions of the caller." example:"editor"`
	Tenant     string          `json:"tenant" doc:"The tenant that the request acts for." example:"billing"`
	HomeTenant string          `json:"home_tenant" doc:"The tenant of the key or token. Operators may act for other tenants." example:"billing"`
	Kind       audit.ActorKind `json:"kind" enum:"anybody,key,token" doc:"How the caller authenticated. anybody: authentication is off." example:"key"`
	Name       *string         `json:"name" doc:"The id of the key, or the subject of the token. Null: authentication is off." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
}

func (s *server) getCaller(ctx context.Context, _ int32, _ *struct{}) (*answer[Caller], error) {
	c := auth.CallerOf(ctx)
	return &answer[Caller]{Caller{
		Role: c.Role, Tenant: c.Tenant.Name, HomeTenant: c.Home.Name, Kind: c.Actor.Kind, Name: pg.OrNull(c.Actor.Name),
	}}, nil
}
