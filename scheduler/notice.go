package scheduler

import (
	"context"
	"net/http"
	"time"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/notice"
)

// ChoreNotices adds notices to the lines of their recipients, and sends what waits there.
const ChoreNotices = "notices"

// ChoreLifecycle sends the events of the lifecycle of runs, in batches.
const ChoreLifecycle = "lifecycle"

// Notices is what the scheduler asks of the database to tell people.
type Notices interface {
	// Notify adds the notices that may be told to the lines of their recipients.
	Notify(ctx context.Context) (left bool, err error)
	// ClaimNotice takes a message for a recipient to which no other is under way; nil: there is none to send now.
	ClaimNotice(ctx context.Context) (*notice.Outgoing, error)
	// PrepareLifecycle bounds how many events of the lifecycle of runs wait. left is true while some do that may be sent
	// within a second.
	PrepareLifecycle(ctx context.Context) (left bool, err error)
	// ClaimLifecycle is ClaimNotice for a batch of these events.
	ClaimLifecycle(ctx context.Context) (*notice.Outgoing, error)
	// Answered writes how the recipient answered.
	Answered(ctx context.Context, m notice.Outgoing, a notice.Answer) error
}

// messengers is how many messages a replica sends at once. Notices take no worker slots, and none of a tenant's limits.
const messengers = 16

// lifecycleMessengers is how many batches of events of the lifecycle of runs a replica sends at once. They have
// messengers of their own, so that no batch makes a notice of trouble wait.
const lifecycleMessengers = 4

// tell sends the messages that wait for recipients.
func (s *Scheduler) tell(ctx context.Context) (wait time.Duration, left bool, err error) {
	if left, err = s.config.Notices.Notify(ctx); err != nil {
		return 0, left, err
	}
	return 0, left, s.sendAll(ctx, s.messengers, s.config.Notices.ClaimNotice, ChoreNotices)
}

// tellLifecycle sends the events of the lifecycle of runs that wait. A recipient gets a batch a second at most.
func (s *Scheduler) tellLifecycle(ctx context.Context) (wait time.Duration, left bool, err error) {
	if left, err = s.config.Notices.PrepareLifecycle(ctx); err != nil {
		return 0, left, err
	}
	return chorePause, left, s.sendAll(ctx, s.lifecycleMessengers, s.config.Notices.ClaimLifecycle, ChoreLifecycle)
}

// sendAll sends messages until there are none or all messengers are under way. A messenger that is back asks for the
// chore again.
func (s *Scheduler) sendAll(
	ctx context.Context, messengers chan struct{}, claim func(context.Context) (*notice.Outgoing, error), chore string,
) error {
	for {
		select {
		case messengers <- struct{}{}:
		default:
			return nil
		}
		m, err := claim(ctx)
		if err != nil || m == nil {
			<-messengers
			return err
		}
		s.running.Go(func() {
			defer s.chores.ask(chore)
			defer func() { <-messengers }()
			s.deliver(*m)
		})
	}
}

// deliver sends a message. What the database does not learn of it is told again when the lease is over.
func (s *Scheduler) deliver(m notice.Outgoing) {
	began := time.Now()
	result, err := s.courier.send(s.workCtx, m, notice.Timeout)
	if err != nil {
		result = wire.Result{Error: err.Error(), Reason: wire.ReasonConnect}
	}
	a := answerOf(result)
	s.metrics.notices.WithLabelValues(string(a.Arrival)).Inc()
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
