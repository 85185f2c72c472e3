package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/store/tenants"
)

// NewHandler returns the handler of all routes.
func NewHandler(c Config) (http.Handler, error) {
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
	mux.Use(api.Identify, observe.middleware, drain, s.recoverer, secure, notARun)
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
		API: humachi.New(mux, humaConfig(c.Version)), Log: c.Log, Admit: s.admit, NotFound: noSuchJob,
	}
	if c.Store.HasStandby() {
		s.api.Past = s.readPast
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
	s.asideRoutes()
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
