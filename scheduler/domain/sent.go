package domain

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// SentRequest is what an attempt sends, as it may be shown: with the mask in place of secrets, and without what the
// HTTP client adds.
type SentRequest struct {
	Method  string            `json:"method" doc:"HTTP method." example:"POST"`
	URL     string            `json:"url" doc:"Where it goes." example:"https://billing.internal/invoices"`
	Headers map[string]string `json:"headers" doc:"Its headers, without those that every HTTP client adds. Secrets and signatures are shown as ***."`
	Body    json.RawMessage   `json:"body,omitempty" doc:"Its body, in the form of target.body: a string is sent as it is, any other value as JSON. Absent: no body."`
}

// Sent returns what the attempt sends. It is not stored: it follows from the run and its version of the job. at is
// when it was sent, which the signature covers; if at is zero, the timestamp header is left out.
func (a Assignment) Sent(publicURL string, at time.Time) SentRequest {
	r := a.Request(publicURL)
	s := SentRequest{
		Method: r.Method, URL: r.URL.String(),
		Headers: make(map[string]string, len(r.Header)+len(r.Extra)+2),
		Body:    shownBody(a.ownBody(), r.Body),
	}
	for name, values := range r.Header {
		s.Headers[name] = values[0]
		if SecretName.MatchString(name) {
			s.Headers[name] = Mask
		}
	}
	for _, h := range r.Extra {
		s.Headers[h.Name] = h.Value
	}
	if !at.IsZero() {
		s.Headers["Webhook-Timestamp"] = strconv.FormatInt(at.Unix(), 10)
	}
	s.Headers["Webhook-Signature"] = Mask
	if a.Fence == 0 { // it is not claimed yet
		delete(s.Headers, "Punctual-Fencing-Token")
	}
	if a.Job.Completion == CompleteAsync {
		s.Headers["Punctual-Run-Token"] = Mask
	}
	for name := range a.Job.Target.SecretHeaders {
		s.Headers[http.CanonicalHeaderKey(name)] = Mask
	}
	if name := authHeader(a.Job.Target.Auth); name != "" {
		s.Headers[http.CanonicalHeaderKey(name)] = Mask
	}
	return s
}

// ownBody is the body as it was written: the run's, or else the job's.
func (a Assignment) ownBody() json.RawMessage {
	if a.Body != nil {
		return a.Body
	}
	return a.Job.Target.Body
}

// shownBody writes the bytes of a body as a definition would.
func shownBody(written json.RawMessage, sent []byte) json.RawMessage {
	if len(sent) == 0 {
		return nil
	}
	if !bytes.HasPrefix(bytes.TrimSpace(written), []byte(`"`)) {
		return sent
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if e.Encode(string(sent)) != nil {
		return nil // cannot happen: it is a string
	}
	return bytes.TrimSpace(text.Bytes())
}
