package body

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	jsonpatch "github.com/evanphx/json-patch/v5"

	"punctual/httpapi/problem"
)

// The media types of bodies.
const (
	MediaJSON  = "application/json"
	MediaPatch = "application/merge-patch+json"
)

// Body is the JSON body of a request. It is read while huma collects the request's input. The operation's description
// says which media types are read, whether a body is required and how large it may be.
type Body[T any] struct {
	Value   T
	Raw     []byte               // with Errors, only what fits
	Errors  []problem.FieldError // of reading it
	request string               // its method and path
}

// Resolve reads the body. It keeps errors of single fields for Check, which reports them together with the domain's.
func (b *Body[T]) Resolve(ctx huma.Context) []error {
	r, w := humachi.Unwrap(ctx)
	op := ctx.Operation()
	raw, problem := readAll(w, r, op)
	if problem == nil && (len(raw) > 0 || op.RequestBody.Required) {
		*b, problem = Read[T](raw, op.Method == http.MethodPatch)
	}
	if problem != nil {
		return []error{problem}
	}
	b.request = r.Method + " " + r.URL.EscapedPath()
	return nil
}

// Check returns the problem of a body with errors: those of reading it and those of the domain.
func (b *Body[T]) Check(domain ...problem.FieldError) error {
	if all := merged(b.Errors, domain...); len(all) > 0 {
		return problem.Invalid(all...)
	}
	return nil
}

// Hash is the digest of a request without errors: of its method, path and body.
func (b *Body[T]) Hash() [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\n%s", b.request, b.Raw) // never fails
	return [sha256.Size]byte(h.Sum(nil))
}

// Onto merges the body, a merge patch, into what it changes, and reads the result into a value of any type.
func (b *Body[T]) Onto(current, into any) error {
	if covered(b.Errors, "body") { // not an object
		return b.Check()
	}
	text, err := Render(current)
	if err != nil {
		return err
	}
	merged, err := jsonpatch.MergePatch(text, b.Raw)
	if err != nil {
		return fmt.Errorf("merging the patch: %w", err)
	}
	if err := Fill(into, merged); err != nil {
		return fmt.Errorf("reading what was patched: %w", err)
	}
	return nil
}

// Render returns a value as JSON without the escapes that only HTML needs.
func Render(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("rendering %T: %w", v, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func readAll(w http.ResponseWriter, r *http.Request, op *huma.Operation) ([]byte, *problem.Problem) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, op.MaxBodyBytes))
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return nil, TooLarge(op)
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
		return nil, WrongMedia(op)
	}
	return raw, nil
}

func isUTF8(charset string) bool { return charset == "" || strings.EqualFold(charset, "utf-8") }

// TooLarge is the problem of a body that is larger than an operation takes.
func TooLarge(op *huma.Operation) *problem.Problem {
	return problem.New(problem.CodeTooLarge, fmt.Sprintf("The body has more than %d bytes.", op.MaxBodyBytes))
}

// WrongMedia is the problem of a body that an operation does not read.
func WrongMedia(op *huma.Operation) *problem.Problem {
	return problem.New(problem.CodeMediaType,
		fmt.Sprintf("The Content-Type must be %s, in UTF-8.", strings.Join(MediaTypes(op), " or ")))
}

// MediaTypes returns the media types that an operation reads, in their order.
func MediaTypes(op *huma.Operation) []string { return slices.Sorted(maps.Keys(op.RequestBody.Content)) }
