package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi/api"
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
	api     *api.API
	callers *auth.Callers
	freezes *freezeBook
	outlook *forecastBook
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
	mux.Use(api.Identify, observe.middleware, s.recoverer, secure, notARun)
	if c.OnlyLocal {
		mux.Use(onlyHost(c.PublicHost))
	}
	mux.Use(s.sameOrigin, middleware.GetHead, s.checkQuery, s.limitTime)
	if c.Store.HasStandby() {
		mux.Use(s.positioned)
	}
	mux.NotFound(s.noRoute)
	mux.MethodNotAllowed(s.wrongMethod)

	s.api = &api.API{
		API: humachi.New(mux, humaConfig()), Log: c.Log, Admit: s.admit, NotFound: notFound, Around: s.past(),
	}
	// In the order of the documentation: what is used every day comes first.
	s.jobRoutes()
	s.jobWriteRoutes()
	s.jobActionRoutes()
	s.datedRoutes()
	s.backfillRoutes()
	s.versionRoutes()
	s.batchRoutes()
	s.bulkJobRoutes()
	s.runRoutes()
	s.approvalRoutes()
	s.callbackRoutes()
	s.deadLetterRoutes()
	s.bulkRoutes()
	s.eventRoutes()
	s.explainRoutes()
	s.scheduleRoutes()
	s.forecastRoutes()
	s.callerRoutes()
	s.keyRoutes()
	s.tenantRoutes()
	s.grantRoutes()
	s.notifyRoutes()
	s.secretRoutes()
	s.overviewRoutes()
	s.fleetRoutes()
	s.limitRoutes()
	s.freezeRoutes()
	s.auditRoutes()
	if len(s.api.Missing) > 0 {
		return nil, fmt.Errorf("httpapi: missing: %s", strings.Join(s.api.Missing, ", "))
	}
	s.describe()
	s.documentRoutes(mux)
	s.operationsRoutes(mux)
	if s.Pages != nil {
		s.Pages.Routes(mux, mux)
	}
	return mux, nil
}
