package domain

import (
	"math/rand/v2"
	"slices"
	"time"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
)

// accepted is the HTTP status of a target that goes on working.
const accepted = 202

// Judge decides what the result of an attempt means for its run.
func Judge(a Assignment, r wire.Result, started, finished time.Time) Outcome {
	o := Outcome{
		Assignment: a, StartedAt: started, FinishedAt: finished, HTTPStatus: r.Status,
		Response: string(r.Body), Headers: r.Header, Truncated: r.Truncated && len(r.Body) > 0,
	}
	switch {
	case r.Reason == "" && r.Status == accepted && a.Job.Completion == jobspec.CompleteAsync:
		o.Verdict, o.RetryIn = Await, min(a.Job.HeartbeatTimeout.Value(), a.Job.MaxDuration.Value())
		return o
	case r.Reason == "":
		o.Verdict = Succeed
		o.Result, o.ResultNote = resultOf(r.JSON, r.JSONCut)
		return o
	}
	o.Reason, o.Error = Reason(r.Reason), errorOf(r)
	if r.Status != 0 && slices.Contains(a.Job.Retry.GiveUpOn, r.Status) {
		o.Verdict, o.Reason = Bury, ReasonGone
		return o
	}
	o.fail(r.Sent, r.RetryAfter)
	return o
}

// fail lets another attempt follow a failed one, unless it was the last: when the attempts are used up, when the target
// may still be working on it, or when the request may have been sent and must not be sent twice.
func (o *Outcome) fail(sent bool, retryAfter time.Duration) {
	o.Verdict = Bury
	again := !o.Bounded
	if asked := o.Job.Retry.AfterTimeout; asked != nil {
		again = *asked
	}
	switch {
	case o.Attempt >= o.Job.Retry.MaxAttempts:
		return
	case sent && o.Reason == ReasonTimeout && !again:
		o.Error += "; it may still be working, so no other attempt follows (retry.after_timeout)"
		return
	case sent && o.Job.Delivery == jobspec.DeliverAtMostOnce:
		return
	}
	o.Verdict = RetryRun
	o.RetryIn = o.Job.Retry.Backoff(o.Attempt, retryAfter, rand.Float64()) //nolint:gosec // spreads load, guards nothing
	if o.Expired(o.FinishedAt.Add(o.RetryIn)) {
		o.Verdict, o.Reason = Bury, ReasonExpired
	}
}

// LastChance reports whether no attempt may follow one that starts now and fails: whatever it meets may cost the run.
func (a Assignment) LastChance(now time.Time) bool {
	return a.Job.Delivery == jobspec.DeliverAtMostOnce || a.Attempt >= a.Job.Retry.MaxAttempts ||
		a.Expired(now.Add(a.Job.Retry.Longest(a.Attempt)))
}

// maxLosses is how many attempts in a row a run may lose. A run that kills its replicas must not be given to one
// after the other until none is left.
const maxLosses = 3

// JudgeLost decides what the loss of an attempt's replica means for its run. losses is how many attempts in a row the
// run had lost just before.
func JudgeLost(a Assignment, losses int, started, now time.Time) Outcome {
	return lose(a, losses, started, now,
		"the replica that made this attempt vanished; whether the target got the request is not known")
}

// JudgeForgotten decides the same when the database has lost an outcome that it had acknowledged.
func JudgeForgotten(a Assignment, losses int, started, now time.Time) Outcome {
	return lose(a, losses, started, now,
		"the database has lost the outcome of this attempt; whether the target got the request is not known")
}

// lose ends an attempt whose end nobody will ever report. It counts as an attempt, and another follows at once.
func lose(a Assignment, losses int, started, now time.Time, why string) Outcome {
	o := Outcome{Assignment: a, Verdict: RetryRun, StartedAt: started, FinishedAt: now, Reason: ReasonLost, Error: why}
	switch {
	case a.Job.SendsNothing(): // it sends nothing, so nothing can come twice
		return Outcome{Assignment: a, Verdict: GiveBack, FinishedAt: now}
	case losses+1 >= maxLosses:
		o.Verdict, o.Reason = Bury, ReasonPoison
	case a.Attempt >= a.Job.Retry.MaxAttempts, a.Job.Delivery == jobspec.DeliverAtMostOnce:
		o.Verdict = Bury
	}
	return o
}

// JudgeInterrupted decides what it means that a stopping replica cut an attempt off. The attempt does not count and
// is made again at once, except for a job with at_most_once delivery.
func JudgeInterrupted(a Assignment, started, finished time.Time, cause error) Outcome {
	if a.Job.Delivery == jobspec.DeliverAtMostOnce {
		return lose(a, 0, started, finished, "cut off: "+cause.Error()+"; whether the target got the request is not known")
	}
	return Outcome{Assignment: a, Verdict: Interrupt, StartedAt: started, FinishedAt: finished, Error: cause.Error()}
}
