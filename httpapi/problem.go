package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/problem"
)

// nameRequest is a transformer of huma: it adds the request's id to the problems that huma writes.
func nameRequest(ctx huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*problem.Problem); ok {
		return p.Of(requestID(ctx.Context())), nil
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
