package reports

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/claim"
)

// report is what a target has reported of a run's attempt.
type report struct {
	run       uuid.UUID
	fence     int64
	succeeded bool
	result    json.RawMessage
	error     string
	applied   bool // the attempt has ended accordingly
	started   time.Time
	http      int
	accepted  *time.Time // when the target answered 202; nil: it has not
	kept      claim.KeptResponse
}

// of returns the outcome of an attempt that its target has reported. Of the attempt's own outcome it keeps what was
// answered.
func (r report) of(o domain.Outcome) domain.Outcome {
	own := o
	if own.StartedAt.IsZero() {
		own.StartedAt = r.started
	}
	if own.HTTPStatus == 0 {
		own.HTTPStatus = r.http
	}
	out := domain.Outcome{
		Assignment: o.Assignment, Verdict: domain.Succeed, StartedAt: own.StartedAt, FinishedAt: o.FinishedAt,
	}
	if !r.succeeded {
		out = domain.JudgeReported(o.Assignment, r.error, true, own.StartedAt, o.FinishedAt)
	}
	out.HTTPStatus, out.Release, out.Reported = own.HTTPStatus, o.Release, true
	if r.accepted != nil {
		out.AcceptedAt = *r.accepted
	}
	switch {
	case r.succeeded:
		if o.Verdict == domain.Succeed {
			out.Response, out.Headers, out.Truncated, out.Result, out.ResultNote =
				o.Response, o.Headers, o.Truncated, o.Result, o.ResultNote
		}
		if result, note := domain.CheckResult(r.result); result != nil || note != "" {
			out.Result, out.ResultNote = result, note
		}
	case r.accepted != nil:
		out = r.kept.Of(out)
	default:
		out.Response, out.Headers, out.Truncated = o.Response, o.Headers, o.Truncated
	}
	return out
}
