package scheduler

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery"
	"punctual/scheduler/failpoint"
)

// dispatch starts the attempts of a claimed batch, each in a worker slot of its queue; false when the claim
// has been given back, and so none is started.
func (s *Scheduler) dispatch(b Batch) bool {
	if len(b.Runs) > 0 && !s.heart.hold(b.Runs[0].Lease.ID) {
		return false
	}
	for _, a := range b.Runs {
		queue, older := a.Lane/4, a.Lease.ClaimedAt.Sub(a.DueAt) > OlderThan
		s.slots.take(queue, a.Job.Tenant, older)
		s.running.Go(func() {
			s.finisher.put(s.execute(a))
			s.slots.release(queue, a.Job.Tenant, older) // not before: what cannot be written occupies slots, and so claims stop
		})
	}
	return true
}

// execute makes one attempt and says what it means for its run. Expiry is checked here, right before
// the request goes out, whatever delayed it.
func (s *Scheduler) execute(a Assignment) Outcome {
	failpoint.At(failpoint.SendBegun)
	started := s.now(a)
	switch {
	case s.workCtx.Err() != nil:
		return Outcome{Assignment: a, Verdict: GiveBack, FinishedAt: started}
	case s.heart.watch.expired(time.Now()):
		return Outcome{Assignment: a, Verdict: GiveBack, FinishedAt: started} // others may have taken over
	case a.expired(started):
		return Outcome{Assignment: a, Verdict: Expire, FinishedAt: started, Reason: ReasonExpired}
	}
	request := a.request(s.config.PublicURL)
	permit, wait := s.breakers.Admit(breakerKey(a.Job.Tenant, request.URL))
	if wait != nil {
		s.metrics.deferred.Inc()
		return Outcome{Assignment: a, Verdict: GiveBack, FinishedAt: started, RetryIn: wait.For, Error: wait.Why}
	}
	s.metrics.late(a, started)
	parent := s.workCtx
	if a.Job.ConcurrencyPolicy != PolicyAllow {
		parent = s.heart.exclusive()
	}
	ctx, done := s.flights.begin(parent, a.RunID)
	defer done()
	sent := time.Now()
	result, err := s.transmit(ctx, a, request, started)
	switch {
	case errors.Is(err, errExpired):
		permit.Done(breaker.Unknown, "")
		return Outcome{Assignment: a, Verdict: Expire, FinishedAt: started.Add(time.Since(sent)), Reason: ReasonExpired}
	case err != nil:
		permit.Done(breaker.Unknown, "")
		s.log.Warn("secrets cannot be read; the run waits", "run", a.RunID, "error", err)
		return Outcome{Assignment: a, Verdict: GiveBack, FinishedAt: started, RetryIn: secretsRetry, Error: "the secrets cannot be read from the database at the moment"}
	}
	failpoint.At(failpoint.SendAnswered)
	permit.Done(hostAnswer(result), result.Error)
	finished := started.Add(time.Since(sent))
	switch {
	case result.Cancelled && errors.Is(context.Cause(ctx), errCancelled):
		return Outcome{Assignment: a, Verdict: Cancel, StartedAt: started, FinishedAt: finished, Reason: ReasonCancelled, Error: errCancelled.Error()}
	case result.Cancelled && !result.Sent:
		return Outcome{Assignment: a, Verdict: GiveBack, FinishedAt: finished}
	case result.Cancelled:
		return JudgeInterrupted(a, started, finished, context.Cause(ctx))
	}
	return Judge(a, result, started, finished)
}

// secretsRetry is how long a run waits that was not sent because secrets could not be read.
const secretsRetry = time.Second

// now estimates the database's clock, and is never before the claim.
func (s *Scheduler) now(a Assignment) time.Time {
	now := s.clock.now()
	if now.Before(a.Lease.ClaimedAt) {
		return a.Lease.ClaimedAt
	}
	return now
}

// request is what an attempt sends: the job's request, or the run's own body and headers in its place,
// with the headers every attempt carries. They win over the job's.
func (a Assignment) request(publicURL string) delivery.Request {
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
	return r
}

// webhookID is what receivers know the run by: of a replay, the run that died first.
func (a Assignment) webhookID() string {
	if a.WebhookID != uuid.Nil {
		return a.WebhookID.String()
	}
	return a.RunID.String()
}

// headers are those of semantics, "Delivery", but for the signature.
func (a Assignment) headers(publicURL string) []delivery.Header {
	id, key := a.RunID.String(), a.IdempotencyKey
	if key == "" {
		key = IdempotencyKey(a.Trigger, a.RunID, a.Job.ID, a.ScheduledFor)
	}
	const most = 14 // with a signature, and a header that proves who sends it
	headers := append(make([]delivery.Header, 0, most),
		delivery.Header{Name: "Webhook-Id", Value: a.webhookID()},
		delivery.Header{Name: "Idempotency-Key", Value: key},
		delivery.Header{Name: "Punctual-Job", Value: a.Job.Name},
		delivery.Header{Name: "Punctual-Run", Value: id},
		delivery.Header{Name: "Punctual-Attempt", Value: strconv.Itoa(a.Attempt)},
		delivery.Header{Name: "Punctual-Trigger", Value: string(a.Trigger)},
		delivery.Header{Name: "Punctual-Scheduled-For", Value: a.ScheduledFor.UTC().Format(time.RFC3339Nano)},
		delivery.Header{Name: "Punctual-Fencing-Token", Value: strconv.FormatInt(a.Fence, 10)},
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
