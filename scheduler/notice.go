package scheduler

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
)

// addRouting adds the routing key that a notice names to its body, a PagerDuty event.
func (s *Scheduler) addRouting(ctx context.Context, t *transmission, job *domain.Job) error {
	if job.RoutingSecret() == "" {
		return nil
	}
	secret, err := s.config.Credentials.NamedSecret(ctx, job.Tenant, job.RoutingSecret())
	if err != nil {
		return err
	}
	event := map[string]json.RawMessage{}
	if err := json.Unmarshal(t.Body, &event); err != nil {
		return authErrorf("the notice is not a JSON object, so the routing key cannot be added")
	}
	if event["routing_key"], err = json.Marshal(secret.Value); err != nil {
		return authErrorf("the routing key is not text")
	}
	if t.Body, err = json.Marshal(event); err != nil {
		return authErrorf("the notice cannot be written with its routing key")
	}
	t.secrets = append(t.secrets, secret.Value)
	return nil
}

// logDeadNotices logs the notices that were given up: no notice tells of them.
func (s *Scheduler) logDeadNotices(outcomes []domain.Outcome) {
	for _, o := range outcomes {
		if o.Trigger == domain.TriggerNotify && o.End().Status == domain.StatusDead {
			s.log.Error("a notice could not be delivered and is now a dead letter; GET /v1/dead-letters?trigger=notify lists it",
				"run", o.RunID, "job", o.Job.Name, "host", o.Job.URL().Host,
				"attempts", o.Attempt, "reason", o.Reason, "error", o.Error)
		}
	}
}

// mail sends a notice by e-mail.
func (s *Scheduler) mail(ctx context.Context, a domain.Assignment, timeout time.Duration) (delivery.Result, error) {
	var body notice.Email
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return delivery.Result{
			Reason: delivery.ReasonMailRefused, Error: "its body is not that of an e-mail", Final: true,
		}, nil //nolint:nilerr // the body is at fault, and not the database
	}
	return s.config.Mailer.Send(ctx, delivery.Mail{
		To: a.Job.URL().Opaque, ID: a.MessageID(), Subject: body.Subject, Text: body.Text, Thread: body.Thread,
	}, timeout), nil
}

// Courier sends notices that are not runs: test notices, for a caller who waits for the answer.
type Courier struct{ scheduler Scheduler }

// NewCourier returns a courier that sends through client, and so to no address that jobs may not call.
func NewCourier(
	credentials Credentials, client *delivery.Client, mailer *delivery.Mailer, origin domain.Origin,
	log *slog.Logger,
) *Courier {
	return &Courier{Scheduler{
		config: Config{Client: client, Mailer: mailer, Credentials: credentials, Origin: origin},
		log:    log, tokens: newTokens(), tls: newTLSClients(),
	}}
}

// Send sends a notice of a tenant to a recipient, signed as all requests are. An error means that the keys and
// secrets for it could not be read from the database.
func (c *Courier) Send(
	ctx context.Context, tenant int32, to domain.Recipient, job string, body []byte, timeout time.Duration,
) (delivery.Result, error) {
	about := domain.Job{Tenant: tenant, Definition: domain.Definition{Name: job}}
	notice, err := about.Notice(to.URL, to.Secret)
	if err != nil {
		return delivery.Result{}, err
	}
	now := time.Now()
	a := domain.Assignment{
		RunID: domain.NewRunID(now), Job: notice, Trigger: domain.TriggerNotify, ScheduledFor: now, DueAt: now,
		Attempt: 1, Body: body,
	}
	r := a.Request(c.scheduler.config.Origin)
	r.Timeout = timeout
	return c.scheduler.transmit(ctx, a, r, now)
}
