package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler"
	"punctual/store"
	"punctual/store/pg"
)

// readyTimeout bounds the check of the database: a prober waits seconds at most.
const readyTimeout = 2 * time.Second

// operationsRoutes adds the endpoints for load balancers, monitors and first visits.
func (s *server) operationsRoutes(mux chi.Router) {
	mux.Get("/", s.root)
	mux.Get("/healthz", alive)
	mux.Get("/readyz", s.ready)
	if s.Gatherer != nil {
		mux.Method(http.MethodGet, "/metrics", s.only(auth.RoleMetrics, scrapes(s.Gatherer)))
	}
}

// mostScrapes bounds the scrapes that are answered at once, as each queries the database.
const mostScrapes = 4

func scrapes(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes})
}

// MetricsOnly returns the handler for a separate metrics address: /metrics and /healthz, without authentication.
func MetricsOnly(from prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrapes(from))
	mux.HandleFunc("GET /healthz", alive)
	return secure(notARun(mux))
}

func alive(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]string{"status": "ok"}) }

// root shows browsers the first page, or the documentation, and tells programs what this server is.
func (s *server) root(w http.ResponseWriter, r *http.Request) {
	if wantsPage(r) {
		if s.Pages != nil {
			s.Pages.Home(w, r)
		} else {
			http.Redirect(w, r, "/docs", http.StatusSeeOther)
		}
		return
	}
	writeJSON(w,
		map[string]string{"service": "punctual", "version": s.Version, "docs": "/docs", "openapi": "/openapi.json"})
}

// ready answers whether this replica should get requests.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.readiness(ctx); err != nil {
		detail := notReadyDetail(err)
		// Many probers ask about every second, so a reason they know is not logged again.
		if s.unready.Swap(detail) != detail {
			s.Log.WarnContext(ctx, "not ready", "error", err)
		}
		problem.New(problem.CodeNotReady, detail).Write(w)
		return
	}
	if was, _ := s.unready.Swap("").(string); was != "" {
		s.Log.InfoContext(ctx, "ready again")
	}
	answer := readyAnswer{Status: "ready"}
	if all, err := s.freezes.all(ctx); err == nil && all.Deployment != nil {
		answer.FrozenSince, answer.FrozenReason = &all.Deployment.Since, all.Deployment.Reason
	}
	if s.Lacks != nil {
		answer.Lacks = s.Lacks()
	}
	writeJSON(w, answer)
}

// readyAnswer is the answer to a prober. A replica whose deployment is frozen is ready, and so is one that lacks what
// requests need: they serve the API.
type readyAnswer struct {
	Status       string                 `json:"status"`
	FrozenSince  *time.Time             `json:"frozen_since,omitempty"`
	FrozenReason scheduler.FreezeReason `json:"frozen_reason,omitempty"`
	Lacks        string                 `json:"lacks,omitempty"`
}

// unreadyError is a reason that comes from the process itself.
type unreadyError struct{ error }

func (s *server) readiness(ctx context.Context) error {
	if s.Ready != nil {
		if err := s.Ready(ctx); err != nil {
			return unreadyError{err}
		}
	}
	if err := s.Store.CheckSchema(ctx); err != nil {
		return err
	}
	if err := s.Store.CheckTenants(ctx); err != nil {
		return err
	}
	return s.Store.CheckWrites()
}

// notReadyDetail returns the reason without details for operators only, such as the database's address.
func notReadyDetail(err error) string {
	var own unreadyError
	var schema *store.SchemaError
	var write *pg.WriteError
	var acting *pg.ActingError
	switch {
	case errors.As(err, &own):
		return problem.Sentence(own)
	case errors.As(err, &schema):
		return problem.Sentence(schema)
	case errors.As(err, &write):
		return problem.Sentence(write)
	case errors.As(err, &acting):
		return problem.Sentence(acting)
	}
	return "The database cannot be reached."
}

func writeJSON(w http.ResponseWriter, v any) {
	raw, err := body.Render(v)
	if err != nil {
		problem.New(problem.CodeInternal, "The response cannot be rendered.").Write(w)
		return
	}
	w.Header().Set("Content-Type", body.MediaJSON)
	_, _ = w.Write(append(raw, '\n')) // the client may be gone
}
