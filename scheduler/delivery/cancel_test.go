package delivery

import (
	"bufio"
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"punctual/scheduler/delivery/wire"
)

// Cancelling ends the exchange at once, at any stage, and the target sees its connection close.
func TestCancellingEndsTheExchange(t *testing.T) {
	tests := []struct {
		name, scheme, answer string
		status               int
		sent                 bool
	}{
		{"during the handshake", "https", "", 0, false},
		{"before the answer", "http", "", 0, true},
		{"within the headers", "http", "HTTP/1.1 200 OK\r\n", 0, true},
		{"within the body", "http", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 200, true},
		{"within the body of a failure", "http", "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nabc", 500, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			reached, closed := make(chan struct{}), make(chan struct{})
			u := listen(t, func(nc net.Conn, _ int) {
				br := bufio.NewReader(nc)
				if test.scheme == "https" {
					_, _ = br.ReadByte()
				} else {
					readRequest(br)
				}
				_, _ = io.WriteString(nc, test.answer)
				close(reached)
				_, _ = io.Copy(io.Discard, br)
				close(closed)
			})
			u.Scheme = test.scheme
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			results := make(chan wire.Result)
			r := post(u)
			r.Timeout = time.Hour // so that it is not the timeout that ends it
			go func() { results <- newClient(t, Config{}).Send(ctx, r) }()
			<-reached
			cancel()
			res := <-results
			<-closed
			if !res.Cancelled || res.Reason != "" || res.OK() || res.Sent != test.sent {
				t.Errorf("got %+v; want cancelled, sent %t", res, test.sent)
			}
			// An answer that was on its way when the attempt was cancelled may have arrived or not.
			if res.Status != 0 && res.Status != test.status {
				t.Errorf("status %d", res.Status)
			}
		})
	}
}

func TestACancelledContextSendsNothing(t *testing.T) {
	u := listen(t, func(nc net.Conn, _ int) { t.Error("connected to"); _ = nc.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res := newClient(t, Config{}).Send(ctx, post(u)); !res.Cancelled || res.Sent {
		t.Errorf("got %+v", res)
	}
}

func TestTheCallersDeadlineIsNotTheJobsTimeout(t *testing.T) {
	u := listen(t, answering(""))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if res := newClient(t, Config{}).Send(ctx, post(u)); !res.Cancelled || res.Reason != "" {
		t.Errorf("got %+v; want cancelled", res)
	}
}

func TestADialDoesNotOutliveItsAttempt(t *testing.T) {
	closed := make(chan struct{}, 1)
	u := listen(t, func(nc net.Conn, _ int) {
		_, _ = io.Copy(io.Discard, nc)
		closed <- struct{}{}
	})
	u.Scheme = "https"
	r := post(u)
	r.Timeout = 30 * time.Millisecond
	if res := newClient(t, Config{}).Send(t.Context(), r); res.Reason != wire.ReasonTimeout || res.Sent {
		t.Errorf("got %+v; want a timeout", res)
	}
	<-closed
}

// An attempt ends in time even if something that is asked before a connection does not.
func TestAnAttemptDoesNotWaitForADialThatCannotBeInterrupted(t *testing.T) {
	u := listen(t, answering(okAnswer))
	goOn, asked := make(chan struct{}), make(chan struct{}, 2)
	c := newClient(t, Config{Control: func(string, string, syscall.RawConn) error {
		asked <- struct{}{}
		<-goOn
		return nil
	}})
	r := post(u)
	r.Timeout = short
	if res := c.Send(t.Context(), r); res.Reason != wire.ReasonTimeout || res.Sent {
		t.Errorf("got %+v; want a timeout, not sent", res)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.Timeout = time.Hour
	<-asked
	go func() { <-asked; cancel() }()
	if res := c.Send(ctx, r); !res.Cancelled || res.Sent {
		t.Errorf("got %+v; want cancelled, not sent", res)
	}
	close(goOn) // what is connected then is closed, or nothing is
}
