package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// NameRequest is a transformer of huma: it adds the request's id to the problems that huma writes.
func NameRequest(ctx huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*problem.Problem); ok {
		return p.Of(RequestID(ctx.Context())), nil
	}
	return v, nil
}

// huma creates its own errors through these variables; it has no setting per API. Its message about a field is kept.
// The submitted value is dropped, as it may be a secret.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return ofHuma(nil, status, message, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
		return ofHuma(ctx.Operation(), status, message, errs)
	}
}

// ofHuma turns the errors that huma found in a request into a problem.
func ofHuma(op *huma.Operation, status int, message string, errs []error) huma.StatusError {
	var fields []problem.FieldError
	for _, err := range errs {
		var whole *problem.Problem
		var detail *huma.ErrorDetail
		switch {
		case errors.As(err, &whole):
			return whole
		case errors.As(err, &detail):
			fields = append(fields, problem.At(detail.Location, parameterMessage(op, detail)))
		}
	}
	switch {
	case status == http.StatusUnprocessableEntity:
		slices.SortStableFunc(fields, func(a, b problem.FieldError) int { return strings.Compare(a.Location, b.Location) })
		return problem.Invalid(fields...)
	case status >= http.StatusInternalServerError:
		return problem.New(problem.CodeInternal, "Internal server error.")
	}
	return problem.New(problem.CodeMalformed, message, fields...)
}

// parameterMessage says what is wrong with a query parameter. For one with an enum it lists the words and suggests
// the nearest; for an unknown one it lists the parameters there are. All else is huma's own message.
func parameterMessage(op *huma.Operation, detail *huma.ErrorDetail) string {
	in, name, ok := strings.Cut(detail.Location, ".")
	if op == nil || !ok || in != "query" {
		return detail.Message
	}
	var names []string
	for _, p := range op.Parameters {
		switch {
		case p.In != in:
		case p.Name != name:
			names = append(names, p.Name)
		case len(p.Schema.Enum) > 0:
			return NotOneOf(detail.Value, p.Schema.Enum)
		default:
			return detail.Message
		}
	}
	if len(names) == 0 {
		return "unknown parameter; this operation takes no query parameters"
	}
	return fmt.Sprintf("unknown parameter; there are: %s%s", strings.Join(names, ", "),
		jobspec.DidYouMean(name, names...))
}

// NotOneOf says which words are allowed, and suggests the nearest.
func NotOneOf[T any](value any, choices []T) string {
	words := Texts(choices)
	written, _ := value.(string)
	return fmt.Sprintf("%q is not one of %s%s", problem.Clip(written), strings.Join(words, ", "),
		jobspec.DidYouMean(written, words...))
}

// Texts returns the choices of an enum as they are shown.
func Texts[T any](choices []T) []string {
	return pg.Column(choices, func(choice T) string { return fmt.Sprint(choice) })
}
