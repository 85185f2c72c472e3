package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"punctual/httpapi/api"
	"punctual/httpapi/problem"
)

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
				s.Log.LogAttrs(
					r.Context(), slog.LevelDebug, "response not delivered", api.ErrorAttrs(r.Context(), asError(cause))...,
				)
				panic(http.ErrAbortHandler)
			}
			s.Log.LogAttrs(r.Context(), slog.LevelError, "request panicked",
				append(api.ErrorAttrs(r.Context(), asError(cause)), slog.String("stack", string(debug.Stack())))...)
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler) // a partial answer must not look complete
			}
			api.Internal(api.RequestID(r.Context())).Write(w)
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

// drain reads what an answer has left of its request's body. A simple client reads nothing before it has sent its whole
// body. If the connection were closed with a part of it unread, the client would see a reset in place of the answer.
// One that expects to be asked for its body is not asked in vain.
func drain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Body
		next.ServeHTTP(w, r)
		if sent != nil && r.Header.Get("Expect") == "" {
			_, _ = io.CopyN(io.Discard, sent, maxDrained) // the client may be gone
		}
	})
}

// maxDrained is how much of a body is read in vain, in bytes. It is twice the largest body that an operation takes.
const maxDrained = 2 * maxBatchBody

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

// notARun refuses requests that a run of a job sends. The guard keeps runs from the API of their own replica. It
// cannot know the addresses of other replicas and of the load balancer in front of them. But the requests of runs
// carry headers that no job can set or leave out.
func notARun(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Punctual-Fencing-Token") != "" && r.Header.Get("Punctual-Attempt") != "" {
			problem.New(problem.CodeCallback,
				"The request comes from a run of a job, and runs may not call Punctual's API.").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onlyHost refuses requests to names that are not this server's. It is used without authentication: a page may have
// its own name resolve to this machine, and then its requests are of the same origin for a browser. public is the
// name that proxies on this machine pass on; it may be empty.
func onlyHost(public string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if host := hostname(r.Host); !strings.EqualFold(host, public) && !standsForItself(host) {
				problem.New(problem.CodeHost, "Authentication is off, so the server answers only requests to localhost, "+
					"to an IP address, or to the host of --public-url.").Write(w)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// hostname returns a Host header without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// standsForItself reports whether a host cannot be made to resolve to somebody else's address.
func standsForItself(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost") || host == ""
}
