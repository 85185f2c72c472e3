package delivery

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"punctual/scheduler/delivery/wire"
)

// Send performs one attempt and returns when it is over. At most one request is written, whatever happens.
func (c *Client) Send(ctx context.Context, r wire.Request) wire.Result {
	if r.Timeout <= 0 {
		r.Timeout = defaultTimeout
	}
	if r.Deadline.IsZero() {
		r.Deadline = time.Now().Add(r.Timeout)
	}
	x := &attempt{caller: ctx, timeout: r.Timeout, deadline: r.Deadline}
	if x.over() {
		return x.failed(ctx.Err())
	}
	pool, to := c.pool(r.Tenant), addressOf(r.URL, r.Host)
	for {
		var err error
		if x.conn, err = pool.conn(x, to, r.Fresh); err != nil {
			return x.failed(err)
		}
		if p := r.Phases; p != nil && !x.conn.reused() {
			p.Connected, p.Secured = x.conn.made, x.conn.secured
		}
		// Closing the body would read it to its end.
		//nolint:bodyclose // the connection is closed instead
		resp, untouched, err := x.ask(&r, c.config.UserAgent, c.maxHeader)
		switch {
		case err == nil:
			res, whole := c.receive(x, &r, resp)
			if x.conn.end(whole && !resp.Close && !r.Fresh) {
				pool.put(to, x.conn, keepAlive(resp.Header))
			}
			return res
		case untouched && !x.over():
			continue // the connection ended while it was idle
		}
		return x.failed(err)
	}
}

// An attempt tracks the progress of one Send.
type attempt struct {
	caller   context.Context
	timeout  time.Duration
	deadline time.Time
	conn     *conn        // the connection that was used last; nil while there is none
	missing  atomic.Value // of string: what a new connection lacks
}

// over reports whether the attempt's time is up or its caller gone.
func (x *attempt) over() bool {
	return x.caller.Err() != nil || !time.Now().Before(x.deadline)
}

// left reports whether the caller is gone. A caller whose own deadline is the attempt's has waited for all of it.
func (x *attempt) left() bool {
	err := x.caller.Err()
	return err != nil && (!isDeadline(err) || time.Now().Before(x.deadline))
}

// sent reports whether any of the request may have reached the target. Unless an answer has come, the writing must have
// ended.
func (x *attempt) sent() bool { return x.conn != nil && (x.conn.heard || x.conn.wrote > 0) }

// ask sends the request on the attempt's connection and returns the head of the answer. After an error the connection
// is closed. untouched then tells that it was reused and took nothing of the request, so that another may.
func (x *attempt) ask(r *wire.Request, userAgent string, limit int64) (_ *http.Response, untouched bool, err error) {
	c := x.conn
	c.begin(x.caller, x.deadline)
	c.start(r, userAgent)
	if c.writing == nil && c.wrote == 0 && (c.reused() || errors.Is(c.failure, errUnfit)) {
		c.end(false)
		return nil, c.reused() && !errors.Is(c.failure, errUnfit), c.failure
	}
	// Also if not all could be written: a target that refuses a request may have said why before it hung up.
	response, err := c.answer(r.Method, limit)
	if err == nil {
		if r.Phases != nil {
			r.Phases.Answered = time.Now()
		}
		return response, false, nil
	}
	c.end(false)
	if c.failure != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = c.failure // which says more
	}
	return nil, c.reused() && c.wrote == 0 && !c.heard, err
}
