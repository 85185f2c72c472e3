package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/tenants"
)

func (s *server) tenantRoutes() {
	api.Register(s.api, api.Operation{
		ID: "get-own-tenant", Route: "GET /v1/tenant", Role: auth.RoleViewer, Tag: tagTenants,
		Summary:     "Get the tenant of the caller",
		NotFound:    noSuchTenant,
		Description: "With its limits and how much of them it uses.",
	}, s.getOwnTenant)
	api.RegisterBody[TenantNotify](s.api, api.Operation{
		ID: "patch-own-tenant", Route: "PATCH /v1/tenant", Role: auth.RoleAdmin, Tag: tagTenants,
		Summary:  "Change the tenant of the caller",
		NotFound: noSuchTenant,
		Asks: `{"notify":[{"on":["failing","dead","stale","recovered"],"format":"slack",` +
			`"url":"https://hooks.slack.com/services/T000/B000/XXXX"}]}`,
		Description: "A JSON merge patch (RFC 7396) on the settings that the tenant's admins control: absent fields stay. " +
			"These are the recipients of notices about jobs that have no notify of their own; null: no recipients. Replicas " +
			"use the change within ten seconds.",
	}, api.Required, s.patchOwnTenant)
	api.RegisterBody[TenantInput](s.api, api.Operation{
		ID: "create-tenant", Route: "POST /v1/tenants", Role: auth.RoleOperator, Tag: tagTenants,
		Summary: "Create a tenant", Status: http.StatusCreated,
		Conflict:    tenants.ErrTenantExists,
		Description: "An absent limit means no limit.",
	}, api.Required, s.createTenant)
	api.Register(s.api, api.Operation{
		ID: "list-tenants", Route: "GET /v1/tenants", Role: auth.RoleOperator, Tag: tagTenants, Summary: "List tenants",
		Description: "By name, in byte order.",
	}, s.listTenants)
	api.Register(s.api, api.Operation{
		ID: "get-tenant", Route: "GET /v1/tenants/{tenant}", Role: auth.RoleOperator, Tag: tagTenants,
		Summary: "Get a tenant", Description: "With how much of its limits it uses.",
	}, s.getTenant)
	api.RegisterBody[TenantSettings](s.api, api.Operation{
		ID: "patch-tenant", Route: "PATCH /v1/tenants/{tenant}", Role: auth.RoleOperator, Tag: tagTenants,
		Summary: "Change a tenant",
		Asks:    `{"weight":2,"max_jobs":null}`,
		Description: "A JSON merge patch (RFC 7396): absent fields stay, and null removes a limit. Replicas use the change " +
			"within two seconds.",
	}, api.Required, s.patchTenant)
	api.Register(s.api, api.Operation{
		ID: "delete-tenant", Route: "DELETE /v1/tenants/{tenant}", Role: auth.RoleOperator, Tag: tagTenants,
		Summary:  "Delete a tenant",
		Conflict: stateConflict(`Tenant "billing" has 812 active or paused jobs; delete them first`),
		Description: "Revokes the tenant's keys and grants; the response names what is left of the schemas of its grants. " +
			"The response is 409 if the tenant has active or paused jobs, and for the tenant default. The tenant's history stays until retention deletes it. Its name can be used again.",
	}, s.deleteTenant)
}

// TenantInput is the body that creates a tenant.
type TenantInput struct {
	Name string `json:"name" doc:"Unique among tenants. It cannot be changed." example:"billing"`
	TenantSettings
}

// SetByServer says why a request may not set the fields that only tenants.Tenant has.
func (TenantSettings) SetByServer(field string) (why string, is bool) {
	return body.LeaveOut, slices.Contains([]string{"created_at", "updated_at", "usage"}, field)
}

// tenant returns the tenant to create.
func (t TenantInput) tenant() tenants.Tenant {
	made := tenants.Tenant{Name: t.Name}
	t.apply(&made)
	return made
}

func (t TenantInput) validate() []problem.FieldError {
	errors := t.TenantSettings.validate()
	if !jobspec.NameForm.MatchString(t.Name) {
		errors = append(errors, problem.Atf("body.name", "%q is not a valid name: write 1 to 128 letters, digits, dots, "+
			"underscores, colons and dashes, beginning with a letter or digit", problem.Clip(t.Name)))
	}
	return errors
}

// TenantUsage is how much a tenant uses of its limits.
type TenantUsage struct {
	Jobs int `json:"jobs" doc:"How many active and paused jobs it has now. Counted up to max_jobs, and to 10,000 at least: without max_jobs, 10000 means 10,000 or more." example:"812"`
}

// TenantWithUsage is a tenant, and how much it uses of its limits.
type TenantWithUsage struct {
	tenants.Tenant
	Usage TenantUsage `json:"usage" doc:"How much of its limits it uses."`
}

type tenantAnswer struct {
	Location string `header:"Location" doc:"Path of the tenant, when it was created."`
	Body     tenants.Tenant
}

// changed returns the answer that shows a tenant.
func changed(t tenants.Tenant, err error) (*tenantAnswer, error) { return &tenantAnswer{Body: t}, err }

func (s *server) createTenant(ctx context.Context, _ int32, in *body.Body[TenantInput]) (*tenantAnswer, error) {
	asked := in.Value
	if err := in.Check(asked.validate()...); err != nil {
		return nil, err
	}
	t, err := s.Store.Tenants.CreateTenant(ctx, asked.tenant())
	return &tenantAnswer{"/v1/tenants/" + t.Name, t}, err
}

// TenantRef is the input of operations on one tenant.
type TenantRef struct {
	Tenant string `path:"tenant" doc:"Name of the tenant." example:"billing"`
}

// Exists returns ErrNotFound for a malformed name.
func (t TenantRef) Exists() error { return mayExist(t.Tenant) }

// NotFound implements api.Named.
func (TenantRef) NotFound() string { return noSuchTenant }

const noSuchTenant = "There is no tenant with that name."

func (s *server) getTenant(ctx context.Context, _ int32, in *TenantRef) (*answer[TenantWithUsage], error) {
	return s.withUsage(ctx)(s.Store.Tenants.GetTenant(ctx, in.Tenant))
}

func (s *server) getOwnTenant(ctx context.Context, tenant int32, _ *struct{}) (*answer[TenantWithUsage], error) {
	return s.withUsage(ctx)(s.Store.Tenants.GetTenantByID(ctx, tenant))
}

func (s *server) withUsage(ctx context.Context) func(tenants.Tenant, error) (*answer[TenantWithUsage], error) {
	return func(t tenants.Tenant, err error) (*answer[TenantWithUsage], error) {
		if err != nil {
			return nil, err
		}
		jobs, err := s.Store.Tenants.CountJobs(ctx, t)
		return show(TenantWithUsage{t, TenantUsage{Jobs: jobs}}, err)
	}
}

// listTenants uses names as cursors: a caller who may list tenants may know their names.
func (s *server) listTenants(ctx context.Context, _ int32, in *Paging) (*answer[List[tenants.Tenant]], error) {
	if in.Cursor != "" && !jobspec.NameForm.MatchString(in.Cursor) {
		return nil, &pg.CursorError{Cursor: in.Cursor}
	}
	page, more, err := s.Store.Tenants.ListTenants(ctx, in.Cursor, in.Limit)
	next := ""
	if more {
		next = page[len(page)-1].Name
	}
	return pageOf(page, next, err)
}

type patchTenantInput struct {
	TenantRef
	Request body.Body[TenantSettings]
}

func (s *server) patchTenant(ctx context.Context, _ int32, in *patchTenantInput) (*tenantAnswer, error) {
	return changed(s.Store.Tenants.EditTenant(ctx, in.Tenant, func(t *tenants.Tenant) error {
		return patchSettings(&in.Request, t)
	}))
}

func (s *server) patchOwnTenant(ctx context.Context, tenant int32, in *body.Body[TenantNotify]) (*tenantAnswer, error) {
	own, err := s.Store.Tenants.GetTenantByID(ctx, tenant)
	if err != nil {
		return nil, err
	}
	asked, given := in.Value, map[string]json.RawMessage{}
	if err := in.Check(append(asked.validate(),
		s.forbiddenNotify(tenant, "body", asked.Notify)...)...); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(in.Raw, &given); err != nil {
		return nil, fmt.Errorf("reading the patch: %w", err)
	}
	return changed(s.Store.Tenants.EditTenant(ctx, own.Name, func(t *tenants.Tenant) error {
		if _, ok := given["notify"]; ok {
			t.Notify = asked.Notify
		}
		return nil
	}))
}

// patchSettings applies a patch to the settings of a tenant, or returns everything that is wrong with it.
func patchSettings(patch *body.Body[TenantSettings], t *tenants.Tenant) error {
	var settings TenantSettings
	if err := patch.Onto(t.Settings(), &settings); err != nil {
		return err
	}
	if err := patch.Check(settings.validate()...); err != nil {
		return err
	}
	settings.apply(t)
	return nil
}

func (s *server) deleteTenant(ctx context.Context, _ int32, in *TenantRef) (*answer[Revoked], error) {
	left, err := s.Store.Tenants.DeleteTenant(ctx, in.Tenant)
	return show(Revoked{left}, err)
}
