package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"

	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store"
)

// Bounds on bodies, in bytes.
const (
	maxBody      = 1 << 20
	maxBatchBody = 16 << 20
)

const (
	mediaJSON  = "application/json"
	mediaPatch = "application/merge-patch+json"
)

// body is the JSON body of a request. decode reads it while huma collects the request's input. The operation's
// description says which media types are read, whether a body is required and how large it may be.
type body[T any] struct {
	value  T
	raw    []byte // with errors, only what fits
	errors []problem.FieldError
	hash   [sha256.Size]byte // of method, path and body
}

// Resolve reads the body. It keeps errors of single fields for check, which reports them together with the domain's.
func (b *body[T]) Resolve(ctx huma.Context) []error {
	r, w := humachi.Unwrap(ctx)
	op := ctx.Operation()
	raw, problem := readBody(w, r, op)
	if problem != nil {
		return []error{problem}
	}
	b.hash = requestHash(r, raw)
	if len(raw) == 0 && !op.RequestBody.Required {
		return nil
	}
	if problem := wellFormed(raw); problem != nil {
		return []error{problem}
	}
	b.raw, b.errors = decode(raw, &b.value, op.Method == http.MethodPatch)
	return nil
}

// check returns the problem of a body with errors: those of reading it and those of the domain.
func (b *body[T]) check(domain ...problem.FieldError) error {
	if all := merged(b.errors, domain...); len(all) > 0 {
		return problem.Invalid(all...)
	}
	return nil
}

// under returns the Idempotency-Key of a request, with what it asks for: by both, a repeated request is known.
func (b *body[T]) under(key string) store.Idempotency {
	return store.Idempotency{Key: key, Hash: b.hash}
}

func readBody(w http.ResponseWriter, r *http.Request, op *huma.Operation) ([]byte, *problem.Problem) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, op.MaxBodyBytes))
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return nil, problem.New(problem.CodeTooLarge, tooLarge(limit.Limit))
	case err != nil:
		return nil, problem.New(problem.CodeMalformed, "The body could not be read to its end.")
	case len(raw) == 0: // no Content-Type needed; Resolve judges whether it may be empty
		return nil, nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, problem.New(problem.CodeMediaType, "A body with a Content-Encoding is not accepted; send it without one.")
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if _, ok := op.RequestBody.Content[media]; err != nil || !ok || !isUTF8(params["charset"]) {
		return nil, problem.New(problem.CodeMediaType, wrongMedia(op))
	}
	return raw, nil
}

func tooLarge(limit int64) string { return fmt.Sprintf("The body has more than %d bytes.", limit) }

func wrongMedia(op *huma.Operation) string {
	return fmt.Sprintf("The Content-Type must be %s, in UTF-8.", strings.Join(mediaTypes(op), " or "))
}

func isUTF8(charset string) bool {
	return charset == "" || strings.EqualFold(charset, "utf-8")
}

func mediaTypes(op *huma.Operation) []string {
	return slices.Sorted(maps.Keys(op.RequestBody.Content))
}

func requestHash(r *http.Request, raw []byte) [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s %s\n", r.Method, r.URL.EscapedPath()) // never fails
	h.Write(raw)
	return [sha256.Size]byte(h.Sum(nil))
}

// The parts of inputs are exported because huma ignores embedded fields that are not.

// Idempotent is the input of operations that an Idempotency-Key makes safe to repeat.
type Idempotent struct {
	Key string `header:"Idempotency-Key" maxLength:"255" pattern:"^[!-~]+$" doc:"At most 255 visible ASCII characters. The same key with the same request returns the first response again, for 24 hours; with another request it is an error."`
}

// JobRef is the input of operations on one job.
type JobRef struct {
	Job string `path:"job" doc:"Id or name of the job." example:"daily-invoice-gen"`
}

var uuidForm = regexp.MustCompile(`(?i)^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32})$`)

// exists returns ErrNotFound for a malformed id or name.
func (j JobRef) exists() error {
	if !domain.NameForm.MatchString(j.Job) {
		return store.ErrNotFound
	}
	return nil
}

func (j JobRef) isID() bool { return uuidForm.MatchString(j.Job) }

// answered is the rendered answer of an operation. It may repeat an earlier answer.
type answered struct {
	Status      int
	ContentType string `header:"Content-Type" hidden:"true"`
	Location    string `header:"Location" doc:"Path of the created resource."`
	ETag        string `header:"ETag" doc:"The job's ETag, for If-Match and If-None-Match: the job's version, a dot and a digest of this response."`
	Replayed    string `header:"Idempotent-Replayed" doc:"true when an earlier response to the same Idempotency-Key is repeated."`
	Body        []byte
}

// once runs a write under its Idempotency-Key, if it has one. The answer shows what the write returns.
func once[T any](
	ctx context.Context, s *server, tenant int32, by store.Idempotency, status int, write func(store.Writer) (T, error),
) (*answered, error) {
	rendered := func(w store.Writer) (store.Answer, error) {
		made, err := write(w)
		if err != nil {
			return store.Answer{}, err
		}
		body, err := render(made)
		return store.Answer{Status: status, Body: body}, err
	}
	var out store.Answer
	var replayed bool
	var err error
	if by.Key == "" {
		out, err = rendered(s.Store.For(tenant))
	} else {
		out, replayed, err = s.Store.Idempotent(ctx, tenant, by, rendered)
	}
	if err != nil {
		return nil, err
	}
	shown := &answered{Status: out.Status, ContentType: mediaJSON, Body: out.Body}
	if replayed {
		shown.Replayed = "true"
	}
	return shown, nil
}

// accept is once for what is done later: a run or an operation. at returns where the caller finds it.
func accept[T any](
	ctx context.Context, s *server, tenant int32, by store.Idempotency, at func(uuid.UUID) string,
	start func(store.Writer) (T, error),
) (*answered, error) {
	out, err := once(ctx, s, tenant, by, http.StatusAccepted, start)
	if err != nil {
		return nil, err
	}
	started, err := out.shows()
	out.Location = at(started.ID)
	return out, err
}

// made is what the answer to a write says of the thing that was made.
type made struct {
	ID      uuid.UUID
	Version int32 // of a job
}

// shows reads the answer, so that an answer that is repeated has the same headers.
func (a *answered) shows() (m made, err error) {
	if err := json.Unmarshal(a.Body, &m); err != nil {
		return m, fmt.Errorf("reading the response to repeat: %w", err)
	}
	return m, nil
}
