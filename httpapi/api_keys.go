package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/tenants"
)

func (s *server) keyRoutes() {
	api.RegisterBody[KeyInput](s.api, api.Operation{
		ID: "create-api-key", Route: "POST /v1/api-keys", Role: auth.RoleAdmin, Tag: tagTenants,
		Summary: "Create an API key", Status: http.StatusCreated,
		Asks: `{"name":"ci","role":"editor","expires_in":"720h"}`,
		Description: "The response holds the key. It is not stored and cannot be read again. Callers cannot create a key " +
			"with a higher role than their own. Only operators create keys with the role metrics. There is no Idempotency-Key " +
			"here, because storing the response would store the key. If the response was lost, revoke the key and create " +
			"another.",
	}, api.Required, s.createKey)
	api.Register(s.api, api.Operation{
		ID: "list-api-keys", Route: "GET /v1/api-keys", Role: auth.RoleAdmin, Tag: tagTenants, Summary: "List API keys",
		Description: "Newest first, including revoked and expired keys.",
	}, s.listKeys)
	api.Register(s.api, api.Operation{
		ID: "get-api-key", Route: "GET /v1/api-keys/{key}", Role: auth.RoleAdmin, Tag: tagTenants,
		Summary: "Get an API key", Description: "Without the key itself.",
	}, s.getKey)
	api.Register(s.api, api.Operation{
		ID: "revoke-api-key", Route: "DELETE /v1/api-keys/{key}", Role: auth.RoleAdmin, Tag: tagTenants,
		Summary: "Revoke an API key",
		Description: "The key stops working for good, on every replica within two seconds. It stays listed, for its " +
			"history. Repeating the request changes nothing.",
	}, s.revokeKey)
}

// KeyInput is the body that creates an API key.
type KeyInput struct {
	Name      string           `json:"name" minLength:"1" maxLength:"128" doc:"The purpose of the key, for people." example:"ci"`
	Role      auth.Role        `json:"role" enum:"metrics,viewer,submitter,editor,admin,operator" doc:"viewer reads; submitter also creates one-shots and triggers; editor changes jobs and runs; admin also keys and secrets; operator administers all tenants; metrics reads /metrics and nothing else." example:"editor"`
	ExpiresAt jobspec.Instant  `json:"expires_at,omitzero" doc:"When it stops working. Absent, without expires_in: after a year, or after the tenant's max_key_age if that is less." example:"2027-12-01T00:00:00Z"`
	ExpiresIn jobspec.Duration `json:"expires_in,omitzero" doc:"In place of expires_at: how long it works, counted from now; or never, if neither the deployment nor the tenant has a max_key_age: it works until it is revoked. Absent: see expires_at." example:"720h"`
}

// mostKeyName is the longest name of a key, in characters. The database has the same constraint.
const mostKeyName = 128

// never is what expires_in says of a key that works until it is revoked.
const never = "never"

// NeverExpires is the lifetime of a key that works until it is revoked.
func NeverExpires() (d jobspec.Duration) {
	_ = d.UnmarshalText([]byte(never)) // what is no duration is kept as it is
	return d
}

// LeastKeyAge is the least that max_key_age may be.
const LeastKeyAge = time.Hour

// longestKey is the longest lifetime of a key: 100 years. More would be a slip of the pen.
const longestKey = 100 * 366 * 24 * time.Hour

func (k KeyInput) validate() []problem.FieldError {
	var errors []problem.FieldError
	if n := utf8.RuneCountInString(k.Name); n < 1 || n > mostKeyName {
		errors = append(errors, problem.Atf("body.name", "%d characters; must be 1 to %d", n, mostKeyName))
	}
	errors = append(errors, noNUL("body.name", k.Name)...)
	if _, known := auth.Greatest([]string{string(k.Role)}); !known {
		errors = append(errors, problem.At("body.role", api.NotOneOf(string(k.Role), auth.Roles)))
	}
	errors = append(errors, instant("body.expires_at", k.ExpiresAt)...)
	if !k.ExpiresIn.IsZero() {
		if k.ExpiresIn.String() != never {
			errors = append(errors, span("body.expires_in", k.ExpiresIn, time.Second, longestKey)...)
		}
		if !k.ExpiresAt.IsZero() {
			errors = append(errors,
				problem.At("body.expires_in", "must not be given together with expires_at; give one of them"))
		}
	}
	return errors
}

// newKey returns the key to create.
func (k KeyInput) newKey() tenants.NewKey {
	return tenants.NewKey{
		Name: k.Name, Role: string(k.Role), ExpiresAt: orNil(k.ExpiresAt), Lifetime: k.ExpiresIn.Value(),
		Never: k.ExpiresIn.String() == never,
	}
}

// span returns what is wrong with a duration that must lie between least and most, if there is one.
func span(at string, d jobspec.Duration, least, most time.Duration) []problem.FieldError {
	v, err := time.ParseDuration(d.String())
	switch {
	case d.IsZero():
		return nil
	case err != nil:
		return []problem.FieldError{problem.At(at, jobspec.NotADuration(d.String()))}
	case v < least || v > most:
		return []problem.FieldError{problem.Atf(at, "%s is outside %s to %s", d, least, most)}
	}
	return nil
}

// NewKey is an API key that was just created.
type NewKey struct {
	tenants.Key
	Secret string `json:"key" doc:"The key. Store it now: it is never shown again." example:"punctual_5f0e8b110c6d9a44_…"`
}

type newKeyAnswer struct {
	Location string `header:"Location" doc:"Path of the key."`
	Body     NewKey
}

func (s *server) createKey(ctx context.Context, tenant int32, in *body.Body[KeyInput]) (*newKeyAnswer, error) {
	asked := in.Value
	if err := in.Check(asked.validate()...); err != nil {
		return nil, err
	}
	if c := auth.CallerOf(ctx); !c.Role.Includes(asked.Role) {
		return nil, problem.New(problem.CodeForbidden, fmt.Sprintf(
			"Creating a key of the role %s needs that role%s; your role is %s.",
			asked.Role, auth.OrOperator(asked.Role), c.Role))
	}
	secret, record, err := s.Store.Tenants.CreateKey(ctx, tenant, asked.newKey())
	return &newKeyAnswer{"/v1/api-keys/" + record.ID.String(), NewKey{record, secret}}, err
}

type listKeysInput struct {
	Expiring string `query:"expiring" enum:"true" doc:"true: only keys that expire soon: see expires_soon."`
	Paging
}

func (s *server) listKeys(ctx context.Context, tenant int32, in *listKeysInput) (*answer[List[tenants.Key]], error) {
	return pageOf(s.Store.Tenants.ListKeys(ctx, tenant, in.Expiring != "", in.page()))
}

type oneKeyInput struct {
	Key pathID `path:"key" doc:"Id of the key." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
}

func (o oneKeyInput) Exists() error { return o.Key.exists() }

// NotFound implements api.Named.
func (oneKeyInput) NotFound() string { return "There is no API key with that id." }

func (s *server) getKey(ctx context.Context, tenant int32, in *oneKeyInput) (*answer[tenants.Key], error) {
	return show(s.Store.Tenants.GetKey(ctx, tenant, in.Key.id))
}

func (s *server) revokeKey(ctx context.Context, tenant int32, in *oneKeyInput) (*struct{}, error) {
	record, err := s.Store.Tenants.GetKey(ctx, tenant, in.Key.id)
	if err != nil {
		return nil, err
	}
	if c := auth.CallerOf(ctx); !c.Role.Includes(auth.Role(record.Role)) {
		return nil, problem.New(problem.CodeForbidden,
			fmt.Sprintf("Revoking a key of the role %s needs that role; your role is %s.", record.Role, c.Role))
	}
	return nil, s.Store.Tenants.RevokeKey(ctx, tenant, in.Key.id)
}
