package scheduler

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"punctual/scheduler/delivery"
)

// Backoff returns the delay after the given failed attempt (from 1): exponential up to max_backoff, with
// equal jitter, which is between half and the whole of it; random is in [0, 1). A server's Retry-After
// replaces it, up to max_backoff. Up to a tenth is added to that, so that runs that were all told the same
// do not come back together; what max_backoff cuts short is spread over its last tenth.
func (r Retry) Backoff(attempt int, retryAfter time.Duration, random float64) time.Duration {
	longest := r.MaxBackoff.Value()
	if retryAfter > 0 {
		if retryAfter > longest {
			return longest - time.Duration(float64(longest)/10*random)
		}
		return min(retryAfter+time.Duration(float64(retryAfter)/10*random), longest)
	}
	delay := r.delay(attempt)
	return time.Duration(delay/2 + delay/2*random)
}

// delay is the longest backoff after an attempt, in nanoseconds.
func (r Retry) delay(attempt int) float64 {
	delay := float64(r.InitialBackoff.Value()) * math.Pow(r.Multiplier, float64(attempt-1))
	return min(delay, float64(r.MaxBackoff.Value()))
}

// Remaining is how long the backoffs after this attempt and all later ones could have taken: for so long a run may
// wait that is not sent because its host cannot be reached.
func (r Retry) Remaining(attempt int) time.Duration {
	var sum float64
	for n := attempt; n < r.MaxAttempts; n++ {
		sum += r.delay(n)
	}
	return time.Duration(min(sum, float64(longestWait)))
}

// longestWait bounds Remaining: a year.
const longestWait = 365 * 24 * time.Hour

// Judge decides what the result of an attempt means for its run.
func Judge(a Assignment, r delivery.Result, started, finished time.Time) Outcome {
	o := Outcome{
		Assignment: a, StartedAt: started, FinishedAt: finished, HTTPStatus: r.Status,
		Response: string(r.Body), Headers: r.Header, Truncated: r.Truncated && len(r.Body) > 0,
	}
	switch {
	case r.Reason == "" && r.Status == http.StatusAccepted && a.Job.Completion == CompleteAsync:
		o.Verdict, o.RetryIn = Await, a.Job.silence()
		return o
	case r.Reason == "":
		o.Verdict = Succeed
		o.Result, o.ResultNote = resultOf(r.JSON, r.JSONCut)
		return o
	}
	o.Reason, o.Error = Reason(r.Reason), r.Error
	if r.Status != 0 && slices.Contains(a.Job.Retry.GiveUpOn, r.Status) {
		o.Verdict, o.Reason = Bury, ReasonGone
		return o
	}
	o.fail(r.Sent, r.RetryAfter)
	return o
}

// fail lets a failed attempt be followed by another, unless it was the last: of as many as there may be,
// or because it may have been sent and none may be sent twice.
func (o *Outcome) fail(sent bool, retryAfter time.Duration) {
	o.Verdict = RetryRun
	if o.Attempt >= o.Job.Retry.MaxAttempts || sent && o.Job.Delivery == DeliverAtMostOnce {
		o.Verdict = Bury
		return
	}
	o.RetryIn = o.Job.Retry.Backoff(o.Attempt, retryAfter, rand.Float64()) //nolint:gosec // spreads load, guards nothing
	if o.Expired(o.FinishedAt.Add(o.RetryIn)) {
		o.Verdict, o.Reason = Bury, ReasonExpired
	}
}

// maxLosses is how many attempts in a row a run may lose: a run that kills its replicas must not be given
// to one after the other until none is left.
const maxLosses = 3

// JudgeLost decides what the loss of an attempt's replica means for its run, which had lost so many
// attempts just before.
func JudgeLost(a Assignment, losses int, started, now time.Time) Outcome {
	return lose(a, losses, started, now, "the replica that made this attempt vanished; whether the target got the request is not known")
}

// lose ends an attempt that nobody will hear of again. It counts, and is followed by another at once.
func lose(a Assignment, losses int, started, now time.Time, why string) Outcome {
	o := Outcome{Assignment: a, Verdict: RetryRun, StartedAt: started, FinishedAt: now, Reason: ReasonLost, Error: why}
	switch {
	case losses+1 >= maxLosses:
		o.Verdict, o.Reason = Bury, ReasonPoison
	case a.Attempt >= a.Job.Retry.MaxAttempts, a.Job.Delivery == DeliverAtMostOnce:
		o.Verdict = Bury
	}
	return o
}

// JudgeInterrupted decides what it means that a stopping replica cut an attempt off. It does not count and
// is made again at once, but for a job whose requests may be sent only once.
func JudgeInterrupted(a Assignment, started, finished time.Time, cause error) Outcome {
	if a.Job.Delivery == DeliverAtMostOnce {
		return lose(a, 0, started, finished, "cut off: "+cause.Error()+"; whether the target got the request is not known")
	}
	return Outcome{Assignment: a, Verdict: Interrupt, StartedAt: started, FinishedAt: finished, Error: cause.Error()}
}
