package httpapi

import (
	"context"
	"slices"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/limits"
)

func (s *server) limitRoutes() {
	api.RegisterBody[LimitInput](s.api, api.Operation{
		ID: "put-limit", Route: "PUT /v1/limits/{limit}", Role: auth.RoleEditor, Tag: tagFleet,
		Summary:  "Create or change a limit",
		Conflict: problem.New(problem.CodeLimit, "A tenant has at most 1000 limits."),
		Description: "Jobs name it in limits and share it, on all replicas. At least one of the two bounds is needed. " +
			"If it is raised, waiting runs start at once; if it is lowered, the runs that hold it end first. A tenant may have " +
			"1,000.",
	}, api.Required, s.putLimit)
	api.Register(s.api, api.Operation{
		ID: "list-limits", Route: "GET /v1/limits", Role: auth.RoleViewer, Tag: tagFleet, Summary: "List limits",
		Description: "All limits of the tenant, by name, with the runs that hold them.",
	}, s.listLimits)
	api.Register(s.api, api.Operation{
		ID: "get-limit", Route: "GET /v1/limits/{limit}", Role: auth.RoleViewer, Tag: tagFleet, Summary: "Get a limit",
		Description: "Its bounds, the runs that hold it, and the number of runs that wait.",
	}, s.getLimit)
	api.Register(s.api, api.Operation{
		ID: "delete-limit", Route: "DELETE /v1/limits/{limit}", Role: auth.RoleEditor, Tag: tagFleet,
		Summary:     "Delete a limit",
		Conflict:    problem.New(problem.CodeState, `Active or paused jobs name limit "warehouse": daily-invoice-gen.`),
		Description: "The response is 409 while active or paused jobs name the limit. It names up to ten of them.",
	}, s.deleteLimit)
}

// LimitInput is the body that creates or changes a limit.
type LimitInput struct {
	MaxRunning         *int `json:"max_running,omitempty" minimum:"1" maximum:"100000" doc:"How many runs may hold it at once, of all jobs that name it. Absent: no bound." example:"1"`
	MaxStartsPerSecond *int `json:"max_starts_per_second,omitempty" minimum:"1" maximum:"100000" doc:"How many runs may start in a second, of all jobs that name it. Above 20, a tenth of them may start together. Absent: no bound." example:"5"`
}

// mostOfLimit is the largest value that a limit can have.
const mostOfLimit = 100_000

func (in LimitInput) validate() (errors []problem.FieldError) {
	if in.MaxRunning == nil && in.MaxStartsPerSecond == nil {
		errors = append(errors, problem.At("body", "needs max_running, max_starts_per_second, or both"))
	}
	return slices.Concat(errors, upTo("body.max_running", in.MaxRunning, mostOfLimit),
		upTo("body.max_starts_per_second", in.MaxStartsPerSecond, mostOfLimit))
}

// LimitRef is the input of operations on one limit.
type LimitRef struct {
	Name string `path:"limit" doc:"Name of the limit." example:"warehouse"`
}

// Exists returns ErrNotFound for a malformed name.
func (r LimitRef) Exists() error { return mayExist(r.Name) }

// NotFound implements api.Named.
func (LimitRef) NotFound() string { return "There is no limit with that name." }

// LimitList lists all limits of a tenant.
type LimitList struct {
	Data []limits.Limit `json:"data" doc:"The limits, by name; at most 1,000."`
}

func (s *server) listLimits(ctx context.Context, tenant int32, _ *struct{}) (*answer[LimitList], error) {
	list, err := s.Store.Limits.List(ctx, tenant)
	return show(LimitList{Data: list}, err)
}

func (s *server) getLimit(ctx context.Context, tenant int32, in *LimitRef) (*answer[limits.Limit], error) {
	return show(s.Store.Limits.Get(ctx, tenant, in.Name))
}

type putLimitInput struct {
	LimitRef
	Request body.Body[LimitInput]
}

// Exists never refuses: a PUT may create the limit, and says what is wrong with its name.
func (putLimitInput) Exists() error { return nil }

func (s *server) putLimit(ctx context.Context, tenant int32, in *putLimitInput) (*written[limits.Limit], error) {
	problems := in.Request.Value.validate()
	if in.LimitRef.Exists() != nil {
		problems = append(problems, problem.At("path.limit", "must be "+jobspec.NameRule))
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	return wrote(s.Store.Limits.Put(ctx, tenant, in.Name, limits.Settings(in.Request.Value)))
}

func (s *server) deleteLimit(ctx context.Context, tenant int32, in *LimitRef) (*struct{}, error) {
	return nil, s.Store.Limits.Delete(ctx, tenant, in.Name)
}
