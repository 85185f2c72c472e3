package delivery

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter keeps absurd values representable; the job's max_backoff is the real limit.
const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter reads Retry-After, RFC 9110 section 10.2.3: seconds, or a date. A date is measured against the answer's
// own Date if it has one, so that a target whose clock is off still gets the pause it meant.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
