package scheduler

import (
	"context"
	"net/http"
	"time"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/notice"
)

// ChoreNotices collects what is to be told of jobs, and sends what waits in the outbox.
const ChoreNotices = "notices"

// ChoreLifecycle collects the events of the lifecycle of runs.
const ChoreLifecycle = "lifecycle"

// Notices is what the scheduler asks of the database to tell people: the outbox, and what fills it.
type Notices interface {
	// Collect adds what may be told of jobs to the outbox. left is true while there may be more.
	Collect(ctx context.Context) (left bool, err error)
	// CollectLifecycle adds events of the lifecycle of runs, and bounds how many wait. left is true while some may be
	// sent within a second.
	CollectLifecycle(ctx context.Context) (left bool, err error)
	// Claim takes a message for a recipient to which no other is under way; nil: there is none to send now. batches says
	// whether it may be a batch of events of the lifecycle of runs.
	Claim(ctx context.Context, batches bool) (*notice.Outgoing, error)
	// Answered writes how the recipient answered.
	Answered(ctx context.Context, m notice.Outgoing, a notice.Answer) error
}

// A replica sends so many messages at once, of them so many batches of events of the lifecycle of runs, so that these
// make no notice of trouble wait. Messages take no worker slots, and none of a tenant's limits.
const (
	mostMessages = 20
	mostBatches  = 4
)

// notify collects what is to be told of jobs, and sends whatever waits in the outbox.
func (s *Scheduler) notify(ctx context.Context) (wait time.Duration, left bool, err error) {
	left, err = s.config.Notices.Collect(ctx)
	if err == nil {
		err = s.sendOutbox(ctx)
	}
	return 0, left, err
}

// collectLifecycle has events of the lifecycle of runs sent. A recipient gets a batch a second at most.
func (s *Scheduler) collectLifecycle(ctx context.Context) (wait time.Duration, left bool, err error) {
	left, err = s.config.Notices.CollectLifecycle(ctx)
	if left {
		s.chores.ask(ChoreNotices)
	}
	return chorePause, left, err
}

// sendOutbox sends messages until there are none, or as many as a replica sends at once are under way. What has been
// sent asks for the chore again.
func (s *Scheduler) sendOutbox(ctx context.Context) error {
	for {
		select {
		case s.messages <- struct{}{}:
		default:
			return nil
		}
		m, err := s.config.Notices.Claim(ctx, s.batches.Load() < mostBatches)
		if err != nil || m == nil {
			<-s.messages
			return err
		}
		batch := map[notice.Pipeline]int32{notice.Lifecycle: 1}[m.Pipeline]
		s.batches.Add(batch)
		s.running.Go(func() {
			s.deliver(*m)
			s.batches.Add(-batch)
			<-s.messages
			s.chores.ask(ChoreNotices)
		})
	}
}

// deliver sends a message. What the database does not learn of it is told again when the lease is over.
func (s *Scheduler) deliver(m notice.Outgoing) {
	began := time.Now()
	result, err := s.transport.send(s.workCtx, m, notice.Timeout)
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
