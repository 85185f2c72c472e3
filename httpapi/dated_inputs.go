package httpapi

import (
	"context"
	"fmt"
	"slices"
	"time"

	"punctual/httpapi/api"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// DatedInput is the part of a trigger that makes its run a dated one.
type DatedInput struct {
	At           jobspec.Instant  `json:"at,omitzero" doc:"When the run is due. At most a minute in the past. Absent: see delay." example:"2026-12-01T16:00:00Z"`
	Delay        jobspec.Duration `json:"delay,omitzero" doc:"How long from now it is due, in place of at: 0s to 8784h, which are 366 days. Absent: at; without at, now." example:"1h"`
	Key          string           `json:"key,omitempty" minLength:"1" doc:"Your name for the run: 1 to 255 bytes without control characters. Among the job's pending runs there is one with it; from its claim on, the key is free. Absent: the server chooses one." example:"order-42"`
	OnConflict   jobs.KeyConflict `json:"on_conflict,omitempty" minLength:"1" enum:"keep,replace,error" default:"keep" doc:"The treatment of a pending run with the key. keep: it stays as it is, and the response shows it; replace: it gets the time, the body and all else of this request; error: the response is 409 with the code key_pending." example:"replace"`
	NotAfter     jobspec.Duration `json:"not_after,omitzero" doc:"How long after the key was first written the run is due at the latest, even if it is replaced again and again: 1s to 8784h. Absent: it can be postponed without a limit." example:"5m"`
	Sequence     *int64           `json:"sequence,omitempty" doc:"A replacement is left out if its sequence is not higher than that of the pending run, or of one that was claimed or cancelled in the last day. So requests may arrive in any order. Absent: it replaces any." example:"7"`
	ExpiresAfter jobspec.Duration `json:"expires_after,omitzero" doc:"As expires_after of a job, in its place for this run. Absent: the job's." example:"30m"`
}

// dated reports whether a field is set that makes the run a dated one.
func (d DatedInput) dated() bool { return d != DatedInput{} }

const maxAhead = 366 * 24 * time.Hour

// problems returns what is wrong with a trigger, by field.
func (in TriggerInput) problems() []jobspec.Problem {
	list := jobspec.ValidateRequest("", in.Headers, in.Body)
	add := func(field, format string, args ...any) { list = append(list, jobspec.Blame(field, format, args...)) }
	for _, p := range (jobspec.Schedule{At: in.At}).Validate() {
		add("at", "%s", p.Message)
	}
	list = slices.Concat(list, jobspec.ValidateDuration("delay", in.Delay, 0, maxAhead),
		jobspec.ValidateDuration("not_after", in.NotAfter, time.Second, maxAhead),
		jobspec.ValidateDuration("expires_after", in.ExpiresAfter, time.Millisecond, maxAhead))
	if !in.At.IsZero() && !in.Delay.IsZero() {
		add("delay", "%q and at %q are set; leave one of the two out", in.Delay, in.At)
	}
	if fault := domain.KeyFault(in.Key); in.Key != "" && fault != "" {
		add("key", "%q %s", problem.Clip(in.Key), fault)
	}
	conflicts := []jobs.KeyConflict{jobs.KeyKeep, jobs.KeyReplace, jobs.KeyError}
	if in.OnConflict != "" && !slices.Contains(conflicts, in.OnConflict) {
		add("on_conflict", "%s", api.NotOneOf(string(in.OnConflict), conflicts))
	}
	if in.Key == "" {
		const needed = "needs a key next to it, which names the run that it is about"
		if in.OnConflict != "" {
			add("on_conflict", "%q %s", in.OnConflict, needed)
		}
		if !in.NotAfter.IsZero() {
			add("not_after", "%q %s", in.NotAfter, needed)
		}
		if in.Sequence != nil {
			add("sequence", "%d %s", *in.Sequence, needed)
		}
	}
	if in.NotAfter.Value() > 0 && in.NotAfter.Value() < in.Delay.Value() {
		add("not_after", "%q is shorter than delay %q; write at least that, or leave it out", in.NotAfter, in.Delay)
	}
	return list
}

func (in TriggerInput) request(ctx context.Context, traceParent string) jobs.TriggerRequest {
	return jobs.TriggerRequest{
		Body: in.Body, Headers: in.Headers, Submitter: isSubmitter(ctx), TraceParent: traceParent,
	}
}

func (in TriggerInput) dateRequest(ctx context.Context, traceParent string) jobs.DateRequest {
	return jobs.DateRequest{
		TriggerRequest: in.request(ctx, traceParent),
		At:             orNil(in.At), Delay: in.Delay.Value(), Key: in.Key, OnConflict: in.OnConflict,
		NotAfter: in.NotAfter.Value(), Sequence: in.Sequence, ExpiresAfter: in.ExpiresAfter.Value(),
	}
}

// MoveInput is the body that moves a dated run.
type MoveInput struct {
	At       jobspec.Instant  `json:"at,omitzero" doc:"When the run is due. At most a minute in the past. Absent: see delay." example:"2026-12-01T16:00:00Z"`
	Delay    jobspec.Duration `json:"delay,omitzero" doc:"How long from now it is due, in place of at: 0s to 8784h, which are 366 days." example:"1h"`
	Sequence *int64           `json:"sequence,omitempty" doc:"The run stays where it is if this is not higher than its own sequence. Absent: it is moved." example:"8"`
}

// trigger returns the part of a trigger that is left of a move.
func (in MoveInput) trigger(key string) TriggerInput {
	return TriggerInput{DatedInput: DatedInput{At: in.At, Delay: in.Delay, Key: key, Sequence: in.Sequence}}
}

// problems returns what is wrong with a move, by field.
func (in MoveInput) problems() []jobspec.Problem {
	if in.At.IsZero() && in.Delay.IsZero() {
		return []jobspec.Problem{jobspec.Blame("at", "is required, or a delay: the run needs a new instant")}
	}
	return in.trigger("any").problems()
}

// TriggerBatchInput is the body that triggers a job many times.
type TriggerBatchInput struct {
	Items []TriggerInput `json:"items" minItems:"1" maxItems:"1000" doc:"The runs. Their keys must differ."`
}

// validate returns what is wrong with the items.
func (b TriggerBatchInput) validate() []problem.FieldError {
	var errors []problem.FieldError
	if len(b.Items) == 0 {
		errors = append(errors, problem.At("body.items", "must hold 1 to 1000 runs"))
	}
	first := make(map[string]int, len(b.Items))
	for i, item := range b.Items {
		at := fmt.Sprintf("body.items[%d]", i)
		errors = append(errors, api.Within(at, item.problems())...)
		if other, ok := first[item.Key]; ok && item.Key != "" {
			errors = append(errors, problem.Atf(at+".key", "%q is also the key of items[%d]", problem.Clip(item.Key), other))
			continue
		}
		first[item.Key] = i
	}
	return errors
}
