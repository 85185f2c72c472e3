package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler"
	"punctual/store"
	"punctual/store/freeze"
	"punctual/store/pg"
)

func (s *server) freezeRoutes() {
	api.Register(s.api, api.Operation{
		ID: "get-freeze", Route: "GET /v1/freeze", Role: auth.RoleViewer, Tag: tagFleet, Summary: "Get what is frozen",
		Answers:     []string{exampleFrozen},
		Description: "Says whether the deployment or the caller's tenant is frozen, and how many runs are in flight.",
	}, s.getFreeze)
	api.RegisterBody[FreezeInput](s.api, api.Operation{
		ID: "freeze", Route: "POST /v1/freeze", Role: auth.RoleAdmin, Tag: tagFleet,
		Summary: "Freeze the deployment or a tenant",
		Answers: []string{exampleFrozen},
		Description: "From the response on, no replica claims anything: no slots, retries, triggers, replays or notices. " +
			"Runs in flight continue, and the response counts them. Jobs can still be written and triggered. Only operators " +
			"freeze the deployment. A deployment or tenant that is frozen already stays as it is.",
	}, api.Required, s.setFreeze((*freeze.Switch).Freeze))
	api.RegisterBody[FreezeInput](s.api, api.Operation{
		ID: "unfreeze", Route: "POST /v1/unfreeze", Role: auth.RoleAdmin, Tag: tagFleet,
		Summary: "Unfreeze the deployment or a tenant",
		Description: "Replicas claim again within three seconds. Slots that passed during the freeze are late or missed, " +
			"by the policy of each job, as after an outage. Only operators unfreeze the deployment. That also makes this " +
			"database the one that runs are dispatched from. A tenant stays frozen while the deployment is frozen.",
	}, api.Required, s.setFreeze((*freeze.Switch).Unfreeze))
}

// FreezeScope says what a freeze or a forecast covers: the deployment or one tenant.
type FreezeScope string

// The scopes.
const (
	ScopeDeployment FreezeScope = "deployment"
	ScopeTenant     FreezeScope = "tenant"
)

// FreezeInput is the body that freezes and unfreezes. The scope has no default, so that a caller never freezes more
// than they meant.
type FreezeInput struct {
	Scope FreezeScope `json:"scope" enum:"deployment,tenant" doc:"deployment: all tenants, which needs an operator. tenant: the tenant that the request acts for." example:"tenant"`
	Note  string      `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read. The note of a frozen deployment is shown to all tenants. Absent: none." example:"the warehouse moves"`
}

func (f FreezeInput) validate() []problem.FieldError {
	return append(f.Scope.validate("body.scope"), note(f.Note)...)
}

func (f FreezeScope) validate(at string) []problem.FieldError {
	switch f {
	case ScopeDeployment, ScopeTenant:
		return nil
	case "":
		return []problem.FieldError{problem.At(at, "is missing; write deployment or tenant")}
	}
	return []problem.FieldError{problem.At(at, problem.Clip(string(f))+" is not one of deployment, tenant")}
}

// Frozen says since when nothing is claimed, and why.
type Frozen struct {
	Scope  FreezeScope            `json:"scope" enum:"deployment,tenant" doc:"The frozen scope." example:"deployment"`
	Since  time.Time              `json:"since" doc:"Since when."`
	By     *string                `json:"by" doc:"Who froze it. For the deployment, only operators see this; other callers get null." example:"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"`
	Note   *string                `json:"note" doc:"Why, if the caller gave a note." example:"the warehouse moves"`
	Reason scheduler.FreezeReason `json:"reason" enum:"asked,restored" doc:"asked: a caller or a command froze it. restored: runs were last dispatched from another database, as is the case after a dump was restored." example:"asked"`
}

// FreezeState says what is frozen: the deployment, the tenant, both or neither.
type FreezeState struct {
	Deployment *Frozen `json:"deployment" doc:"The freeze of the deployment. Null: the deployment is not frozen."`
	Tenant     *Frozen `json:"tenant" doc:"The freeze of the tenant that the request acts for. Null: the tenant itself is not frozen."`
	InFlight   int     `json:"in_flight" maximum:"10000" doc:"Runs in flight: those of the tenant, or with the scope deployment, those of all tenants. 10000: 10,000 or more." example:"12"`
}

type getFreezeInput struct {
	Scope FreezeScope `query:"scope" enum:"deployment,tenant" default:"tenant" doc:"Which runs in flight are counted. deployment: those of all tenants, which needs an operator. tenant: those of the tenant." example:"tenant"`
}

// setFreeze freezes or unfreezes.
func (s *server) setFreeze(
	set func(*freeze.Switch, context.Context, int32, string) (freeze.State, error),
) func(context.Context, int32, *body.Body[FreezeInput]) (*answer[FreezeState], error) {
	return func(ctx context.Context, tenant int32, in *body.Body[FreezeInput]) (*answer[FreezeState], error) {
		asked := in.Value
		if err := in.Check(asked.validate()...); err != nil {
			return nil, err
		}
		scope, err := asked.Scope.of(ctx, tenant)
		if err != nil {
			return nil, err
		}
		_, err = set(s.Store.Freezes, ctx, scope, asked.Note)
		s.freezes.forget()
		if err != nil {
			return nil, err
		}
		return s.freezeState(ctx, tenant, scope)
	}
}

func (s *server) getFreeze(ctx context.Context, tenant int32, in *getFreezeInput) (*answer[FreezeState], error) {
	scope, err := in.Scope.of(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return s.freezeState(ctx, tenant, scope)
}

// of returns the tenant, or store.Deployment for the scope deployment, which only operators may use.
func (f FreezeScope) of(ctx context.Context, tenant int32) (int32, error) {
	if f != ScopeDeployment {
		return tenant, nil
	}
	if c := auth.CallerOf(ctx); !c.Role.Includes(auth.RoleOperator) {
		return 0, auth.Forbidden(auth.RoleOperator, c.Role)
	}
	return freeze.Deployment, nil
}

// freezeState reads what is frozen for a tenant, and counts the runs in flight of the scope.
func (s *server) freezeState(ctx context.Context, tenant, scope int32) (*answer[FreezeState], error) {
	state, err := s.Store.Freezes.FreezeState(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if scope == freeze.Deployment {
		all, err := s.Store.Freezes.FreezeState(ctx, scope)
		if err != nil {
			return nil, err
		}
		state.InFlight = all.InFlight
	}
	role := auth.CallerOf(ctx).Role
	return &answer[FreezeState]{FreezeState{
		Deployment: showFrozen(state.Deployment, ScopeDeployment, role), Tenant: showFrozen(state.Tenant, ScopeTenant, role),
		InFlight: state.InFlight,
	}}, nil
}

// showFrozen shows a freeze. Which operator froze the deployment is shown to operators only.
func showFrozen(f *scheduler.Freeze, scope FreezeScope, role auth.Role) *Frozen {
	if f == nil {
		return nil
	}
	shown := Frozen{Scope: scope, Since: f.Since.UTC(), By: pg.OrNull(f.By), Note: pg.OrNull(f.Note), Reason: f.Reason}
	if scope == ScopeDeployment && !role.Includes(auth.RoleOperator) {
		shown.By = nil
	}
	return &shown
}

// headerFrozen is on every answer to a caller for whose tenant nothing is claimed now.
const headerFrozen = "Punctual-Frozen"

// freezesRemembered is how long a reading of the freezes is reused.
const freezesRemembered = time.Second

// freezeBook knows what is frozen, as of one second ago at most.
type freezeBook struct {
	store *store.Store

	mu    sync.Mutex
	known freeze.Freezes
	until time.Time
}

// forget makes the next request read the freezes anew.
func (b *freezeBook) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
}

// all returns what is frozen. While one request reads it, the others wait for that reading.
func (b *freezeBook) all(ctx context.Context) (freeze.Freezes, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.until) {
		return b.known, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auth.LookupTimeout)
	defer cancel()
	known, err := b.store.Freezes.Freezes(ctx)
	if err != nil {
		return freeze.Freezes{}, err
	}
	b.known, b.until = known, time.Now().Add(freezesRemembered)
	return known, nil
}

// of returns the freeze that covers a tenant. It returns nil when there is none, or when the freezes cannot be read.
func (b *freezeBook) of(ctx context.Context, tenant int32, role auth.Role) *Frozen {
	all, err := b.all(ctx)
	if err != nil {
		return nil
	}
	freeze, whose := all.Of(tenant)
	return showFrozen(freeze, FreezeScope(whose), role)
}

// tell sets the header of an answer to the caller. When the freezes cannot be read, the answer goes out without it.
func (b *freezeBook) tell(ctx context.Context, c auth.Caller, header http.Header) {
	if f := b.of(ctx, c.Tenant.ID, c.Role); f != nil {
		header.Set(headerFrozen, string(f.Scope)+"; since="+f.Since.Format(time.RFC3339)+"; reason="+string(f.Reason))
	}
}
