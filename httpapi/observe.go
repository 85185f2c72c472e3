package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi/api"
)

// observer logs and measures every request.
type observer struct {
	log     *slog.Logger
	seconds *prometheus.HistogramVec
}

func newObserver(log *slog.Logger, registerer prometheus.Registerer) (*observer, error) {
	o := &observer{log: log, seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "punctual_http_request_duration_seconds",
		Help:    "Time from reading a request to the API to the end of its response, by route, method and class of status.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"method", "route", "status"})}
	if registerer != nil {
		if err := registerer.Register(o.seconds); err != nil {
			return nil, fmt.Errorf("registering the request metrics: %w", err)
		}
	}
	return o, nil
}

// measured are the methods that metrics tell apart. A fixed list keeps clients from creating series without end.
var measured = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

func (o *observer) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			status := ww.Status()
			if status == 0 {
				status = http.StatusOK
			}
			o.done(r, status, ww.BytesWritten(), time.Since(begun))
		}()
		next.ServeHTTP(ww, r)
	})
}

func (o *observer) done(r *http.Request, status, size int, took time.Duration) {
	// The pattern, not the path: the router has matched by now.
	route := chi.RouteContext(r.Context()).RoutePattern()
	if status == http.StatusNotFound && (route == "" || route == "/*") || route == "" {
		route = "none"
	}
	method := r.Method
	if !slices.Contains(measured, method) {
		method = "other"
	}
	o.seconds.WithLabelValues(method, route, fmt.Sprintf("%dxx", status/100)).Observe(took.Seconds())

	level := slog.LevelDebug
	if method != http.MethodGet && method != http.MethodHead {
		level = slog.LevelInfo
	}
	if !o.log.Enabled(r.Context(), level) {
		return
	}
	o.log.LogAttrs(r.Context(), level, "request",
		slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Int("bytes", size), slog.Duration("took", took), slog.String("request_id", api.RequestID(r.Context())))
}
