package api

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"regexp"

	"punctual/httpapi/problem"
)

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

type requestIDKey struct{}

// Identify gives each request an id, and answers with it. An id that the request brings is used if it is well-formed.
func Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(problem.HeaderRequestID)
		if !requestIDForm.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(problem.HeaderRequestID, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// RequestID returns the id of a request.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// levelOf returns the log level of a failed request. A database that is away, a lock that is held or a replica that is
// busy passes, so it is a warning.
func levelOf(p *problem.Problem) slog.Level {
	switch p.Code {
	case problem.CodeDatabase, problem.CodeTimeout, problem.CodeLocked, problem.CodeBusy:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// ErrorAttrs are what a log says of an error of a request.
func ErrorAttrs(ctx context.Context, err error) []slog.Attr {
	return []slog.Attr{slog.String("request_id", RequestID(ctx)), slog.Any("error", err)}
}
