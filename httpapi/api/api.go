package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"punctual/httpapi/auth"
	"punctual/httpapi/body"
)

// MaxBody bounds bodies, in bytes, unless an operation has another bound.
const MaxBody = 1 << 20

// API is a set of operations, with their description.
type API struct {
	huma.API
	Log      *slog.Logger
	Roles    map[string]auth.Role      // the least role of every operation
	NotFound func(route string) string // what is said of a thing that does not exist, by the pattern of its path
	Missing  []string                  // what operations lack

	// Around are further middlewares of operations. They know the caller.
	Around map[string]func(huma.Context, func(huma.Context))

	// Admit returns the caller of a request if its role suffices.
	Admit func(ctx context.Context, w http.ResponseWriter, r *http.Request, role auth.Role) (auth.Caller, error)
}

// Register adds an operation. Callers need the role that Roles gives it. An error of its handler is answered as a
// problem. The errors of op are those that it has besides what every caller may get, and besides 422 if it has
// parameters.
func Register[I, O any](a *API, op huma.Operation, handle func(context.Context, int32, *I) (*O, error)) {
	op.RejectUnknownQueryParameters = true
	role, known := a.Roles[op.OperationID]
	switch {
	case !known:
		a.Missing = append(a.Missing, "a role for "+op.OperationID)
	case role != auth.RoleNone:
		op.Middlewares = append(op.Middlewares, a.authorize(role))
		op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
			http.StatusTooManyRequests)
	}
	if around := a.Around[op.OperationID]; around != nil {
		op.Middlewares = append(op.Middlewares, around)
	}
	if _, named := any(new(I)).(Named); !named && strings.Contains(op.Path, "{") {
		a.Missing = append(a.Missing, "a check of the names in the path of "+op.OperationID)
	}
	huma.Register(a.API, op, func(ctx context.Context, in *I) (*O, error) {
		tenant := auth.CallerOf(ctx).Tenant.ID
		if role != auth.RoleNone && tenant == 0 { // the store would take 0 as every tenant
			return nil, a.Problem(ctx, errors.New("a request without a tenant"))
		}
		if named, ok := any(in).(Named); ok {
			if err := named.Exists(); err != nil {
				return nil, a.Problem(ctx, err)
			}
		}
		out, err := handle(ctx, tenant, in)
		if err != nil {
			return nil, a.Problem(ctx, err)
		}
		return out, nil
	})
}

// Named is implemented by inputs that name a thing. A malformed name or id never reaches the database, nor the
// handler: Exists returns what is answered for a thing that does not exist.
type Named interface{ Exists() error }

// Whether an operation needs its body.
const (
	Required = true
	Optional = false
)

// RegisterBody adds an operation with a body, which its handler reads as a [body.Body] of B. The errors of op are those
// that it has besides what is said of every body.
func RegisterBody[B, I, O any](
	a *API, op huma.Operation, need bool, handle func(context.Context, int32, *I) (*O, error),
) {
	op.MaxBodyBytes = cmp.Or(op.MaxBodyBytes, MaxBody)
	op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
	op.RequestBody = &huma.RequestBody{Required: need}
	Register(a, op, handle)
	// Described only now: huma would read a body that it knows the schema of. body goes by this too.
	media := &huma.MediaType{Schema: a.schema(reflect.TypeFor[B]())}
	op.RequestBody.Content = map[string]*huma.MediaType{body.MediaJSON: media}
	if op.Method == http.MethodPatch {
		op.RequestBody.Content[body.MediaPatch] = media
	}
}

func (a *API) schema(of reflect.Type) *huma.Schema {
	return a.OpenAPI().Components.Schemas.Schema(of, true, "")
}

// Rendered describes an answer that the handler renders itself.
func Rendered[T any](a *API, status int) map[string]*huma.Response {
	return map[string]*huma.Response{strconv.Itoa(status): {
		Description: http.StatusText(status),
		Content:     map[string]*huma.MediaType{body.MediaJSON: {Schema: a.schema(reflect.TypeFor[T]())}},
	}}
}

// authorize admits callers whose role suffices for an operation. It runs before anything else of the request is read.
func (a *API) authorize(role auth.Role) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(hc)
		ctx := hc.Context()
		c, err := a.Admit(ctx, w, r, role)
		if err != nil {
			a.Problem(ctx, err).Write(w)
			return
		}
		next(huma.WithContext(hc, c.Within(ctx)))
	}
}
