package wire

import (
	"net/url"
	"time"
)

// A Request is one attempt to be sent. Everything in it is only read, and may be shared between attempts.
type Request struct {
	// Tenant is the tenant of the job. It decides which addresses may be called, and so which connections may be used.
	Tenant int32
	// Method, URL and the job's own Header have passed [CheckMethod], [CheckURL] and [CheckHeader].
	Method string
	URL    *url.URL
	// Host, unless empty, is what the target is called in place of the URL's host: in the header Host, in TLS, and in the
	// certificate. The connection leads to the URL's host all the same. It has passed [CheckHost].
	Host string
	// Header holds the headers that every attempt of the job carries, under canonical names.
	Header map[string][]string
	// Extra holds this attempt's own headers. They win over Header.
	Extra []Header
	Body  []byte
	// Timeout bounds the whole exchange, from dialling to the end of the answer's body. Default 30 s. It ends at Deadline,
	// or, if that is zero, this long after the call of Send. Errors tell the timeout, whatever was left of it.
	Timeout  time.Duration
	Deadline time.Time
	// Fresh asks for a connection of its own. A kept one may be about to end as the request arrives, which costs the
	// attempt.
	Fresh bool
	// KeepBody asks for the body of a success in [Result.Body].
	KeepBody bool
	// KeepBytes, unless nil, is how much of any answer's body is kept in [Result.Body], in place of the first KiB of
	// failures. With 0 nothing of the answer is kept, not even its headers.
	KeepBytes *int
	// WantJSON asks for the body of a success that is JSON in [Result.JSON], whatever else is kept of it.
	WantJSON bool
	// Phases, unless nil, is told when the parts of the exchange are over.
	Phases *Phases
}

// Phases are when the parts of an exchange are over, by this machine's clock. A part that did not happen, or did not
// succeed, has the zero time: on a kept connection there is only an answer.
type Phases struct {
	Begun     time.Time
	Connected time.Time // name resolved and connected
	Secured   time.Time // TLS handshake
	Answered  time.Time // head of the answer
}

// A Header is one header line. Name is canonical, as by [textproto.CanonicalMIMEHeaderKey].
type Header struct{ Name, Value string }
