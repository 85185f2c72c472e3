package jobspec

import (
	"math"
	"time"
)

// Backoff returns the delay after the given failed attempt, counted from 1. It grows exponentially up to max_backoff,
// with equal jitter: between half and the whole of it. random is in [0, 1).
//
// A server's Retry-After replaces it, up to max_backoff. Up to a tenth is added to that, so that runs that were all
// given the same Retry-After do not come back together. A Retry-After beyond max_backoff is spread over the last
// tenth of max_backoff.
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

// Longest returns the longest backoff after the given failed attempt.
func (r Retry) Longest(attempt int) time.Duration { return time.Duration(r.delay(attempt)) }

// delay is Longest in nanoseconds.
func (r Retry) delay(attempt int) float64 {
	delay := float64(r.InitialBackoff.Value()) * math.Pow(r.Multiplier, float64(attempt-1))
	return min(delay, float64(r.MaxBackoff.Value()))
}

// Remaining is how long the backoffs after this attempt and all later ones could take. A run whose host cannot be
// reached may wait for that long.
func (r Retry) Remaining(attempt int) time.Duration {
	var sum float64
	for n := attempt; n < r.MaxAttempts; n++ {
		sum += r.delay(n)
	}
	return time.Duration(min(sum, float64(longestWait)))
}

// longestWait bounds Remaining: a year.
const longestWait = 365 * 24 * time.Hour
