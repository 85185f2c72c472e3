package scheduler

import (
	"context"
	"errors"
	"time"

	"punctual/scheduler/admit"

	"punctual/scheduler/credential"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/scheduler/jobspec"
)

// dispatch starts the attempts of a claimed batch, each in a worker slot of its queue. It returns false, and starts
// none, when the claim has been given back.
func (s *Scheduler) dispatch(b domain.Batch) bool {
	if len(b.Runs) > 0 && !s.heart.leases.hold(b.Runs[0].Lease.ID) {
		return false
	}
	now := time.Now()
	for _, a := range b.Runs {
		o, p := &domain.Outcome{Assignment: a}, s.admission.Enter(a, now)
		s.running.Go(func() {
			growStack()
			result := s.execute(o, p)
			p.End(result, !o.StartedAt.IsZero() && !o.Job.SendsNothing())
			held := o.Verdict == domain.Cancel
			if held {
				// A replaced run leaves its worker slot to its successor. That may start only once the cancel is written.
				o.Release = p.Release
			}
			s.finisher.put(o)
			if !held {
				p.Release() // not before: outcomes that cannot be written occupy slots, so claims stop
			}
		})
	}
	return true
}

// execute makes one attempt, decides what it means for its run, and returns the result of the request. It checks expiry
// right before the request goes out, whatever delayed it.
//
// execute and send fill in an outcome that is not on their stack: with it, the stack of each request in flight would be
// twice as large. What judge decides may replace the outcome, so what does not follow from the result is set after it.
func (s *Scheduler) execute(o *domain.Outcome, p *admit.Permit) wire.Result {
	failpoint.At(failpoint.SendBegun)
	started := s.now(o.Assignment)
	o.FinishedAt = started
	switch {
	case s.workCtx.Err() != nil, s.heart.watch.expired(time.Now()):
		// This replica stops, or other replicas may have taken over.
		o.Verdict = domain.GiveBack
		return silence
	case o.Expired(started):
		o.Verdict, o.Reason = domain.Expire, domain.ReasonExpired
		return silence
	}
	if o.Job.SendsNothing() { // it waits until its steps have ended, or a person has decided
		o.Verdict, o.RetryIn, o.StartedAt = domain.Await, o.Job.MaxDuration.Value(), started
		return silence
	}
	if wait := p.Admit(o.Assignment, started); wait != nil {
		admit.HoldBack(o, wait, started)
		if o.Verdict == domain.Hold {
			s.metrics.deferred.Inc()
		}
		return silence
	}
	s.metrics.late(o.Assignment, started)
	return s.send(o, started)
}

// contextOf returns the context of an attempt.
func (s *Scheduler) contextOf(a domain.Assignment) context.Context {
	if a.Gated || a.Bounded {
		return s.heart.exclusive()
	}
	return s.workCtx
}

// send sends the request of an attempt that may go out.
func (s *Scheduler) send(o *domain.Outcome, started time.Time) wire.Result {
	ctx, done := s.flights.begin(s.contextOf(o.Assignment), o.Assignment)
	defer done()
	if err := s.readGiven(ctx, o); err != nil {
		s.notSent(o, err, "the input of workflows and the results of their steps")
		return silence
	}
	sent := time.Now()
	request := o.Request(s.config.Origin)
	if s.config.Tracer.Follows(&o.Assignment) {
		request.Phases = &wire.Phases{Begun: sent}
	}
	result, err := s.transport.transmit(ctx, o.Assignment, request, started)
	o.FinishedAt = started.Add(time.Since(sent))
	if err != nil {
		s.notSent(o, err, "the secrets")
		return silence
	}
	failpoint.At(failpoint.SendAnswered)
	if result.Lacks != "" {
		s.fellShort(o, result)
		return result
	}
	judge(o, result, started, ctx.whyEnded())
	o.Phases = request.Phases
	return result
}

// readGiven reads what a step is given, if the claim has not. That takes no longer than a replica may be without its
// database.
func (s *Scheduler) readGiven(ctx context.Context, o *domain.Outcome) error {
	if o.Given != nil || !o.TakesGiven() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, givenTimeout)
	defer cancel()
	return s.store.ReadGiven(ctx, &o.Assignment)
}

// notSent decides what becomes of a run whose request was not sent because of an error: something could not be read.
func (s *Scheduler) notSent(o *domain.Outcome, err error, what string) {
	if errors.Is(err, credential.ErrExpired) {
		o.Verdict, o.Reason = domain.Expire, domain.ReasonExpired
		return
	}
	// One failed read concerns all runs that waited for it, which may be hundreds. Each of them says so in its row.
	s.unread.Do(func() {
		s.log.Warn(what+" cannot be read; runs wait for them", "run", o.RunID, "error", err)
	})
	o.Verdict, o.RetryIn = domain.GiveBack, unreadRetry
	o.Error = what + " cannot be read from the database right now"
}

// judge decides what the result of a request means for its run. cause is why its context ended, if it did.
func judge(o *domain.Outcome, result wire.Result, started time.Time, cause error) {
	switch {
	case result.Cancelled && errors.Is(cause, errCancelled):
		o.Verdict, o.Reason, o.Error = domain.Cancel, domain.ReasonCancelled, errCancelled.Error()
		if result.Sent {
			o.StartedAt = started
		}
	case result.Cancelled && !result.Sent:
		o.Verdict = domain.GiveBack
	case result.Cancelled:
		*o = domain.JudgeInterrupted(o.Assignment, started, o.FinishedAt, cause)
	default:
		*o = domain.Judge(o.Assignment, result, started, o.FinishedAt)
	}
}

// silence is the result of a request that revealed nothing about its host.
var silence = wire.Result{Cancelled: true}

// unreadRetry is how long a run waits when it was not sent because something that is sent could not be read.
const unreadRetry = time.Second

// givenTimeout bounds the read of what a step is given.
const givenTimeout = 4 * time.Second

// now estimates the database's clock, and is never before the claim.
func (s *Scheduler) now(a domain.Assignment) time.Time {
	return jobspec.Later(s.clock.now(), a.Lease.ClaimedAt)
}

// growStack lets the stack of its goroutine grow to what a request needs, while there is hardly anything on it. Go
// begins with a small stack, and copies all of it each time it grows. Growing in steps on the way to a request took 4 %
// of a replica's time in a burst.
//
//go:noinline
func growStack() {
	var needed [6 << 10]byte
	use(&needed)
}

//go:noinline
func use(*[6 << 10]byte) {}
