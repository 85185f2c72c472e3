package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"punctual/httpapi/problem"
)

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

type requestIDKey struct{}

// identify gives each request an id, and answers with it. An id that the request brings is used if it is well-formed.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(problem.HeaderRequestID)
		if !requestIDForm.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(problem.HeaderRequestID, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// resource names the kind of resource of a request's path, for people.
func resource(ctx context.Context) string {
	route := chi.RouteContext(ctx)
	if route == nil {
		return "job"
	}
	return resourceAt(route.RoutePattern())
}

// resourceAt names the kind of resource of a path pattern.
func resourceAt(pattern string) string {
	for _, r := range resources {
		if strings.HasPrefix(pattern, r.prefix) {
			return r.name
		}
	}
	return "job"
}

// resources are the kinds by path prefix; other paths are about jobs.
var resources = []struct{ prefix, name string }{
	{"/v1/runs/", "run"},
	{"/v1/jobs/{job}/versions/{version}", "version"},
	{"/v1/dead-letters/{run}", "dead letter"},
	{"/v1/operations", "operation"},
	{"/v1/api-keys", "API key"},
	{"/v1/tenant", "tenant"},
	{"/v1/secrets", "secret"},
	{"/v1/signing-secrets", "signing secret"},
	{"/v1/freeze", "tenant"},
	{"/v1/unfreeze", "tenant"},
}

// levelOf returns the log level of a failed request. A database that is away, a lock that is held or a replica that is
// busy passes, so it is a warning.
func levelOf(p *problem.Problem) slog.Level {
	if p.Code == problem.CodeDatabase || p.Code == problem.CodeLocked || p.Code == problem.CodeBusy {
		return slog.LevelWarn
	}
	return slog.LevelError
}

func errorAttrs(ctx context.Context, err error) []slog.Attr {
	return []slog.Attr{slog.String("request_id", requestID(ctx)), slog.Any("error", err)}
}

// recoverer answers 500 to a request whose handler panics, and logs the stack.
func (s *server) recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			switch {
			case cause == nil:
				return
			case errors.Is(asError(cause), http.ErrAbortHandler):
				panic(cause)
			case r.Context().Err() != nil: // the client is gone, and huma panics when it cannot write
				s.Log.LogAttrs(r.Context(), slog.LevelDebug, "response not delivered", errorAttrs(r.Context(), asError(cause))...)
				panic(http.ErrAbortHandler)
			}
			s.Log.LogAttrs(r.Context(), slog.LevelError, "request panicked",
				append(errorAttrs(r.Context(), asError(cause)), slog.String("stack", string(debug.Stack())))...)
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler) // a partial answer must not look complete
			}
			problem.New(problem.CodeInternal, internalDetail(requestID(r.Context()))).Write(w)
		}()
		next.ServeHTTP(w, r)
	})
}

func asError(cause any) error {
	if err, ok := cause.(error); ok {
		return err
	}
	return fmt.Errorf("%v", cause)
}

// secure sets the headers that keep browsers from interpreting an answer as something else. Pages set their own
// policy.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// sameOrigin refuses writes that a page of another origin makes a browser send. On a laptop, any page can reach a
// server that listens on loopback.
func (s *server) sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem.New(problem.CodeCrossOrigin, "The request comes from a page of another origin.").Write(w)
	}))
	return protection.Handler(next)
}

// limitTime bounds how long a request may wait for the database.
func (s *server) limitTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// checkQuery refuses queries that cannot be parsed, and values that the database cannot store. It also gives every
// parameter an equals sign: without it, huma reads the value of the next parameter.
func (s *server) checkQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			query, err := url.ParseQuery(r.URL.RawQuery)
			if err != nil {
				problem.New(problem.CodeMalformed,
					"The query cannot be read: a percent sign or a semicolon in it is not escaped.").Write(w)
				return
			}
			for name, values := range query {
				for _, value := range append(values, name) {
					if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
						at := "query." + strings.ToValidUTF8(problem.Clip(name), "?")
						problem.Invalid(problem.At(at, "must be UTF-8 without NUL characters")).Write(w)
						return
					}
				}
			}
			r.URL.RawQuery = query.Encode()
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	s.refuse(w, r, problem.New(problem.CodeNoRoute, "No operation has this path; /docs lists all operations."))
}

// refuse answers programs with a problem, and browsers with a page, unless they call the API.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, why *problem.Problem) {
	if s.Pages != nil && wantsPage(r) && !strings.HasPrefix(r.URL.Path, "/v1/") {
		s.Pages.Refuse(w, r, why)
		return
	}
	why.Write(w)
}

// wantsPage reports whether a request comes from a browser.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func (s *server) wrongMethod(w http.ResponseWriter, r *http.Request) {
	route := chi.RouteContext(r.Context())
	path := r.URL.EscapedPath()
	if route.RoutePath != "" {
		path = route.RoutePath
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if !route.Routes.Match(chi.NewRouteContext(), method, path) {
			continue
		}
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	list := strings.Join(allowed, ", ")
	why := problem.New(problem.CodeWrongMethod, "The methods that this path allows are "+list+".")
	s.refuse(w, r, why.With("Allow", list))
}
