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
	NotFound func(route string) string // what is said of a thing that does not exist, by the pattern of its path
	Missing  []string                  // what operations lack
	IDs      []string                  // of the operations, in their order

	// Around are further middlewares of operations. They know the caller.
	Around map[string]func(huma.Context, func(huma.Context))

	// Admit returns the caller of a request if its role suffices.
	Admit func(ctx context.Context, w http.ResponseWriter, r *http.Request, role auth.Role) (auth.Caller, error)
}

// Operation describes an operation.
type Operation struct {
	ID      string
	Route   string    // its method and path: GET /v1/jobs
	Role    auth.Role // the least role of its callers
	Open    bool      // in place of a role: its handler checks a token
	Tag     string    // the group that it belongs to
	Summary string
	Status  int   // of success; 0: what huma chooses
	Errors  []int // besides what every caller may get, and besides 422 if it has parameters
	MaxBody int64 // in bytes; 0: MaxBody

	Responses   map[string]*huma.Response
	RequestBody *huma.RequestBody
	Description string
}

const roleExtension = "x-punctual-role"

// RoleOf returns the least role of the callers of an operation.
func RoleOf(op *huma.Operation) auth.Role {
	role, _ := op.Extensions[roleExtension].(auth.Role)
	return role
}

// Register adds an operation. An error of its handler is answered as a problem.
func Register[I, O any](a *API, o Operation, handle func(context.Context, int32, *I) (*O, error)) {
	register(a, o.described(), o.Open, handle)
}

func (o Operation) described() huma.Operation {
	method, path, _ := strings.Cut(o.Route, " ")
	op := huma.Operation{
		OperationID: o.ID, Method: method, Path: path, Tags: []string{o.Tag}, Summary: o.Summary, Description: o.Description,
		DefaultStatus: o.Status, Errors: o.Errors, MaxBodyBytes: o.MaxBody, Responses: o.Responses,
		RequestBody: o.RequestBody, RejectUnknownQueryParameters: true,
	}
	if o.Role != auth.RoleNone {
		op.Extensions = map[string]any{roleExtension: o.Role}
	}
	return op
}

func register[I, O any](
	a *API, op huma.Operation, open bool, handle func(context.Context, int32, *I) (*O, error),
) {
	a.IDs = append(a.IDs, op.OperationID)
	role := RoleOf(&op)
	switch {
	case role != auth.RoleNone:
		op.Middlewares = append(op.Middlewares, a.authorize(role))
		op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
			http.StatusTooManyRequests)
	case !open:
		a.Missing = append(a.Missing, "a role for "+op.OperationID)
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

// RegisterBody adds an operation with a body, which its handler reads as a [body.Body] of B. The errors of o are those
// that it has besides what is said of every body.
func RegisterBody[B, I, O any](
	a *API, o Operation, need bool, handle func(context.Context, int32, *I) (*O, error),
) {
	op := o.described()
	op.MaxBodyBytes = cmp.Or(op.MaxBodyBytes, MaxBody)
	op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
	op.RequestBody = &huma.RequestBody{Required: need}
	register(a, op, o.Open, handle)
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
