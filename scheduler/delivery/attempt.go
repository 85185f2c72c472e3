package delivery

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// An attempt tracks the progress of one Send.
type attempt struct {
	caller   context.Context
	timeout  time.Duration
	deadline time.Time
	conn     *conn // the connection that was used last; nil while there is none
}

func newAttempt(ctx context.Context, timeout time.Duration) *attempt {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return &attempt{caller: ctx, timeout: timeout, deadline: time.Now().Add(timeout)}
}

// over reports whether the attempt's time is up or its caller gone.
func (x *attempt) over() bool {
	return x.caller.Err() != nil || !time.Now().Before(x.deadline)
}

// sent reports whether any of the request may have reached the target. Unless an answer has come, the writing must have
// ended.
func (x *attempt) sent() bool { return x.conn != nil && (x.conn.heard || x.conn.wrote > 0) }

// ask sends the request on the attempt's connection and returns the head of the answer. After an error the connection
// is closed. untouched then tells that it was reused and took nothing of the request, so that another may.
func (x *attempt) ask(r *Request, userAgent string, limit int64) (_ *http.Response, untouched bool, err error) {
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
		return response, false, nil
	}
	c.end(false)
	if c.failure != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = c.failure // which says more
	}
	return nil, c.reused() && c.wrote == 0 && !c.heard, err
}
