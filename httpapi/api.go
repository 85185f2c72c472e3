package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/store"
)

// Config is what the API needs. Store is required, everything else may be absent.
type Config struct {
	Store         *store.Store
	Log           *slog.Logger
	Version       string                          // of the binary, shown at /
	Gatherer      prometheus.Gatherer             // what /metrics shows
	Registerer    prometheus.Registerer           // where the request metrics go
	DefaultJitter time.Duration                   // the deployment's, to tell when upcoming slots are due
	Tenant        string                          // who every request acts for; "default" when empty
	Ready         func(ctx context.Context) error // a further condition of readiness, such as not draining; its text is shown
}

// requestTimeout bounds what one request may wait for the database.
const requestTimeout = 30 * time.Second

type server struct {
	Config
	api     huma.API
	tenant  atomic.Int32 // id of Config.Tenant; 0: not looked up yet
	unready atomic.Value // string: what the last probe was told; empty: ready
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
		c.Tenant = "default"
	}
	s := &server{Config: c}
	observe, err := newObserver(c.Log, c.Registerer)
	if err != nil {
		return nil, err
	}
	mux := chi.NewMux()
	mux.Use(identify, observe.middleware, s.recoverer, secure, s.sameOrigin, middleware.GetHead, s.checkQuery, s.limitTime)
	mux.NotFound(s.noRoute)
	mux.MethodNotAllowed(s.wrongMethod)

	s.api = humachi.New(mux, humaConfig())
	s.jobRoutes()
	s.runRoutes()
	s.callbackRoutes()
	s.deadLetterRoutes()
	s.backfillRoutes()
	s.bulkRoutes()
	s.scheduleRoutes()
	s.explainRoutes()
	s.fleetRoutes()
	s.describe()
	if err := s.documentRoutes(mux); err != nil {
		return nil, err
	}
	s.operationsRoutes(mux)
	return mux, nil
}

// tenantID returns the tenant the request acts for.
func (s *server) tenantID(ctx context.Context) (int32, error) {
	if id := s.tenant.Load(); id != 0 {
		return id, nil
	}
	id, err := s.Store.TenantID(ctx, s.Tenant)
	switch {
	case errors.Is(err, store.ErrNotFound): // the server's mistake, not the request's
		return 0, fmt.Errorf("the configured tenant %q does not exist", s.Tenant)
	case err != nil:
		return 0, err
	}
	s.tenant.Store(id)
	return id, nil
}

// register adds an operation. What its handler returns as an error leaves as a problem.
func register[I, O any](s *server, op huma.Operation, handle func(context.Context, int32, *I) (*O, error)) *huma.Operation {
	op.RejectUnknownQueryParameters = true
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		tenant, err := s.tenantID(ctx)
		if err == nil {
			var out *O
			if out, err = handle(ctx, tenant, in); err == nil {
				return out, nil
			}
		}
		return nil, s.problem(ctx, err)
	})
	return operation(s.api.OpenAPI(), op.Method, op.Path)
}
