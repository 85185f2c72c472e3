package delivery

import (
	"net/http"
	"strings"
)

// KeptHeaders are the headers of an answer that are worth keeping with the record of an attempt: they say what
// answered, when, and what it wants done next. The list is closed, so that no session of a target is kept.
var KeptHeaders = []string{
	"Content-Type", "Date", "Location", "Retry-After", "Server", "Via", "Www-Authenticate",
	"X-Correlation-Id", "X-Request-Id",
}

// MaxKeptHeader is how many bytes of each kept header are kept.
const MaxKeptHeader = 512

// envelope is how much longer a body wanted as JSON may be than other bodies. The member that it is wanted for may be
// as long as any body, and lies within an object.
const envelope = 4 << 10

// keeps is how many bytes of an answer's body are kept.
func (c *Client) keeps(r *Request, success bool) int64 {
	switch {
	case r.KeepBytes != nil:
		return int64(*r.KeepBytes)
	case !success:
		return keptOfFailure
	case r.KeepBody:
		return c.maxBytes
	}
	return 0
}

func keptHeaders(h http.Header) map[string]string {
	kept := make(map[string]string, len(KeptHeaders))
	for _, name := range KeptHeaders {
		if value := h.Get(name); value != "" {
			kept[strings.ToLower(name)] = value[:min(len(value), MaxKeptHeader)]
		}
	}
	return kept
}

// isJSON reports whether the headers of an answer say that its body is JSON.
func isJSON(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/json")
}
