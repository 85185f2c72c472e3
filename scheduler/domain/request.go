package domain

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery"
)

// Request is what an attempt sends: the job's request, with the run's own body and headers in place of the job's
// where it has any. Placeholders are filled in. The headers that every attempt carries are added, and win over the
// job's. Request depends on the assignment alone; authorize adds the credentials right before the request goes out.
func (a Assignment) Request(publicURL string) delivery.Request {
	r := delivery.Request{
		Tenant: a.Job.Tenant, Method: a.Job.Target.Method, URL: a.Job.url, Header: a.Job.header, Body: a.Job.body,
		Timeout: a.Job.Timeout.Value(), Extra: a.headers(publicURL),
	}
	if a.Body != nil || a.Headers != nil {
		raw, headers := a.Job.Target.Body, a.Job.Target.Headers
		if a.Body != nil {
			raw = a.Body
		}
		if a.Headers != nil {
			headers = a.Headers
		}
		var isJSON bool
		r.Body, isJSON = requestBody(raw)
		r.Header = requestHeader(headers, isJSON)
	}
	if f := a.Job.fills.of(a); f != nil {
		f.fill(&r, a.values())
	}
	return r
}

// MessageID is the id by which receivers know the run: for a replay, the id of the run that died first.
func (a Assignment) MessageID() string {
	if a.WebhookID != uuid.Nil {
		return a.WebhookID.String()
	}
	return a.RunID.String()
}

// headers are the headers of semantics, "Delivery", without the signature.
func (a Assignment) headers(publicURL string) []delivery.Header {
	id, key := a.RunID.String(), a.IdempotencyKey
	if key == "" {
		key = IdempotencyKey(a.Trigger, a.RunID, a.Job.ID, a.ScheduledFor)
	}
	const most = 15 // with a signature and a header of credentials
	headers := append(make([]delivery.Header, 0, most),
		delivery.Header{Name: "Webhook-Id", Value: a.MessageID()},
		delivery.Header{Name: "Idempotency-Key", Value: key},
		delivery.Header{Name: "Punctual-Job", Value: a.Job.Name},
		delivery.Header{Name: "Punctual-Run", Value: id},
		delivery.Header{Name: "Punctual-Attempt", Value: strconv.Itoa(a.Attempt)},
		delivery.Header{Name: "Punctual-Trigger", Value: string(a.Trigger)},
		delivery.Header{Name: "Punctual-Scheduled-For", Value: a.ScheduledFor.UTC().Format(time.RFC3339Nano)},
		delivery.Header{Name: "Punctual-Fencing-Token", Value: strconv.FormatInt(a.Fence, 10)},
		delivery.Header{Name: "Traceparent", Value: a.traceparent()},
	)
	if a.Late {
		headers = append(headers, delivery.Header{Name: "Punctual-Late", Value: "true"})
	}
	if a.Job.Completion == CompleteAsync {
		headers = append(headers,
			delivery.Header{Name: "Punctual-Callback-Url", Value: publicURL + "/v1/runs/" + id},
			delivery.Header{Name: "Punctual-Run-Token", Value: a.RunToken})
	}
	return headers
}
