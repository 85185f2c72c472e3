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
	"punctual/httpapi/problem"
)

// MaxBody bounds bodies, in bytes, unless an operation has another bound.
const MaxBody = 1 << 20

// API is a set of operations, with their description.
type API struct {
	huma.API
	Log        *slog.Logger
	NotFound   string       // what operations whose path names nothing say of a thing that does not exist
	Missing    []string     // what operations lack
	Operations []*Operation // in their order

	// Past is a middleware of the operations of the past; nil: there is none. It knows the caller.
	Past func(huma.Context, func(huma.Context))

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
	Errors  []int // besides what every caller may get, 409 with a Conflict, and 422 if it has parameters
	MaxBody int64 // in bytes; 0: MaxBody
	Past    bool  // it shows what is final, so a standby may answer it; a list of runs if only those are asked for

	Conflict error          // an example of an answer with 409; nil: there is none
	Codes    []problem.Code // of further answers: with 409, and those of few operations
	Lacks    []string       // headers of its type that its answer with success does not have
	Asks     string         // an example of its body; empty: the examples of the fields make one
	Answers  []string       // how an example of its answer differs from what the fields say: merge patches

	Responses   map[string]*huma.Response
	RequestBody *huma.RequestBody
	Description string
	NotFound    string          // what it says of a thing that does not exist, unless its input says that
	Doc         *huma.Operation // its description, once it is registered
}

// Register adds an operation. An error of its handler is answered as a problem.
func Register[I, O any](a *API, o Operation, handle func(context.Context, int32, *I) (*O, error)) {
	register(a, &o, o.described(), handle)
}

func (o Operation) described() huma.Operation {
	method, path, _ := strings.Cut(o.Route, " ")
	op := huma.Operation{
		OperationID: o.ID, Method: method, Path: path, Tags: []string{o.Tag}, Summary: o.Summary, Description: o.Description,
		DefaultStatus: o.Status, Errors: o.Errors, MaxBodyBytes: o.MaxBody, Responses: o.Responses,
		RequestBody: o.RequestBody, RejectUnknownQueryParameters: true,
	}
	if o.Role != auth.RoleNone {
		op.Extensions = map[string]any{"x-punctual-role": o.Role}
	}
	if o.Conflict != nil {
		op.Errors = append(op.Errors, http.StatusConflict)
	}
	return op
}

func register[I, O any](
	a *API, o *Operation, op huma.Operation, handle func(context.Context, int32, *I) (*O, error),
) {
	a.Operations = append(a.Operations, o)
	switch {
	case o.Role != auth.RoleNone:
		op.Middlewares = append(op.Middlewares, a.authorize(o.Role))
		op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
			http.StatusTooManyRequests)
	case !o.Open:
		a.Missing = append(a.Missing, "a role for "+o.ID)
	}
	if o.Past && a.Past != nil {
		op.Middlewares = append(op.Middlewares, a.Past)
	}
	if named, is := any(new(I)).(Named); is {
		o.NotFound = named.NotFound()
	} else if strings.Contains(op.Path, "{") {
		a.Missing = append(a.Missing, "a check of the names in the path of "+o.ID)
	}
	o.NotFound = cmp.Or(o.NotFound, a.NotFound)
	huma.Register(a, op, func(ctx context.Context, in *I) (*O, error) {
		tenant := auth.CallerOf(ctx).Tenant.ID
		if o.Role != auth.RoleNone && tenant == 0 { // the store would take 0 as every tenant
			return nil, a.Problem(ctx, errors.New("a request without a tenant"), "")
		}
		if named, ok := any(in).(Named); ok {
			if err := named.Exists(); err != nil {
				return nil, a.Problem(ctx, err, o.NotFound)
			}
		}
		out, err := handle(ctx, tenant, in)
		if err != nil {
			return nil, a.Problem(ctx, err, o.NotFound)
		}
		return out, nil
	})
}

// DocumentOperation implements huma.OperationDocumenter: the operation keeps its description.
func (a *API) DocumentOperation(op *huma.Operation) {
	a.OpenAPI().AddOperation(op)
	a.Operations[len(a.Operations)-1].Doc = op
}

// Named is implemented by inputs that name a thing. A malformed name or id never reaches the database, nor the
// handler: Exists returns what is answered for a thing that does not exist. NotFound says that for people.
type Named interface {
	Exists() error
	NotFound() string
}

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
	register(a, &o, op, handle)
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
			a.Problem(ctx, err, "").Write(w)
			return
		}
		next(huma.WithContext(hc, c.Within(ctx)))
	}
}
