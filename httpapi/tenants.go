package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	jsonpatch "github.com/evanphx/json-patch/v5"

	"punctual/scheduler"
	"punctual/store"
	"punctual/store/pg"
	"punctual/store/tenants"
)

func tenantPath(name string) string { return "/v1/tenants/" + name }

func (s *server) tenantRoutes() {
	register(s, huma.Operation{
		OperationID: "get-own-tenant", Method: http.MethodGet, Path: "/v1/tenant", Tags: []string{tagTenants},
		Summary: "Get the tenant of the caller", Description: "With its limits and how much of them it uses.",
	}, s.getOwnTenant)
	op := register(s, huma.Operation{
		OperationID: "patch-own-tenant", Method: http.MethodPatch, Path: "/v1/tenant", Tags: []string{tagTenants},
		Summary: "Change the tenant of the caller", MaxBodyBytes: maxBody,
		Description: "A JSON merge patch (RFC 7396) on the settings that the tenant's admins control: the recipients of " +
			"notices about jobs that have no notify of their own. Null: no recipients. Replicas use the change within two " +
			"seconds.",
		Errors: []int{400, 404, 413, 415, 422},
	}, s.patchOwnTenant)
	describeBody[TenantNotify](s, op, true, exampleTenantNotify, mediaPatch, mediaJSON)
	register(s, huma.Operation{
		OperationID: "list-tenants", Method: http.MethodGet, Path: "/v1/tenants", Tags: []string{tagTenants},
		Summary: "List tenants", Description: "By name, in byte order.", Errors: []int{422},
	}, s.listTenants)
	op = register(s, huma.Operation{
		OperationID: "create-tenant", Method: http.MethodPost, Path: "/v1/tenants", Tags: []string{tagTenants},
		Summary: "Create a tenant", DefaultStatus: http.StatusCreated, MaxBodyBytes: maxBody,
		Description: "An absent limit means no limit.", Errors: []int{400, 409, 413, 415, 422},
	}, s.createTenant)
	describeBody[TenantInput](s, op, true, exampleTenantInput, mediaJSON)
	register(s, huma.Operation{
		OperationID: "get-tenant", Method: http.MethodGet, Path: "/v1/tenants/{tenant}", Tags: []string{tagTenants},
		Summary: "Get a tenant", Description: "With how much of its limits it uses.", Errors: []int{404},
	}, s.getTenant)
	op = register(s, huma.Operation{
		OperationID: "patch-tenant", Method: http.MethodPatch, Path: "/v1/tenants/{tenant}", Tags: []string{tagTenants},
		Summary: "Change a tenant", MaxBodyBytes: maxBody,
		Description: "A JSON merge patch (RFC 7396): absent fields stay, and null removes a limit. Replicas use the change " +
			"within two seconds.",
		Errors: []int{400, 404, 413, 415, 422},
	}, s.patchTenant)
	describeBody[TenantSettings](s, op, true, exampleTenantPatch, mediaPatch, mediaJSON)
	register(s, huma.Operation{
		OperationID: "delete-tenant", Method: http.MethodDelete, Path: "/v1/tenants/{tenant}", Tags: []string{tagTenants},
		Summary: "Delete a tenant",
		Description: "Revokes the tenant's keys. The response is 409 if the tenant has active or paused jobs, and for the " +
			"tenant default. The tenant's history stays until retention deletes it. Its name can be used again.",
		Errors: []int{404, 409},
	}, s.deleteTenant)
}

// TenantInput is the body that creates a tenant.
type TenantInput struct {
	Name string `json:"name" doc:"Unique among tenants. It cannot be changed." example:"billing"`
	TenantSettings
}

// readOnly returns the fields of Tenant that a request may not set.
func (TenantSettings) readOnly() []string { return []string{"created_at", "updated_at", "usage"} }

func (t TenantInput) validate() []FieldError {
	errors := t.TenantSettings.validate()
	if !nameForm.MatchString(t.Name) {
		errors = append(errors, FieldError{
			"body.name",
			fmt.Sprintf("%q is not a valid name: write 1 to 128 letters, digits, dots, underscores, colons and dashes, "+
				"beginning with a letter or digit", clip(t.Name)),
		})
	}
	return errors
}

// Tenant is an owner of jobs. Null means no limit.
type Tenant struct {
	Name                 string   `json:"name" doc:"Its name." example:"billing"`
	Weight               int      `json:"weight" doc:"Its relative share of the worker slots while several tenants wait for them." example:"1"`
	MaxJobs              *int     `json:"max_jobs" doc:"The most active and paused jobs that it may have." example:"10000"`
	MaxConcurrentRuns    *int     `json:"max_concurrent_runs" doc:"The most runs of this tenant that all replicas together may send at once." example:"100"`
	MaxRunsPerSecond     *int     `json:"max_runs_per_second" doc:"The most attempts of this tenant that all replicas together may start in a second." example:"50"`
	MaxRequestsPerSecond *int     `json:"max_requests_per_second" doc:"The most API requests of this tenant that all replicas together answer in a second." example:"200"`
	MinInterval          *string  `json:"min_interval" doc:"Shortest time between two slots of one of its jobs." example:"1m0s"`
	AllowedTargets       []string `json:"allowed_targets" doc:"Non-public networks that its jobs may call, in addition to those that the deployment allows all tenants." example:"[\"10.20.0.0/16\"]"`

	Notify []scheduler.Notify `json:"notify" doc:"Recipients of notices about jobs that have no notify of their own."`

	CreatedAt time.Time `json:"created_at" doc:"When it was created."`
	UpdatedAt time.Time `json:"updated_at" doc:"When its settings were last changed."`
}

// TenantUsage is how much a tenant uses of its limits.
type TenantUsage struct {
	Jobs int `json:"jobs" doc:"How many active and paused jobs it has now." example:"812"`
}

// TenantWithUsage is a tenant, and how much it uses of its limits.
type TenantWithUsage struct {
	Tenant
	Usage TenantUsage `json:"usage" doc:"How much of its limits it uses."`
}

func showTenant(t tenants.TenantRecord) Tenant {
	settings := settingsOf(t.TenantSettings)
	shown := Tenant{
		Name: t.Name, Weight: t.Weight, MaxJobs: t.MaxJobs, MaxConcurrentRuns: t.MaxConcurrentRuns,
		MaxRunsPerSecond: t.MaxRunsPerSecond, MaxRequestsPerSecond: t.MaxRequestsPerSecond,
		MinInterval: pg.OrNull(settings.MinInterval.String()), AllowedTargets: settings.AllowedTargets,
		Notify: settings.Notify, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
	}
	if shown.AllowedTargets == nil {
		shown.AllowedTargets = []string{}
	}
	if shown.Notify == nil {
		shown.Notify = []scheduler.Notify{}
	}
	return shown
}

type tenantAnswer struct {
	Location string `header:"Location" doc:"Path of the tenant, when it was created."`
	Body     Tenant
}

type tenantUsageAnswer struct{ Body TenantWithUsage }

type createTenantInput struct{ Request body[TenantInput] }

func (s *server) createTenant(ctx context.Context, _ int32, in *createTenantInput) (*tenantAnswer, error) {
	asked := in.Request.value
	if err := in.Request.check(asked.validate()...); err != nil {
		return nil, err
	}
	t, err := s.Store.CreateTenant(ctx, asked.Name, asked.settings())
	if errors.Is(err, tenants.ErrTenantExists) {
		return nil, newProblem(CodeNameTaken, sentence(tenants.ErrTenantExists),
			FieldError{"body.name", "is taken by another tenant"})
	}
	if err != nil {
		return nil, err
	}
	return &tenantAnswer{tenantPath(t.Name), showTenant(t)}, nil
}

// TenantRef is the input of operations on one tenant.
type TenantRef struct {
	Tenant string `path:"tenant" doc:"Name of the tenant." example:"billing"`
}

// exists returns ErrNotFound for a malformed name.
func (t TenantRef) exists() error {
	if !nameForm.MatchString(t.Tenant) {
		return store.ErrNotFound
	}
	return nil
}

type oneTenantInput struct{ TenantRef }

func (s *server) getTenant(ctx context.Context, _ int32, in *oneTenantInput) (*tenantUsageAnswer, error) {
	if err := in.exists(); err != nil {
		return nil, err
	}
	return s.withUsage(ctx)(s.Store.GetTenant(ctx, in.Tenant))
}

func (s *server) getOwnTenant(ctx context.Context, tenant int32, _ *struct{}) (*tenantUsageAnswer, error) {
	return s.withUsage(ctx)(s.Store.GetTenantByID(ctx, tenant))
}

func (s *server) withUsage(ctx context.Context) func(tenants.TenantRecord, error) (*tenantUsageAnswer, error) {
	return func(t tenants.TenantRecord, err error) (*tenantUsageAnswer, error) {
		if err != nil {
			return nil, err
		}
		jobs, err := s.Store.CountJobs(ctx, t.ID)
		if err != nil {
			return nil, err
		}
		return &tenantUsageAnswer{TenantWithUsage{showTenant(t), TenantUsage{Jobs: jobs}}}, nil
	}
}

type listTenantsInput struct {
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"The most items on a page."`
	Cursor string `query:"cursor" maxLength:"256" doc:"The next_cursor of the previous page. It stays valid while items are added."`
}

// listTenants uses names as cursors: a caller who may list tenants may know their names.
func (s *server) listTenants(ctx context.Context, _ int32, in *listTenantsInput) (*listAnswer[Tenant], error) {
	if in.Cursor != "" && !nameForm.MatchString(in.Cursor) {
		return nil, &pg.CursorError{Cursor: in.Cursor}
	}
	tenants, more, err := s.Store.ListTenants(ctx, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	next := ""
	if more {
		next = tenants[len(tenants)-1].Name
	}
	return listOf(tenants, next, showTenant), nil
}

type patchTenantInput struct {
	TenantRef
	Request body[TenantSettings]
}

func (s *server) patchTenant(ctx context.Context, _ int32, in *patchTenantInput) (*tenantAnswer, error) {
	if err := in.exists(); err != nil {
		return nil, err
	}
	t, err := s.Store.EditTenant(ctx, in.Tenant, func(now tenants.TenantRecord) (tenants.TenantSettings, error) {
		return patchedSettings(&in.Request, now.TenantSettings)
	})
	if err != nil {
		return nil, err
	}
	return &tenantAnswer{Body: showTenant(t)}, nil
}

type patchOwnTenantInput struct{ Request body[TenantNotify] }

func (s *server) patchOwnTenant(ctx context.Context, tenant int32, in *patchOwnTenantInput) (*tenantAnswer, error) {
	own, err := s.Store.GetTenantByID(ctx, tenant)
	if err != nil {
		return nil, err
	}
	asked, given := in.Request.value, map[string]json.RawMessage{}
	if err := in.Request.check(append(asked.validate(),
		s.forbiddenNotify(tenant, "body", asked.Notify)...)...); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(in.Request.raw, &given); err != nil {
		return nil, fmt.Errorf("reading the patch: %w", err)
	}
	t, err := s.Store.EditTenant(ctx, own.Name, func(now tenants.TenantRecord) (tenants.TenantSettings, error) {
		settings := now.TenantSettings
		if _, ok := given["notify"]; ok {
			settings.Notify = asked.Notify
		}
		return settings, nil
	})
	if err != nil {
		return nil, err
	}
	return &tenantAnswer{Body: showTenant(t)}, nil
}

// patchedSettings returns the settings that result from a patch, or everything that is wrong with it.
func patchedSettings(patch *body[TenantSettings], now tenants.TenantSettings) (tenants.TenantSettings, error) {
	if covered(patch.errors, "body") { // not an object
		return tenants.TenantSettings{}, patch.check()
	}
	current, err := render(settingsOf(now))
	if err != nil {
		return tenants.TenantSettings{}, err
	}
	result, err := jsonpatch.MergePatch(current, patch.raw)
	if err != nil {
		return tenants.TenantSettings{}, fmt.Errorf("merging the patch: %w", err)
	}
	var t TenantSettings
	read := merged(patch.errors, decode(result, &t, false)...)
	if all := merged(read, t.validate()...); len(all) > 0 {
		return tenants.TenantSettings{}, invalid(all)
	}
	return t.settings(), nil
}

func (s *server) deleteTenant(ctx context.Context, _ int32, in *oneTenantInput) (*struct{}, error) {
	if err := in.exists(); err != nil {
		return nil, err
	}
	return nil, s.Store.DeleteTenant(ctx, in.Tenant)
}
