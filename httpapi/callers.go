package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"punctual/httpapi/auth"
)

// authorize admits callers whose role suffices for an operation. It runs before anything else of the request is read.
func (s *server) authorize(role auth.Role) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(hc)
		ctx := hc.Context()
		c, err := s.admit(ctx, w, r, role)
		if err != nil {
			s.problem(ctx, err).Write(w)
			return
		}
		next(huma.WithContext(hc, c.Within(ctx)))
	}
}

// only is authorize for handlers that are not described as operations.
func (s *server) only(role auth.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(r.Context(), w, r, role)
		if err != nil {
			s.problem(r.Context(), err).Write(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(c.Within(r.Context())))
	})
}

// admit returns the caller of a request, and tells it of a freeze.
func (s *server) admit(
	ctx context.Context, w http.ResponseWriter, r *http.Request, role auth.Role,
) (auth.Caller, error) {
	c, err := s.callers.Admit(ctx, w.Header(), r, role)
	if err == nil {
		s.freezes.tell(ctx, c, w.Header())
	}
	return c, err
}
