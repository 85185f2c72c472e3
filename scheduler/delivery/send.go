package delivery

import (
	"context"
	"errors"
	"io"
	"net/http"
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
	// Header holds the headers that every attempt of the job carries, under canonical names.
	Header http.Header
	// Extra holds this attempt's own headers. They win over Header.
	Extra []Header
	Body  []byte
	// Timeout bounds the whole exchange, from dialling to the end of the answer's body. Default 30 s.
	Timeout time.Duration
	// KeepBody asks for the body of a success in [Result.Body].
	KeepBody bool
	// KeepBytes, unless nil, is how much of any answer's body is kept in [Result.Body], in place of the first KiB of
	// failures. With 0 nothing of the answer is kept, not even its headers.
	KeepBytes *int
	// WantJSON asks for the body of a success that is JSON in [Result.JSON], whatever else is kept of it.
	WantJSON bool
}

// A Header is one header line. Name is canonical, as by [http.CanonicalHeaderKey].
type Header struct{ Name, Value string }

// Send performs one attempt and returns when it is over. At most one request is written, whatever happens.
func (c *Client) Send(ctx context.Context, r Request) Result {
	x := newAttempt(ctx, r.Timeout)
	if x.over() {
		return x.failed(ctx.Err())
	}
	h := c.pool(r.Tenant).enter(addressOf(r.URL))
	var kept *conn
	defer func() { h.leave(kept) }()
	for {
		var err error
		if x.conn, err = h.conn(x); err != nil {
			return x.failed(err)
		}
		// Closing the body would read it to its end.
		//nolint:bodyclose // the connection is closed instead
		resp, untouched, err := x.ask(&r, c.config.UserAgent, c.maxHeader)
		switch {
		case err == nil:
			res, whole := c.receive(x, &r, resp)
			if x.conn.end(whole && !resp.Close) {
				kept = x.conn
			}
			return res
		case untouched && !x.over():
			continue // the connection ended while it was idle
		}
		return x.failed(err)
	}
}

// receive reads and classifies the answer. whole means that it was read to its end.
func (c *Client) receive(x *attempt, r *Request, resp *http.Response) (res Result, whole bool) {
	res = Result{Status: resp.StatusCode, Sent: true}
	res.Reason, res.Error = classifyStatus(resp.StatusCode)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		res.RetryAfter = retryAfter(resp.Header, time.Now())
	}
	if resp.StatusCode < 200 { // 101: what follows is not a body
		return res, false
	}

	keep := c.keeps(r, res.Reason == "")
	if keep > 0 && !r.KeepBody {
		res.Header = keptHeaders(resp.Header)
	}
	limit, take := c.maxBytes, keep
	if r.KeepBytes != nil {
		limit = max(limit, keep+1) // one more byte tells whether that is all
	}
	asJSON := r.WantJSON && res.Reason == "" && isJSON(resp.Header)
	if asJSON {
		limit += envelope
		take = limit
	}
	body, truncated, err := readBody(resp.Body, limit, take)
	if whole = errors.Is(err, io.EOF); whole {
		err = nil
	}
	if asJSON {
		res.JSON, res.JSONCut = body, truncated
	}
	res.Body, res.Truncated = body[:min(keep, int64(len(body)))], truncated || int64(len(body)) > keep
	if err == nil {
		return res, whole
	}
	res.Truncated = true
	cut := x.failed(err)
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
