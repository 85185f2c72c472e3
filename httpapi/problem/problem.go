// Package problem is the error of the API: RFC 9457, with a stable code from a closed list, and the fields at fault.
// Handlers, authentication and clients share it.
package problem

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Problem is the body of every error: RFC 9457, with a stable code and the fields at fault.
type Problem struct {
	Type      string       `json:"type" format:"uri-reference" doc:"Where the code is explained." example:"/docs#invalid"`
	Title     string       `json:"title" doc:"The meaning of the code." example:"The request is not valid"`
	Status    int          `json:"status" doc:"HTTP status." example:"422"`
	Detail    string       `json:"detail" doc:"The cause in this case." example:"1 field is not valid"`
	Code      Code         `json:"code" doc:"Stable name of the problem, from a closed list." example:"invalid"`
	Errors    []FieldError `json:"errors,omitempty" doc:"Every field at fault."`
	ActiveRun *uuid.UUID   `json:"active_run,omitempty" format:"uuid" doc:"With code active_run: the run that is in the way."`
	RequestID string       `json:"request_id" doc:"Id of the request, also in the header X-Request-Id and in the server's log. A request may set its own id in that header: 1 to 64 letters, digits, dots, underscores and dashes." example:"7UBLQ5SRJ2ZTNBQFRQTMLNPKJE"`

	Header http.Header `json:"-"` // of the answer
}

// FieldError is one thing that is wrong with a request.
type FieldError struct {
	Location string `json:"location" doc:"Where the error is: body, query, path or header, then the name of the field." example:"body.schedule.cron"`
	Message  string `json:"message" doc:"The mistake, or a value that would be right." example:"field 1 (minute): 61 is outside 0 to 59"`
}

// At returns what is wrong at a location.
func At(location, message string) FieldError { return FieldError{location, message} }

// Atf is At with a message that is formatted.
func Atf(location, format string, args ...any) FieldError {
	return At(location, fmt.Sprintf(format, args...))
}

// HeaderRequestID is the header with the id of a request, in requests and answers.
const HeaderRequestID = "X-Request-Id"

// HeaderPosition is the header with a position in the log of the database: of a write in its answer, and in a read of
// what that has to see.
const HeaderPosition = "Punctual-Position"

// Code names a problem. The list is closed: Codes lists it.
type Code string

// Meaning is what a code stands for.
type Meaning struct {
	Status int // HTTP status
	Title  string
}

// Codes gives each code its status and its meaning.
var Codes = map[Code]Meaning{}

func code(name Code, status int, title string) Code {
	Codes[name] = Meaning{status, title}
	return name
}

// The codes of problems.
var (
	CodeMalformed       = code("malformed", http.StatusBadRequest, "Malformed request")
	CodeRunToken        = code("run_token", http.StatusUnauthorized, "Invalid run token")
	CodeUnauthenticated = code("unauthenticated", http.StatusUnauthorized, "Not authenticated")
	CodeCrossOrigin     = code("cross_origin", http.StatusForbidden, "Cross-origin request refused")
	CodeForbidden       = code("forbidden", http.StatusForbidden, "Forbidden")
	CodeCallback        = code("callback", http.StatusForbidden, "Runs may not call Punctual's API")
	CodeHost            = code("wrong_host", http.StatusMisdirectedRequest, "Wrong host")
	CodeNotFound        = code("not_found", http.StatusNotFound, "Not found")
	CodeNoRoute         = code("no_route", http.StatusNotFound, "Path not found")
	CodeWrongMethod     = code("method_not_allowed", http.StatusMethodNotAllowed, "Method not allowed")
	CodeNameTaken       = code("name_taken", http.StatusConflict, "The name is taken")
	CodeActiveRun       = code("active_run", http.StatusConflict,
		"The job has an active run, and its concurrency policy does not allow another")
	CodeKeyPending = code("key_pending", http.StatusConflict, "A run with the key is pending")
	CodeState      = code("state", http.StatusConflict, "Conflict with the current state")
	CodeLimit      = code("limit", http.StatusConflict, "A limit has been reached")
	CodeSuperseded = code("superseded", http.StatusConflict, "The attempt has ended")
	CodeCursorGone = code("cursor_gone", http.StatusGone, "The feed cannot continue from the cursor")
	CodeVersion    = code("version_mismatch", http.StatusPreconditionFailed,
		"Precondition failed: the job has another version")
	CodeTooLarge  = code("body_too_large", http.StatusRequestEntityTooLarge, "The body is too large")
	CodeMediaType = code("unsupported_media_type", http.StatusUnsupportedMediaType, "Unsupported media type")
	CodeInvalid   = code("invalid", http.StatusUnprocessableEntity, "The request is not valid")
	CodeKeyReused = code("idempotency_key_reused", http.StatusUnprocessableEntity,
		"The Idempotency-Key was used for another request")
	CodeRateLimited     = code("rate_limited", http.StatusTooManyRequests, "Too many requests")
	CodeCronMismatch    = code("cron_mismatch", http.StatusInternalServerError, "The cron expression is in doubt")
	CodeInternal        = code("internal", http.StatusInternalServerError, "Internal server error")
	CodeDatabase        = code("database_unavailable", http.StatusServiceUnavailable, "The database is unavailable")
	CodeTimeout         = code("timeout", http.StatusServiceUnavailable, "The database did not answer in time")
	CodeLocked          = code("locked", http.StatusServiceUnavailable, "The resource is locked by another transaction")
	CodeIssuer          = code("issuer_unavailable", http.StatusServiceUnavailable, "The token issuer is unavailable")
	CodeNotReady        = code("not_ready", http.StatusServiceUnavailable, "Not ready")
	CodeBusy            = code("busy", http.StatusServiceUnavailable, "The replica is busy")
	CodeClientCancelled = code("cancelled", 499, "The client went away") // it never reads it
)

// New returns a problem with a code.
func New(code Code, detail string, fields ...FieldError) *Problem {
	known := Codes[code]
	return &Problem{
		Type: "/docs#" + string(code), Title: known.Title, Status: known.Status,
		Detail: detail, Code: code, Errors: fields,
	}
}

// Invalid returns the problem of a request whose fields are at fault.
func Invalid(fields ...FieldError) *Problem {
	return New(CodeInvalid, Count(len(fields), "field is", "fields are")+" not valid.", Capped(fields)...)
}

// MostErrors bounds the errors that a problem lists.
const MostErrors = 100

// Capped returns the first fields at fault, and how many more there are.
func Capped(fields []FieldError) []FieldError {
	if len(fields) <= MostErrors {
		return fields
	}
	more := fmt.Sprintf("and %d more", len(fields)-MostErrors)
	return append(slices.Clip(fields[:MostErrors]), At("body", more))
}

// Count says how many there are of something.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns the headers of the answer.
func (p *Problem) GetHeaders() http.Header { return p.Header }

// ContentType is the media type of problems.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// With adds a header to the answer.
func (p *Problem) With(header, value string) *Problem {
	if p.Header == nil {
		p.Header = http.Header{}
	}
	p.Header.Set(header, value)
	return p
}

// Of returns a copy of p as the answer to a request. It is a copy because some problems are shared.
func (p *Problem) Of(request string) *Problem {
	own := *p
	own.RequestID = request
	return &own
}

// Write answers with p.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range p.Header {
		h[name] = values
	}
	h.Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p.Of(h.Get(HeaderRequestID))) // the client may be gone
}

// Clip shortens submitted text for an error message.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Sentence returns an error as a sentence.
func Sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
