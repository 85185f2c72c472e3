package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
)

// Problem is the body of every error: RFC 9457, with a stable code and the fields at fault.
type Problem struct {
	Type      string       `json:"type" format:"uri-reference" doc:"Where the code is explained." example:"/docs#invalid"`
	Title     string       `json:"title" doc:"What the code means." example:"The request is not valid"`
	Status    int          `json:"status" doc:"HTTP status." example:"422"`
	Detail    string       `json:"detail" doc:"What happened this time." example:"1 field is not valid"`
	Code      Code         `json:"code" doc:"Stable name of the problem, from a closed list." example:"invalid"`
	Errors    []FieldError `json:"errors,omitempty" doc:"Every field at fault."`
	ActiveRun *uuid.UUID   `json:"active_run,omitempty" format:"uuid" doc:"With code active_run: the run that is in the way."`
	RequestID string       `json:"request_id" doc:"Id of the request, also in the header X-Request-Id and in the server's log. A request may set its own id in that header: 1 to 64 letters, digits, dots, underscores and dashes." example:"7UBLQ5SRJ2ZTNBQFRQTMLNPKJE"`

	header http.Header
}

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Location string `json:"location" doc:"Where the error is: body, query, path or header, then the name of the field." example:"body.schedule.cron"`
	Message  string `json:"message" doc:"What is wrong, or what would be right." example:"field 1 (minute): 61 is outside 0 to 59"`
}

// Code names a problem. The list is closed: codes lists it.
type Code string

// The codes of problems.
const (
	CodeMalformed       Code = "malformed"
	CodeRunToken        Code = "run_token"
	CodeUnauthenticated Code = "unauthenticated"
	CodeCrossOrigin     Code = "cross_origin"
	CodeForbidden       Code = "forbidden"
	CodeCallback        Code = "callback"
	CodeHost            Code = "wrong_host"
	CodeNotFound        Code = "not_found"
	CodeNoRoute         Code = "no_route"
	CodeWrongMethod     Code = "method_not_allowed"
	CodeNameTaken       Code = "name_taken"
	CodeActiveRun       Code = "active_run"
	CodeState           Code = "state"
	CodeLimit           Code = "limit"
	CodeSuperseded      Code = "superseded"
	CodeVersion         Code = "version_mismatch"
	CodeTooLarge        Code = "body_too_large"
	CodeMediaType       Code = "unsupported_media_type"
	CodeInvalid         Code = "invalid"
	CodeKeyReused       Code = "idempotency_key_reused"
	CodeRateLimited     Code = "rate_limited"
	CodeInternal        Code = "internal"
	CodeDatabase        Code = "database_unavailable"
	CodeLocked          Code = "locked"
	CodeIssuer          Code = "issuer_unavailable"
	CodeNotReady        Code = "not_ready"
	codeClientCancelled Code = "cancelled" // the client is gone and never reads it
)

// codes gives each code its status and its meaning.
var codes = map[Code]struct {
	status int
	title  string
}{
	CodeMalformed:       {http.StatusBadRequest, "Malformed request"},
	CodeRunToken:        {http.StatusUnauthorized, "Invalid run token"},
	CodeUnauthenticated: {http.StatusUnauthorized, "Not authenticated"},
	CodeCrossOrigin:     {http.StatusForbidden, "Cross-origin request refused"},
	CodeForbidden:       {http.StatusForbidden, "Forbidden"},
	CodeCallback:        {http.StatusForbidden, "Runs may not call Punctual's API"},
	CodeHost:            {http.StatusMisdirectedRequest, "Wrong host"},
	CodeNotFound:        {http.StatusNotFound, "Not found"},
	CodeNoRoute:         {http.StatusNotFound, "Path not found"},
	CodeWrongMethod:     {http.StatusMethodNotAllowed, "Method not allowed"},
	CodeNameTaken:       {http.StatusConflict, "The name is taken"},
	CodeActiveRun: {
		http.StatusConflict, "The job has an active run, and its concurrency policy does not allow another",
	},
	CodeState:           {http.StatusConflict, "Conflict with the current state"},
	CodeLimit:           {http.StatusConflict, "The tenant has reached a limit"},
	CodeSuperseded:      {http.StatusConflict, "The attempt is over"},
	CodeVersion:         {http.StatusPreconditionFailed, "Precondition failed: the job has another version"},
	CodeTooLarge:        {http.StatusRequestEntityTooLarge, "The body is too large"},
	CodeMediaType:       {http.StatusUnsupportedMediaType, "Unsupported media type"},
	CodeInvalid:         {http.StatusUnprocessableEntity, "The request is not valid"},
	CodeKeyReused:       {http.StatusUnprocessableEntity, "The Idempotency-Key was used for another request"},
	CodeRateLimited:     {http.StatusTooManyRequests, "Too many requests"},
	CodeInternal:        {http.StatusInternalServerError, "Internal server error"},
	CodeDatabase:        {http.StatusServiceUnavailable, "The database is unavailable"},
	CodeLocked:          {http.StatusServiceUnavailable, "The resource is locked by another transaction"},
	CodeIssuer:          {http.StatusServiceUnavailable, "The token issuer is unavailable"},
	CodeNotReady:        {http.StatusServiceUnavailable, "Not ready"},
	codeClientCancelled: {499, "The client went away"},
}

// newProblem returns a problem with a code.
func newProblem(code Code, detail string, fields ...FieldError) *Problem {
	known := codes[code]
	return &Problem{
		Type: "/docs#" + string(code), Title: known.title, Status: known.status,
		Detail: detail, Code: code, Errors: fields,
	}
}

// invalid returns the problem of a request whose fields are at fault.
func invalid(fields []FieldError) *Problem {
	return newProblem(CodeInvalid, count(len(fields), "field is", "fields are")+" not valid.", capped(fields)...)
}

// mostFieldErrors bounds the errors that a problem lists.
const mostFieldErrors = 100

func capped(fields []FieldError) []FieldError {
	if len(fields) <= mostFieldErrors {
		return fields
	}
	more := fmt.Sprintf("and %d more", len(fields)-mostFieldErrors)
	return append(slices.Clip(fields[:mostFieldErrors]), FieldError{"body", more})
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status; huma writes it.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns the headers of the answer; huma writes them.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType is the media type of problems; huma writes it.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// of returns a copy of p as the answer to a request. It is a copy because some problems are shared.
func (p *Problem) of(request string) *Problem {
	own := *p
	own.RequestID = request
	return &own
}

// nameRequest is a transformer of huma: it adds the request's id to the problems that huma writes.
func nameRequest(ctx huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*Problem); ok {
		return p.of(requestID(ctx.Context())), nil
	}
	return v, nil
}

// write answers with p, outside of huma.
func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range p.header {
		h[name] = values
	}
	h.Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p.of(h.Get(headerRequestID))) // the client may be gone
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
	var fields []FieldError
	for _, err := range errs {
		var whole *Problem
		var detail *huma.ErrorDetail
		switch {
		case errors.As(err, &whole):
			return whole
		case errors.As(err, &detail):
			fields = append(fields, FieldError{detail.Location, parameterMessage(op, detail)})
		}
	}
	switch {
	case status == http.StatusUnprocessableEntity:
		slices.SortStableFunc(fields, func(a, b FieldError) int { return strings.Compare(a.Location, b.Location) })
		return invalid(fields)
	case status >= http.StatusInternalServerError:
		return newProblem(CodeInternal, "Internal server error.")
	}
	return newProblem(CodeMalformed, message, fields...)
}
