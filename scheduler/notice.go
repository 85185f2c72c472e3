package scheduler

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
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

// ChoreNotices adds notices to the lines of their recipients, and sends what waits there.
const ChoreNotices = "notices"

// Notices is what the scheduler asks of the database to tell people.
type Notices interface {
	// Notify adds the notices that may be told to the lines of their recipients.
	Notify(ctx context.Context) (left bool, err error)
	// ClaimNotice takes a message for a recipient to which no other is under way; nil: there is none to send now.
	ClaimNotice(ctx context.Context) (*notice.Outgoing, error)
	// Answered writes how the recipient answered.
	Answered(ctx context.Context, m notice.Outgoing, a notice.Answer) error
}

// messengers is how many messages a replica sends at once. Notices take no worker slots, and none of a tenant's limits.
const messengers = 16

// tell sends the messages that wait for recipients, until there are none or all messengers are under way. A messenger
// that is back asks for the chore again.
func (s *Scheduler) tell(ctx context.Context) (wait time.Duration, left bool, err error) {
	store := s.config.Notices
	if left, err = store.Notify(ctx); err != nil {
		return 0, left, err
	}
	for {
		select {
		case s.messengers <- struct{}{}:
		default:
			return 0, left, nil
		}
		m, err := store.ClaimNotice(ctx)
		if err != nil || m == nil {
			<-s.messengers
			return 0, left, err
		}
		s.running.Go(func() {
			defer s.chores.ask(ChoreNotices)
			defer func() { <-s.messengers }()
			s.deliver(*m)
		})
	}
}

// deliver sends a message. What the database does not learn of it is told again when the lease is over.
func (s *Scheduler) deliver(m notice.Outgoing) {
	began := time.Now()
	result, err := s.sendNotice(s.workCtx, m, notice.Timeout)
	if err != nil {
		result = wire.Result{Error: err.Error(), Reason: wire.ReasonConnect}
	}
	a := answerOf(result)
	s.metrics.noticeAnswered(a.Arrival)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.workCtx), notice.Timeout)
	defer cancel()
	if err := s.config.Notices.Answered(ctx, m, a); err != nil {
		s.log.Warn("the answer to a notice could not be written; the notice is sent again", "message", m.ID,
			"after", time.Since(began), "error", err)
	}
}

// answerOf says what an answer means for a message.
func answerOf(r wire.Result) notice.Answer {
	a := notice.Answer{RetryAfter: r.RetryAfter, Status: r.Status, Error: r.Error}
	switch {
	case r.OK():
		a.Arrival = notice.Delivered
	case r.Status == http.StatusTooManyRequests, r.Status == http.StatusServiceUnavailable && r.RetryAfter > 0:
		a.Arrival = notice.PutOff
	case r.Final:
		a.Arrival = notice.Refused
	case r.Status == http.StatusBadRequest, r.Status == http.StatusRequestEntityTooLarge,
		r.Status == http.StatusUnsupportedMediaType, r.Status == http.StatusUnprocessableEntity:
		a.Arrival = notice.Refused
	case !r.Sent, r.Reason == wire.ReasonMailRefused, r.Status/100 == 4 && r.Status != http.StatusRequestTimeout:
		a.Arrival = notice.Unsent
	default:
		a.Arrival = notice.Unknown
	}
	return a
}

// mail sends a notice by e-mail.
func (s *Scheduler) mail(ctx context.Context, a domain.Assignment, timeout time.Duration) (wire.Result, error) {
	var body notice.Email
	if json.Unmarshal(a.Body, &body) != nil {
		return wire.Result{ //nolint:nilerr // the body is at fault, and not the database
			Reason: wire.ReasonMailRefused, Error: "its body is not that of an e-mail", Final: true,
		}, nil
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
) (wire.Result, error) {
	return c.scheduler.sendNotice(ctx, notice.Outgoing{
		ID: domain.NewRunID(time.Now()), Tenant: tenant, To: to, Headline: job, Body: body,
	}, timeout)
}

// sendNotice sends a message, signed as all requests are. An error means that the keys and secrets for it could not be
// read from the database.
func (s *Scheduler) sendNotice(
	ctx context.Context, m notice.Outgoing, timeout time.Duration,
) (wire.Result, error) {
	about := domain.Job{Tenant: m.Tenant, Definition: domain.Definition{Name: "notice"}}
	job, err := about.Notice(m.To.URL, m.To.Secret)
	if err != nil {
		return wire.Result{}, err
	}
	now := time.Now()
	a := domain.Assignment{
		RunID: m.ID, Job: job, Trigger: domain.TriggerNotify, ScheduledFor: now, DueAt: now, Attempt: 1, Body: m.Body,
	}
	if m.To.Format == domain.FormatTemplate && len(m.Body) > 0 && m.Body[0] == '"' {
		a.Headers = map[string]string{"Content-Type": "text/plain; charset=utf-8"}
	}
	r := a.Request(s.config.Origin)
	r.Timeout = timeout
	return s.transmit(ctx, a, r, now)
}
