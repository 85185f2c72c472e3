package httpapi

import (
	"context"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/store"
	"punctual/store/pg"
	"punctual/store/tenants"
)

func (s *server) grantRoutes() {
	const list, one = "/v1/tenants/{tenant}/grants", "/v1/tenants/{tenant}/grants/{schema}"
	api.RegisterBody[GrantInput](s.api, api.Operation{
		ID: "put-grant", Route: "PUT " + one, Role: auth.RoleOperator, Tag: tagTenants,
		Summary:  "Grant runs in SQL to a role of the database",
		Conflict: stateConflict("Schema shop_jobs exists and is not empty; choose another one"),
		Description: "Creates a schema with functions by which the role creates runs of the tenant's jobs in its own " +
			"transactions. If the grant exists, its functions are recreated. The response is 409 if the schema is another " +
			"grant's or holds anything else, and if Punctual's own role may not create a schema.",
	}, api.Required, s.putGrant)
	api.Register(s.api, api.Operation{
		ID: "list-grants", Route: "GET " + list, Role: auth.RoleOperator, Tag: tagTenants,
		Summary: "List the grants of a tenant", Description: "By schema, in byte order.",
	}, s.listGrants)
	api.Register(s.api, api.Operation{
		ID: "delete-grant", Route: "DELETE " + one, Role: auth.RoleOperator, Tag: tagTenants, Summary: "Take a grant back",
		Description: "From then on the role may call none of its functions. They are dropped, and the schema too if the " +
			"grant made it. A function on which a view or a table depends stays, and the response names it. The runs that " +
			"the role has made stay.",
	}, s.deleteGrant)
}

// GrantInput is the body that grants runs of a tenant's jobs in SQL.
type GrantInput struct {
	Role string `json:"role" minLength:"1" maxLength:"63" doc:"Role of the database that may call the functions. It must exist." example:"shop"`
}

// GrantRef is the input of operations on one grant.
type GrantRef struct {
	TenantRef
	Schema string `path:"schema" doc:"Schema of the grant." example:"shop_jobs"`
}

// Exists returns ErrNotFound for a malformed name.
func (g GrantRef) Exists() error {
	if !tenants.IsSchema(g.Schema) {
		return store.ErrNotFound
	}
	return g.TenantRef.Exists()
}

// NotFound implements api.Named.
func (GrantRef) NotFound() string {
	return "There is no tenant with that name, or it has no grant of that schema."
}

type listGrantsInput struct {
	TenantRef
	Paging
}

// listGrants uses schemas as cursors, as listTenants does with names.
func (s *server) listGrants(ctx context.Context, _ int32, in *listGrantsInput) (*answer[List[tenants.Grant]], error) {
	if in.Cursor != "" && !tenants.IsSchema(in.Cursor) {
		return nil, &pg.CursorError{Cursor: in.Cursor}
	}
	page, more, err := s.Store.Tenants.ListGrants(ctx, in.Tenant, in.Cursor, in.Limit)
	next := ""
	if more {
		next = page[len(page)-1].Schema
	}
	return pageOf(page, next, err)
}

type putGrantInput struct {
	GrantRef
	Request body.Body[GrantInput]
}

// Exists does not refuse the schema: a PUT creates it, and says what is wrong with its name.
func (in putGrantInput) Exists() error { return in.TenantRef.Exists() }

func (s *server) putGrant(ctx context.Context, _ int32, in *putGrantInput) (*written[tenants.Grant], error) {
	asked := tenants.NewGrant{Schema: in.Schema, Role: in.Request.Value.Role}
	var problems []problem.FieldError
	for _, wrong := range asked.Check() {
		at := map[string]string{"schema": "path.schema", "role": "body.role"}[wrong.Field]
		problems = append(problems, problem.At(at, wrong.Message))
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	return wrote(s.Store.Tenants.Grant(ctx, in.Tenant, asked))
}

// Revoked is the response to taking grants back.
type Revoked struct {
	Left []string `json:"left" doc:"Remains of the schemas of grants, and why they could not be dropped. No role may call them any more. You can drop them with psql (DROP … CASCADE)." example:"[\"function shop_jobs.cancel(text,text): view uses depends on it\"]"`
}

func (s *server) deleteGrant(ctx context.Context, _ int32, in *GrantRef) (*answer[Revoked], error) {
	left, err := s.Store.Tenants.Revoke(ctx, in.Tenant, in.Schema)
	return show(Revoked{left}, err)
}
