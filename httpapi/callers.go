package httpapi

import (
	"context"
	"net/http"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/store/audit"
	"punctual/store/pg"
)

// only admits callers whose role suffices for handlers that are not described as operations.
func (s *server) only(role auth.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(r.Context(), w, r, role)
		if err != nil {
			s.api.Problem(r.Context(), err).Write(w)
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
