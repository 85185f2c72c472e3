package scheduler

import (
	"context"
	"encoding/json"
	"time"

	"punctual/scheduler/credential"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
)

// Transport sends what runs and notices send: requests with their credentials, and e-mail.
type Transport struct {
	sender *credential.Sender
	mailer *delivery.Mailer
	origin domain.Origin
}

// NewTransport returns a transport that sends through client, and so to no address that jobs may not call.
func NewTransport(
	secrets credential.Source, client *delivery.Client, mailer *delivery.Mailer, origin domain.Origin,
) *Transport {
	return &Transport{credential.NewSender(secrets, client), mailer, origin}
}

// Send sends a notice of a tenant that is no run, such as a test notice, to a recipient. An error means that the keys
// and secrets for it could not be read from the database.
func (c *Transport) Send(
	ctx context.Context, tenant int32, to jobspec.Recipient, job string, body []byte, timeout time.Duration,
) (wire.Result, error) {
	return c.send(ctx, notice.Outgoing{
		ID: domain.NewRunID(time.Now()), Tenant: tenant, To: to, Headline: job, Body: body,
	}, timeout)
}

// send sends a message, signed as all requests are. An error means that the keys and secrets for it could not be read
// from the database.
func (c *Transport) send(ctx context.Context, m notice.Outgoing, timeout time.Duration) (wire.Result, error) {
	about := domain.Job{Tenant: m.Tenant, Definition: jobspec.Definition{Name: "notice"}}
	job, err := about.Notice(m.To.URL, m.To.Secret)
	if err != nil {
		return wire.Result{}, err
	}
	now := time.Now()
	a := domain.Assignment{
		RunID: m.ID, Job: job, Trigger: domain.TriggerNotify, ScheduledFor: now, DueAt: now, Attempt: 1, Body: m.Body,
	}
	if m.To.Format == jobspec.FormatTemplate && len(m.Body) > 0 && m.Body[0] == '"' {
		a.Headers = map[string]string{"Content-Type": "text/plain; charset=utf-8"}
	}
	r := a.Request(c.origin)
	r.Timeout = timeout
	return c.transmit(ctx, a, r, now)
}

// transmit sends an attempt's request. An error is one of credential.Sender.Send.
func (c *Transport) transmit(
	ctx context.Context, a domain.Assignment, r wire.Request, now time.Time,
) (wire.Result, error) {
	if r.URL.Scheme == "mailto" {
		return c.mail(ctx, a, r.Timeout), nil
	}
	return c.sender.Send(ctx, a, r, now)
}

// mail sends a notice by e-mail.
func (c *Transport) mail(ctx context.Context, a domain.Assignment, timeout time.Duration) wire.Result {
	var body notice.Email
	if json.Unmarshal(a.Body, &body) != nil {
		return wire.Result{Reason: wire.ReasonMailRefused, Error: "its body is not that of an e-mail", Final: true}
	}
	return c.mailer.Send(ctx, delivery.Mail{
		To: a.Job.URL().Opaque, ID: a.MessageID(), Subject: body.Subject, Text: body.Text, Thread: body.Thread,
	}, timeout)
}
