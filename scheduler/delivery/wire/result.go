package wire

import (
	"slices"
	"strings"
	"time"
)

// A Reason says why an attempt failed. It is empty on success.
type Reason string

// The reasons an attempt can fail for. The job's retry policy says how often and when it is tried again.
const (
	ReasonTimeout        Reason = "timeout"         // the exchange was not over in time
	ReasonConnect        Reason = "connect"         // name not found, refused, reset, closed early, or not HTTP
	ReasonTLS            Reason = "tls"             // no secure connection: certificate, handshake
	ReasonBlockedAddress Reason = "blocked_address" // the address must not be called
	ReasonRedirect       Reason = "redirect"        // 3xx
	ReasonHTTP4xx        Reason = "http_4xx"        // 4xx
	ReasonHTTP5xx        Reason = "http_5xx"        // 5xx
	ReasonMailRefused    Reason = "mail_refused"    // a mail server's 4yz or 5yz
)

// A Result is the outcome of one attempt.
type Result struct {
	// Status is the HTTP status; 0 when none came. It may be set beside any Reason and beside Cancelled: a 200 whose
	// body stalls is a timeout.
	Status int
	// Reason is empty when the attempt succeeded or was cancelled.
	Reason Reason
	// Cancelled is true when the caller's context ended before the exchange did; its cause tells why.
	Cancelled bool
	// Error is one line for people, empty on success. It names the host or its address at most: no user, path, query or
	// header.
	Error string
	// Body holds the first KiB of a failure's body, or as much of any body as [Request.KeepBytes] says, or the body of a
	// success if [Request.KeepBody] asked for it. The bytes are the target's: any encoding, NULs included.
	Body []byte
	// Truncated is true when Body may be incomplete.
	Truncated bool
	// Header holds KeptLog, and those of delivery.KeptHeaders if anything of the answer is kept, as far as the
	// answer had them. Nil: none is kept.
	Header map[string]string
	// JSON is the body of a success whose type is application/json, if [Request.WantJSON] asked for it. JSONCut is true
	// when it may be incomplete.
	JSON    []byte
	JSONCut bool
	// RetryAfter is the pause that a failure asked for, at most a year; 0 when it asked for none.
	RetryAfter time.Duration
	// Sent is true unless it is certain that no byte of the request was written.
	Sent bool
	// Lacks is what this replica lacks, if that is why nothing was sent. The target is not to blame.
	Lacks string
	// Final is true when another attempt would meet the same: a mail server's 5yz.
	Final bool
	// Proxy is true when the egress proxy failed, and not the target.
	Proxy bool
}

// OK reports whether the attempt succeeded.
func (r Result) OK() bool { return r.Reason == "" && !r.Cancelled }

// What is missing of a connection while it is being made.
const (
	MissingName       = "the host's name was not resolved"
	MissingConnection = "no connection"
	MissingHandshake  = "no handshake"
)

// NoConnection reports whether an attempt failed because no connection to the host could be made.
func NoConnection(r Reason, text string) bool {
	missing := func(what string) bool { return strings.HasPrefix(text, what) }
	return r == ReasonConnect || r == ReasonTimeout &&
		slices.ContainsFunc([]string{MissingName, MissingConnection, MissingHandshake}, missing)
}

// Short writes a duration without the parts that are zero: 24h for 24h0m0s.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
