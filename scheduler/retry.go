package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"punctual/scheduler/delivery"
)

// Backoff returns the delay after the given failed attempt (from 1): exponential up to max_backoff, with
// equal jitter, which is between half and the whole of it; random is in [0, 1). A server's Retry-After
// replaces it, up to max_backoff.
func (r Retry) Backoff(attempt int, retryAfter time.Duration, random float64) time.Duration {
	longest := r.MaxBackoff.Value()
	if retryAfter > 0 {
		return min(retryAfter, longest)
	}
	delay := float64(r.InitialBackoff.Value()) * math.Pow(r.Multiplier, float64(attempt-1))
	delay = min(delay, float64(longest))
	return time.Duration(delay/2 + delay/2*random)
}

// Judge decides what the result of an attempt means for its run.
func Judge(a Assignment, r delivery.Result, started, finished time.Time) Outcome {
	o := Outcome{Assignment: a, StartedAt: started, FinishedAt: finished, HTTPStatus: r.Status}
	if r.Reason == "" {
		o.Verdict = Succeed
		return o
	}
	o.Reason, o.Error, o.Response = Reason(r.Reason), r.Error, string(r.Body)
	o.Verdict = RetryRun
	switch {
	case r.Status != 0 && slices.Contains(a.Job.Retry.GiveUpOn, r.Status):
		o.Verdict, o.Reason = Bury, ReasonGone
	case a.Attempt >= a.Job.Retry.MaxAttempts:
		o.Verdict = Bury
	default:
		o.RetryIn = a.Job.Retry.Backoff(a.Attempt, r.RetryAfter, rand.Float64()) //nolint:gosec // spreads load, guards nothing
		if a.expired(finished.Add(o.RetryIn)) {
			o.Verdict, o.Reason = Bury, ReasonExpired
		}
	}
	return o
}

// maxLosses is how many attempts in a row a run may lose: a run that kills its replicas must not be given
// to one after the other until none is left.
const maxLosses = 3

// JudgeLost decides what the loss of an attempt's replica means for its run, which had lost so many
// attempts just before. A lost attempt counts, and is retried at once.
func JudgeLost(a Assignment, losses int, started, now time.Time) Outcome {
	o := Outcome{
		Assignment: a, Verdict: RetryRun, StartedAt: started, FinishedAt: now, Reason: ReasonLost,
		Error: "the replica that made this attempt vanished; whether the target got the request is not known",
	}
	switch {
	case losses+1 >= maxLosses:
		o.Verdict, o.Reason = Bury, ReasonPoison
	case a.Attempt >= a.Job.Retry.MaxAttempts:
		o.Verdict = Bury
	}
	return o
}
