package scheduler

import (
	"context"
	"errors"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
)

// dispatch starts the attempts of a claimed batch, each in a worker slot of its queue. It returns false, and starts
// none, when the claim has been given back.
func (s *Scheduler) dispatch(b domain.Batch) bool {
	if len(b.Runs) > 0 && !s.heart.hold(b.Runs[0].Lease.ID) {
		return false
	}
	now := time.Now()
	for _, a := range b.Runs {
		queue, work := a.Lane/4, workOf(a)
		s.slots.take(queue, a.Job.Tenant, work)
		s.running.Go(func() {
			outcome, lent := s.execute(a)
			if outcome.StartedAt.IsZero() {
				s.limits.sentNothing(a.Job.Tenant, now)
			}
			release := func() { s.slots.release(queue, a.Job.Tenant, work, lent) }
			if outcome.Verdict == domain.Cancel {
				// A replaced run leaves its worker slot to its successor. That may start only once the cancel is written.
				outcome.Release = release
			}
			s.finisher.put(outcome)
			if outcome.Release == nil {
				release() // not before: outcomes that cannot be written occupy slots, so claims stop
			}
		})
	}
	return true
}

// execute makes one attempt and decides what it means for its run. It checks expiry right before the request goes
// out, whatever delayed it. lent is true when the worker slot was lent to other runs meanwhile.
func (s *Scheduler) execute(a domain.Assignment) (o domain.Outcome, lent bool) {
	failpoint.At(failpoint.SendBegun)
	started := s.now(a)
	switch {
	case s.workCtx.Err() != nil:
		return domain.Outcome{Assignment: a, Verdict: domain.GiveBack, FinishedAt: started}, false
	case s.heart.watch.expired(time.Now()):
		// Other replicas may have taken over.
		return domain.Outcome{Assignment: a, Verdict: domain.GiveBack, FinishedAt: started}, false
	case a.Expired(started):
		return domain.Outcome{Assignment: a, Verdict: domain.Expire, FinishedAt: started, Reason: domain.ReasonExpired}, false
	}
	request := a.Request(s.config.PublicURL)
	flight, wait := s.holds.admit(a, a.Job.URL()) // by the job's URL: placeholders would make each path another one
	if wait != nil {
		o = holdBack(a, wait, started)
		if o.Verdict == domain.Hold {
			s.metrics.deferred.Inc()
		}
		return o, false
	}
	turned := a.TurnsLate(started)
	if turned {
		a.Late = true
		request = a.Request(s.config.PublicURL)
	}
	s.metrics.late(a, started)
	o, result := s.send(a, request, started)
	o.TurnedLate = turned && !o.StartedAt.IsZero()
	return o, s.holds.done(flight, result)
}

// send sends the request of an attempt that may go out.
func (s *Scheduler) send(
	a domain.Assignment, request delivery.Request, started time.Time,
) (domain.Outcome, delivery.Result) {
	parent := s.workCtx
	if a.Gated {
		parent = s.heart.exclusive()
	}
	ctx, done := s.flights.begin(parent, a)
	defer done()
	sent := time.Now()
	result, err := s.transmit(ctx, a, request, started)
	switch {
	case errors.Is(err, errExpired):
		return domain.Outcome{
			Assignment: a, Verdict: domain.Expire, FinishedAt: started.Add(time.Since(sent)), Reason: domain.ReasonExpired,
		}, silence
	case err != nil:
		// One failed read concerns all runs that waited for it, which may be hundreds. Each of them says so in its row.
		s.unread.Do(func() {
			s.log.Warn("secrets cannot be read; runs wait for them", "run", a.RunID, "error", err)
		})
		return domain.Outcome{
			Assignment: a, Verdict: domain.GiveBack, FinishedAt: started, RetryIn: secretsRetry,
			Error: "the secrets cannot be read from the database right now",
		}, silence
	}
	failpoint.At(failpoint.SendAnswered)
	finished := started.Add(time.Since(sent))
	switch {
	case result.Cancelled && errors.Is(context.Cause(ctx), errCancelled):
		o := domain.Outcome{
			Assignment: a, Verdict: domain.Cancel, FinishedAt: finished, Reason: domain.ReasonCancelled,
			Error: errCancelled.Error(),
		}
		if result.Sent {
			o.StartedAt = started
		}
		return o, result
	case result.Cancelled && !result.Sent:
		return domain.Outcome{Assignment: a, Verdict: domain.GiveBack, FinishedAt: finished}, result
	case result.Cancelled:
		return domain.JudgeInterrupted(a, started, finished, context.Cause(ctx)), result
	}
	return domain.Judge(a, result, started, finished), result
}

// silence is the result of a request that revealed nothing about its host.
var silence = delivery.Result{Cancelled: true}

// secretsRetry is how long a run waits when it was not sent because its secrets could not be read.
const secretsRetry = time.Second

// now estimates the database's clock, and is never before the claim.
func (s *Scheduler) now(a domain.Assignment) time.Time {
	now := s.clock.now()
	if now.Before(a.Lease.ClaimedAt) {
		return a.Lease.ClaimedAt
	}
	return now
}
