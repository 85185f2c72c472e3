package delivery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"punctual/scheduler/delivery/wire"
)

// receive reads and classifies the answer. whole means that it was read to its end.
func (c *Client) receive(x *attempt, r *wire.Request, resp *http.Response) (res wire.Result, whole bool) {
	res = wire.Result{Status: resp.StatusCode, Sent: true}
	res.Reason, res.Error = textOf(r, resp)
	if res.Reason != "" {
		res.RetryAfter = retryAfter(resp.Header, time.Now())
	}
	if resp.StatusCode < 200 { // 101: what follows is not a body
		return res, false
	}

	keep := c.keeps(r, res.Reason == "")
	if !r.KeepBody {
		res.Header = keptHeaders(resp.Header, keep > 0)
	}
	limit, take := c.maxBytes, keep
	if r.KeepBytes != nil {
		limit = max(limit, keep+1) // one more byte tells whether that is all
	}
	asJSON := r.WantJSON && res.Reason == ""
	if asJSON {
		limit += envelope
		take = limit
	}
	body, truncated, err := readBody(resp.Body, limit, take)
	if whole = errors.Is(err, io.EOF); whole {
		err = nil
	}
	if asJSON && (isJSON(resp.Header) || looksJSON(body)) {
		res.JSON, res.JSONCut = body, truncated
	}
	res.Body, res.Truncated = body[:min(keep, int64(len(body)))], truncated || int64(len(body)) > keep
	if err == nil {
		return res, whole
	}
	res.Truncated = true
	cut := x.failed(faultyBody(err))
	switch {
	case cut.Cancelled:
		res.Reason, res.Cancelled, res.Error = "", true, cut.Error
	case res.Reason == "": // a failure keeps the reason of its status
		res.Reason, res.Error, res.JSON = cut.Reason, cut.Error, nil
		if r.KeepBytes == nil {
			res.Body = nil
		}
	}
	return res, false
}

// textOf returns the reason and text for an answer; both are empty for 2xx.
func textOf(r *wire.Request, resp *http.Response) (wire.Reason, string) {
	reason, text := classifyStatus(resp.StatusCode)
	if to := leadsTo(r, resp); to != "" {
		text = fmt.Sprintf("the target answered %d and redirects to %s; redirects are not followed", resp.StatusCode, to)
	}
	return reason, text
}

// leadsTo returns where a redirect leads; empty if it says that nowhere, or nothing of the answer is to be kept. User,
// query and fragment may hold secrets and are left out. An address that is too long for an error is left out as a
// whole: secrets of the request are found only where they are not cut.
func leadsTo(r *wire.Request, resp *http.Response) string {
	location := resp.Header.Get("Location")
	if resp.StatusCode/100 != 3 || resp.StatusCode == http.StatusNotModified || location == "" ||
		r.KeepBytes != nil && *r.KeepBytes == 0 {
		return ""
	}
	u, err := r.URL.Parse(location)
	if err != nil {
		return ""
	}
	to := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if u.RawQuery != "" {
		to += "?…"
	}
	if len(to) > maxForeign {
		return ""
	}
	return oneLine(to)
}

var scratch = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// readBody reads body to its end or to limit, whichever comes first, and returns its first keep bytes. It reads on
// past what is kept so that the connection can be used again. truncated means that there may be more than was kept.
// The error at the end of the body is io.EOF, and at the limit nil.
func readBody(body io.Reader, limit, keep int64) (kept []byte, truncated bool, err error) {
	buf := scratch.Get().(*[8 << 10]byte)
	defer scratch.Put(buf)
	for limit > 0 {
		n, err := body.Read(buf[:min(limit, int64(len(buf)))])
		limit -= int64(n)
		if room := min(int64(n), keep-int64(len(kept))); room > 0 {
			kept = append(kept, buf[:room]...)
			n -= int(room)
		}
		truncated = truncated || n > 0
		if err != nil {
			return kept, truncated || err != io.EOF, err
		}
	}
	return kept, true, nil
}

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
func (c *Client) keeps(r *wire.Request, success bool) int64 {
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

// keptHeaders returns the headers that are kept of an answer. One of which nothing else is kept may still name its log;
// it returns nil if it does not, so that it costs the run no row.
func keptHeaders(h http.Header, all bool) (kept map[string]string) {
	if log := h.Get(wire.LogHeader); log != "" {
		kept = map[string]string{wire.KeptLog: log[:min(len(log), wire.MaxURL+1)]}
	}
	if !all {
		return kept
	}
	if kept == nil {
		kept = make(map[string]string, len(KeptHeaders))
	}
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

// looksJSON reports whether a body begins as a JSON object does. Many a target sends JSON and names another type, or
// none.
func looksJSON(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{"))
}

// maxRetryAfter keeps absurd values representable; the job's max_backoff is the real limit.
const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter reads Retry-After, RFC 9110 section 10.2.3: seconds, or a date. Some targets write fractions of a second,
// which are rounded up. A date is measured against the answer's own Date if it has one, so that a target whose clock is
// off still gets the pause it meant.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789.") == "" {
		seconds, err := strconv.ParseFloat(value, 64) // infinite where it is too large
		if errors.Is(err, strconv.ErrSyntax) {
			return 0
		}
		return time.Duration(math.Ceil(min(seconds, maxRetryAfter.Seconds()))) * time.Second
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
