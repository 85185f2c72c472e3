package delivery

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"
)

// An attempt tracks the progress of one Send. It is also the context of its request, so that a dial can find it.
type attempt struct {
	context.Context // ends at the deadline, or with the caller's context
	cancel          context.CancelFunc
	caller          context.Context
	timeout         time.Duration
	deadline        time.Time
	traced          context.Context // the attempt itself, with trace
	trace           httptrace.ClientTrace
	conn            *conn // the connection in use; nil while there is none
	reused          bool
}

type attemptKey struct{}

// Value returns the attempt itself, or what the caller's context holds.
func (x *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return x
	}
	return x.Context.Value(key)
}

func newAttempt(ctx context.Context, timeout time.Duration) *attempt {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	x := &attempt{caller: ctx, timeout: timeout, deadline: time.Now().Add(timeout)}
	x.Context, x.cancel = context.WithDeadline(ctx, x.deadline)
	x.trace.GotConn = x.gotConn
	x.traced = httptrace.WithClientTrace(x, &x.trace)
	return x
}

// gotConn is called by RoundTrip, in the attempt's goroutine, for every connection it tries.
func (x *attempt) gotConn(info httptrace.GotConnInfo) {
	x.conn, x.reused = info.Conn.(*conn), info.Reused
	x.conn.begin()
}

func (x *attempt) sent() bool { return x.conn != nil && x.conn.sent() }

// request builds the request for one try at a connection. The literal leaves GetBody nil on purpose: net/http may
// send again whatever it can rewind.
func (x *attempt) request(r *Request, header http.Header) *http.Request {
	req := http.Request{Method: r.Method, URL: r.URL, Header: header}
	if len(r.Body) > 0 {
		// net/http recognises this very pair as in-memory, and then sends headers and body in one packet.
		req.Body = io.NopCloser(bytes.NewReader(r.Body))
		req.ContentLength = int64(len(r.Body))
	}
	return req.WithContext(x.traced)
}

// over reports whether the attempt's time is up or its caller gone.
func (x *attempt) over() bool {
	return x.Err() != nil || !time.Now().Before(x.deadline)
}
