package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/tenants"
)

// Config configures the API. Store is required, every other field may be absent.
type Config struct {
	Store         *store.Store
	Log           *slog.Logger
	Version       string                          // of the binary, shown at /
	Gatherer      prometheus.Gatherer             // what /metrics shows
	Registerer    prometheus.Registerer           // where the request metrics go
	DefaultJitter time.Duration                   // of the deployment: says when upcoming slots are due
	NoAuth        bool                            // no authentication: every caller is an operator
	Tenant        string                          // of requests with NoAuth that name none; empty: "default"
	OIDC          auth.OIDC                       // whose tokens are accepted beside keys
	Guard         *guard.Guard                    // which addresses jobs may call, to check URLs
	OnlyLocal     bool                            // answer only requests to localhost, an address or PublicHost
	PublicHost    string                          // host under which targets reach the API; may be empty
	Origin        domain.Origin                   // what requests tell of the deployment, to show them
	Courier       *scheduler.Courier              // sends test notices; nil: they fail
	Mailer        *delivery.Mailer                // to which addresses e-mail may go; nil: to none
	Ready         func(ctx context.Context) error // also needed to be ready; its error is shown
	Lacks         func() string                   // what this replica lacks to send requests; empty: nothing
	Pages         Pages                           // for people; nil: none

	timeout time.Duration // of a request; 0: requestTimeout
}

// Pages are the pages for people. They call the API as any client does.
type Pages interface {
	// Routes adds the pages to a router. api answers their calls.
	Routes(mux chi.Router, api http.Handler)
	// Home shows the first page.
	Home(w http.ResponseWriter, r *http.Request)
	// Refuse says that there is no page for a request.
	Refuse(w http.ResponseWriter, r *http.Request, why *problem.Problem)
}

// requestTimeout bounds what one request may wait for the database.
const requestTimeout = 30 * time.Second

type server struct {
	Config
	api     huma.API
	callers *auth.Callers
	freezes *freezeBook
	outlook *forecastBook
	missing []string     // what operations lack
	unready atomic.Value // string: the last probe's reason; empty: ready
}

// New returns the handler of all routes.
func New(c Config) (http.Handler, error) {
	if c.Store == nil {
		return nil, errors.New("httpapi: Config.Store is required")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Tenant == "" {
		c.Tenant = tenants.DefaultTenant
	}
	c.timeout = cmp.Or(c.timeout, requestTimeout)
	s := &server{
		Config: c, freezes: &freezeBook{store: c.Store}, outlook: newForecastBook(c.Store),
		callers: auth.New(auth.Config{Store: c.Store, Log: c.Log, NoAuth: c.NoAuth, Tenant: c.Tenant, OIDC: c.OIDC}),
	}
	observe, err := newObserver(c.Log, c.Registerer)
	if err != nil {
		return nil, err
	}
	mux := chi.NewMux()
	mux.Use(identify, observe.middleware, s.recoverer, secure, notARun)
	if c.OnlyLocal {
		mux.Use(onlyHost(c.PublicHost))
	}
	mux.Use(s.sameOrigin, middleware.GetHead, s.checkQuery, s.limitTime)
	mux.NotFound(s.noRoute)
	mux.MethodNotAllowed(s.wrongMethod)

	s.api = humachi.New(mux, humaConfig())
	s.jobRoutes()
	s.runRoutes()
	s.callbackRoutes()
	s.deadLetterRoutes()
	s.backfillRoutes()
	s.bulkRoutes()
	s.bulkJobRoutes()
	s.scheduleRoutes()
	s.forecastRoutes()
	s.explainRoutes()
	s.callerRoutes()
	s.keyRoutes()
	s.tenantRoutes()
	s.notifyRoutes()
	s.auditRoutes()
	s.secretRoutes()
	s.fleetRoutes()
	s.overviewRoutes()
	s.freezeRoutes()
	if len(s.missing) > 0 {
		return nil, fmt.Errorf("httpapi: missing: %s", strings.Join(s.missing, ", "))
	}
	s.describe()
	s.documentRoutes(mux)
	s.operationsRoutes(mux)
	if s.Pages != nil {
		s.Pages.Routes(mux, mux)
	}
	return mux, nil
}

// register adds an operation. Callers need the role that roleOf gives it. An error of its handler is answered as a
// problem. The errors of op are those that it has besides what every caller may get, and besides 422 if it has
// parameters.
func register[I, O any](s *server, op huma.Operation, handle func(context.Context, int32, *I) (*O, error)) {
	op.RejectUnknownQueryParameters = true
	role, known := roleOf[op.OperationID]
	switch {
	case !known:
		s.missing = append(s.missing, "a line in roleOf for "+op.OperationID)
	case role != auth.RoleNone:
		op.Middlewares = append(op.Middlewares, s.authorize(role))
		op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
			http.StatusTooManyRequests)
	}
	if _, named := any(new(I)).(naming); !named && strings.Contains(op.Path, "{") {
		s.missing = append(s.missing, "a check of the names in the path of "+op.OperationID)
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		tenant := auth.CallerOf(ctx).Tenant.ID
		if role != auth.RoleNone && tenant == 0 { // the store would take 0 as every tenant
			return nil, s.problem(ctx, errors.New("a request without a tenant"))
		}
		if named, ok := any(in).(naming); ok {
			if err := named.exists(); err != nil {
				return nil, s.problem(ctx, err)
			}
		}
		out, err := handle(ctx, tenant, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return out, nil
	})
}

// naming is implemented by inputs that name a thing. A malformed name or id never reaches the database, nor the
// handler: exists returns what is answered for a thing that does not exist.
type naming interface{ exists() error }

// Whether an operation needs its body.
const (
	required = true
	optional = false
)

// registerBody adds an operation with a body, which its handler reads as a body[B]. The errors of op are those that it
// has besides what is said of every body.
func registerBody[B, I, O any](
	s *server, op huma.Operation, need bool, example any, handle func(context.Context, int32, *I) (*O, error),
) {
	op.MaxBodyBytes = cmp.Or(op.MaxBodyBytes, maxBody)
	op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
	op.RequestBody = &huma.RequestBody{Required: need}
	register(s, op, handle)
	// Described only now: huma would read a body that it knows the schema of. body.Resolve goes by this too.
	media := &huma.MediaType{Schema: s.schema(reflect.TypeFor[B]()), Example: example}
	op.RequestBody.Content = map[string]*huma.MediaType{mediaJSON: media}
	if op.Method == http.MethodPatch {
		op.RequestBody.Content[mediaPatch] = media
	}
}
