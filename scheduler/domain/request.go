package domain

import (
	"bytes"
	"encoding/json"
	"net/textproto"
	"strconv"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/placeholder"
)

// Request is what an attempt sends: the job's request, with the run's own body and headers in place of the job's
// where it has any. Placeholders are filled in, and what a step is given is added. The headers that every attempt
// carries are added, and win over the job's. Request depends on the assignment alone; authorize adds the credentials
// right before the request goes out.
func (a Assignment) Request(origin Origin) wire.Request {
	r := wire.Request{
		Tenant: a.Job.Tenant, Method: a.Job.Target.Method, URL: a.Job.url, Host: a.Job.Target.Host,
		Header: a.Job.header, Body: a.Job.body,
		Timeout: a.Job.Timeout.Value(), Extra: a.headers(origin),
	}
	if a.Body != nil || a.Headers != nil || a.sendsEvent() {
		headers := a.Job.Target.Headers
		if a.Headers != nil {
			headers = a.Headers
		}
		var isJSON bool
		r.Body, isJSON = jobspec.RequestBody(a.ownBody())
		r.Header = requestHeader(headers, isJSON)
	}
	if f := a.fills(); f != nil {
		f.Fill(&r, a.values())
	}
	a.addGiven(&r)
	return r
}

// fills returns what of the request has placeholders; nil: nothing.
func (a Assignment) fills() *jobspec.Fills {
	switch {
	case a.Trigger == TriggerNotify:
		return nil
	case a.Body == nil && a.Headers == nil:
		return a.Job.fills
	default:
		return a.Job.fills.Own(a.Body, a.Template, a.Headers != nil)
	}
}

// values are the values of an attempt's placeholders. A notice, whose job may have no timetable, has none.
func (a Assignment) values() *placeholder.Values {
	return &placeholder.Values{
		ScheduledFor: a.ScheduledFor, Zone: a.Job.Timetable.Zone(), Run: a.RunID, Attempt: a.Attempt, Job: a.Job.Name,
	}
}

// MessageID is the id by which receivers know the run: for a replay, the id of the run that died first.
func (a Assignment) MessageID() string {
	if a.WebhookID != uuid.Nil {
		return a.WebhookID.String()
	}
	return a.RunID.String()
}

// IdempotencyKey returns the Idempotency-Key of a run's requests. For a slot's run it is the job's id and the slot in
// unix seconds, else the run's id. A backfill may repeat a slot that has a run. The new run is not the slot's run and
// must not carry its key, or the receiver would drop it. A replay carries the key of the run that died first.
func IdempotencyKey(trigger Trigger, run, job uuid.UUID, scheduledFor time.Time) string {
	ofSlot := trigger == TriggerSchedule || trigger == TriggerCatchup ||
		trigger == TriggerBackfill && run == SlotRunID(job, scheduledFor)
	if !ofSlot {
		return run.String()
	}
	return job.String() + ":" + strconv.FormatInt(scheduledFor.Unix(), 10)
}

// headers are the headers of semantics, "Delivery", without the signature.
func (a Assignment) headers(origin Origin) []wire.Header {
	id, key := a.RunID.String(), a.IdempotencyKey
	if key == "" {
		key = IdempotencyKey(a.Trigger, a.RunID, a.Job.ID, a.ScheduledFor)
	}
	const most = 19 // with a signature and a header of credentials
	headers := append(make([]wire.Header, 0, most),
		wire.Header{Name: "Webhook-Id", Value: a.MessageID()},
		wire.Header{Name: "Idempotency-Key", Value: key},
		wire.Header{Name: "Punctual-Job", Value: a.Job.Name},
		wire.Header{Name: "Punctual-Run", Value: id},
		wire.Header{Name: "Punctual-Attempt", Value: strconv.Itoa(a.Attempt)},
		wire.Header{Name: "Punctual-Trigger", Value: string(a.Trigger)},
		wire.Header{Name: "Punctual-Scheduled-For", Value: a.ScheduledFor.UTC().Format(time.RFC3339Nano)},
		wire.Header{Name: "Punctual-Fencing-Token", Value: strconv.FormatInt(a.Fence, 10)},
		wire.Header{Name: "Traceparent", Value: a.traceparent(origin)},
	)
	if a.CausedBy != uuid.Nil {
		headers = append(headers, wire.Header{Name: "Punctual-Caused-By", Value: a.CausedBy.String()})
	}
	if a.Event != "" {
		headers = append(headers, wire.Header{Name: "Punctual-Event", Value: a.Event})
	}
	if a.Step != "" {
		headers = append(headers, wire.Header{Name: "Punctual-Step", Value: a.Step},
			wire.Header{Name: "Punctual-Workflow-Run", Value: a.Workflow.String()})
	}
	if a.Late {
		headers = append(headers, wire.Header{Name: "Punctual-Late", Value: "true"})
	}
	if a.Job.Completion == jobspec.CompleteAsync {
		headers = append(headers, wire.Header{Name: "Punctual-Callback-Url", Value: origin.PublicURL + "/v1/runs/" + id})
	}
	if a.Job.Completion == jobspec.CompleteAsync || a.Step != "" { // of a step: for results that its body leaves out
		headers = append(headers, wire.Header{Name: "Punctual-Run-Token", Value: a.RunToken})
	}
	return headers
}

// SentRequest is what an attempt sends, as it may be shown: with the mask in place of secrets, and without what the
// HTTP client adds.
type SentRequest struct {
	Method  string            `json:"method" doc:"HTTP method." example:"POST"`
	URL     string            `json:"url" doc:"Where it goes." example:"https://billing.internal/invoices"`
	Headers map[string]string `json:"headers" doc:"Its headers, without those that every HTTP client adds. Secrets and signatures are shown as ***."`
	Body    json.RawMessage   `json:"body,omitempty" doc:"Its body, in the form of target.body: a string is sent as it is, any other value as JSON. Secrets in it are shown by their names. Absent: no body."`
}

// Sent returns what the attempt sends. It is not stored: it follows from the run and its version of the job. at is
// when it was sent, which the signature covers; if at is zero, the timestamp header is left out.
func (a Assignment) Sent(origin Origin, at time.Time) SentRequest {
	r := a.Request(origin)
	s := SentRequest{
		Method: r.Method, URL: r.URL.String(),
		Headers: make(map[string]string, len(r.Header)+len(r.Extra)+2),
		Body:    shownBody(a.ownBody(), r.Body),
	}
	for name, values := range r.Header {
		s.Headers[name] = values[0]
		if jobspec.SecretName.MatchString(name) {
			s.Headers[name] = jobspec.Mask
		}
	}
	if r.Host != "" {
		s.Headers["Host"] = r.Host
	}
	for _, h := range r.Extra {
		s.Headers[h.Name] = h.Value
	}
	if !at.IsZero() {
		s.Headers["Webhook-Timestamp"] = strconv.FormatInt(at.Unix(), 10)
	}
	s.Headers["Webhook-Signature"] = jobspec.Mask
	if a.Fence == 0 { // it is not claimed yet
		delete(s.Headers, "Punctual-Fencing-Token")
	}
	if _, sent := s.Headers["Punctual-Run-Token"]; sent {
		s.Headers["Punctual-Run-Token"] = jobspec.Mask
	}
	for name := range a.Job.Target.SecretHeaders {
		s.Headers[textproto.CanonicalMIMEHeaderKey(name)] = jobspec.Mask
	}
	if name := jobspec.CredentialHeader(a.Job.Target.Auth); name != "" {
		s.Headers[textproto.CanonicalMIMEHeaderKey(name)] = jobspec.Mask
	}
	return s
}

// ownBody is the body as it was written: the run's, or else the job's, or else that of the event.
func (a Assignment) ownBody() json.RawMessage {
	switch {
	case a.Body != nil:
		return a.Body
	case a.sendsEvent():
		return a.EventBody
	}
	return a.Job.Target.Body
}

// sendsEvent reports whether the body is that of the event. It is data and no template: nothing in it is filled in.
func (a Assignment) sendsEvent() bool {
	return a.EventBody != nil && a.Body == nil && len(a.Job.body) == 0
}

// shownBody writes the bytes of a body as a definition would.
func shownBody(written json.RawMessage, sent []byte) json.RawMessage {
	if len(sent) == 0 {
		return nil
	}
	if !bytes.HasPrefix(bytes.TrimSpace(written), []byte(`"`)) {
		return jobspec.ShownJSON(sent)
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(string(sent)) // never fails for a string
	return bytes.TrimSpace(text.Bytes())
}
