package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
)

// maxBatchBody bounds the bodies of batches, in bytes.
const maxBatchBody = 16 << 20

// The parts of inputs are exported because huma ignores embedded fields that are not.

// Keyed is the input of operations that an Idempotency-Key makes safe to repeat: the key, and the body.
type Keyed[T any] struct {
	Key     string `header:"Idempotency-Key" maxLength:"255" pattern:"^[!-~]+$" doc:"At most 255 visible ASCII characters. The same key with the same request returns the first response again, for 24 hours; with another request it is an error."`
	Request body.Body[T]
}

// by returns the key with what the request asks for: by both, a repeated request is known.
func (k *Keyed[T]) by() store.Idempotency {
	by := store.Idempotency{Key: k.Key}
	if k.Key != "" {
		by.Hash = k.Request.Hash()
	}
	return by
}

// Traced is the input of operations whose runs continue or link to the trace of their caller.
type Traced struct {
	TraceParent string `header:"traceparent" doc:"W3C trace context of the caller. A run that starts now continues that trace; one that starts later or at an event has a trace of its own with a link to it. An invalid one is ignored." example:"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`
}

func (t Traced) parent() string { return domain.ParseTraceParent(t.TraceParent) }

// JobRef is the input of operations on one job.
type JobRef struct {
	Job string `path:"job" doc:"Id or name of the job." example:"daily-invoice-gen"`
}

var uuidForm = regexp.MustCompile(`(?i)^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32})$`)

// Exists returns ErrNotFound for a malformed id or name.
func (j JobRef) Exists() error { return mayExist(j.Job) }

// NotFound implements api.Named.
func (JobRef) NotFound() string { return noSuchJob }

const noSuchJob = "There is no job with that id or name."

// mayExist returns ErrNotFound for a malformed id or name.
func mayExist(name string) error {
	if !jobspec.NameForm.MatchString(name) {
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

// once runs a write under its Idempotency-Key, if it has one. The answer shows what the write returns, which is
// returned too. Of an answer that is repeated, that is read back.
func once[T any](
	ctx context.Context, s *server, tenant int32, by store.Idempotency, status int, write func(store.Writer) (T, error),
) (shown *answered, made T, err error) {
	rendered := func(w store.Writer) (a store.Answer, err error) {
		if made, err = write(w); err != nil {
			return a, err
		}
		a.Status = status
		a.Body, err = body.Render(made)
		return a, err
	}
	var out store.Answer
	var replayed bool
	if by.Key == "" {
		out, err = rendered(s.Store.For(tenant))
	} else {
		out, replayed, err = s.Store.Idempotent(ctx, tenant, by, rendered)
	}
	if err != nil {
		return nil, made, err
	}
	shown = &answered{Status: out.Status, ContentType: body.MediaJSON, Body: out.Body}
	if replayed {
		shown.Replayed = "true"
		err = json.Unmarshal(out.Body, &made)
	}
	return shown, made, err
}

// accept is once for what is done later: a run or an operation. at returns where the caller finds it.
func accept[T any](
	ctx context.Context, s *server, tenant int32, by store.Idempotency, at func(T) string,
	start func(store.Writer) (T, error),
) (*answered, error) {
	out, started, err := once(ctx, s, tenant, by, http.StatusAccepted, start)
	if err == nil {
		out.Location = at(started)
	}
	return out, err
}

// etag returns the ETag of one answer that shows a job. If-Match compares only the version in it, so a new run does
// not make an edit fail. The digest is of the whole answer, as If-None-Match demands: the last run and the next slot
// change without a new version.
func etag(version int32, rendered []byte) string {
	sum := sha256.Sum256(rendered)
	return fmt.Sprintf("\"%d.%s\"", version, hex.EncodeToString(sum[:8]))
}

// IfNoneMatch is the condition of reads: the caller wants no answer that it already has.
type IfNoneMatch struct {
	Tags string `header:"If-None-Match" doc:"ETags of earlier responses. If the response would have one of these ETags, it is 304 and has no body." example:"\"7.5f0e8b110c6d9a44\""`
}

// matches reports whether the caller already has the answer with this tag, by the weak comparison of RFC 9110.
func (m IfNoneMatch) matches(tag string) bool {
	for known := range strings.SplitSeq(m.Tags, ",") {
		if known = strings.TrimSpace(known); known == "*" || strings.TrimPrefix(known, "W/") == tag {
			return true
		}
	}
	return false
}

// IfMatch is the condition of writes that must not overwrite somebody else's change.
type IfMatch struct {
	Tag string `header:"If-Match" doc:"The job's ETag, or its version in quotes. The operation fails with 412 if the job has been changed since. Runs do not change the version. * means any version of an existing job." example:"\"7\""`
}

// version returns the version that the condition names, or nil for none or *. A tag that is no ETag of a job gets
// 412.
func (m IfMatch) version() (*int32, error) {
	if m.Tag == "" || m.any() {
		return nil, nil
	}
	if strings.Contains(m.Tag, ",") {
		return nil, problem.Invalid(problem.At("header.If-Match", "must be one ETag"))
	}
	number, opened := strings.CutPrefix(m.Tag, `"`)
	number, closed := strings.CutSuffix(number, `"`)
	number, _, _ = strings.Cut(number, ".")
	version, err := strconv.ParseInt(number, 10, 32)
	if !opened || !closed || err != nil {
		return nil, problem.New(problem.CodeVersion, "The If-Match is not the ETag of any version of a job.")
	}
	return new(int32(version)), nil
}

// any reports whether the condition is only that the job exists, in any version.
func (m IfMatch) any() bool { return strings.TrimSpace(m.Tag) == "*" }

// pathID is an id in a path. It is zero if it is malformed.
type pathID struct{ id uuid.UUID }

// UnmarshalText never fails: a malformed id names nothing, which exists says.
func (p *pathID) UnmarshalText(text []byte) error {
	p.id, _ = parseID(string(text))
	return nil
}

// exists returns ErrNotFound for a malformed id.
func (p pathID) exists() error {
	if p.id == uuid.Nil {
		return store.ErrNotFound
	}
	return nil
}

// instantParam is an optional instant in a query. An unescaped plus sign arrives as a space.
type instantParam struct{ at *time.Time }

// UnmarshalText reads RFC 3339.
func (p *instantParam) UnmarshalText(text []byte) error {
	at, err := jobspec.ParseInstant(strings.ReplaceAll(string(text), " ", "+"))
	if err != nil {
		return err
	}
	p.at = &at
	return nil
}

// jobInput is a request about a job, with a body.
type jobInput[T any] struct {
	JobRef
	Request body.Body[T]
}

// triggerInput is a request for runs of a job.
type triggerInput[T any] struct {
	JobRef
	Keyed[T]
	Traced
}
