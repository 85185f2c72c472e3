package delivery

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"punctual/scheduler/delivery/wire"
)

// A faulty is a connection whose n-th write hands over only so many bytes, and breaks it.
type faulty struct {
	net.Conn
	n     int // counts down
	takes int
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.n--; f.n != 0 {
		return f.Conn.Write(p)
	}
	n, _ := f.Conn.Write(p[:min(f.takes, len(p))])
	_ = f.Close()
	return n, &net.OpError{Op: "write", Net: "tcp", Addr: f.RemoteAddr(), Err: syscall.EPIPE}
}

// connecting has each new connection of the client changed by wrap, which gets the connection's number.
func connecting(c *Client, wrap func(nc net.Conn, number int) net.Conn) (count *atomic.Int32) {
	count = new(atomic.Int32)
	connect := c.everybody.connect
	c.everybody.connect = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := connect(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(nc, int(count.Add(1))), nil
	}
	return count
}

// A connection breaks during a request. It moves only if the connection was reused and took nothing.
//
// It breaks after nothing, one byte or all of it. Else the attempt fails, and sent says so.
//
//prove:targets
func TestARequestMovesOnlyIfNothingOfItWasWritten(t *testing.T) {
	tests := []struct {
		name         string
		write, takes int // the write of the first connection that fails, and what it takes
		moves, sent  bool
	}{
		{"reused, nothing is taken", 2, 0, true, true},
		{"reused, one byte is taken", 2, 1, false, true},
		{"reused, all is taken", 2, 1 << 30, false, true},
		{"fresh, nothing is taken", 1, 0, false, false},
		{"fresh, one byte is taken", 1, 1, false, true},
	}
	for _, test := range tests {
		for _, method := range append(wire.Methods, "TRACE") {
			for size, body := range map[string][]byte{"none": nil, "small": []byte("body"), "large": make([]byte, 2*maxAtOnce)} {
				t.Run(fmt.Sprintf("%s, %s, body %s", test.name, method, size), func(t *testing.T) {
					t.Parallel()
					w := new(witness)
					u := listen(t, func(nc net.Conn, _ int) { w.closesUnanswered(nil)(nc, 0) })
					c := newClient(t, Config{})
					count := connecting(c, func(nc net.Conn, number int) net.Conn {
						if number == 1 {
							return &faulty{Conn: nc, n: test.write, takes: test.takes}
						}
						return nc
					})
					if test.write == 2 {
						if res := c.Send(t.Context(), attemptRequest(u, method, "first", nil)); !res.OK() {
							t.Fatalf("first: %+v", res)
						}
					}
					res := c.Send(t.Context(), attemptRequest(u, method, "second", body))
					if res.OK() != test.moves || res.Sent != test.sent || !test.moves && res.Reason != wire.ReasonConnect {
						t.Errorf("got %+v; want moved %t, sent %t", res, test.moves, test.sent)
					}
					if moved := count.Load() == 2; moved != test.moves {
						t.Errorf("%d connections", count.Load())
					}
					if n := w.count("second"); n > 1 || test.moves && n != 1 {
						t.Errorf("the target saw the attempt %d times", n)
					}
				})
			}
		}
	}
}

// A recorder counts and keeps what is written.
type recorder struct {
	net.Conn
	writes []string
}

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, string(p))
	return r.Conn.Write(p)
}

func TestARequestIsOneWrite(t *testing.T) {
	u := listen(t, answering(okAnswer))
	c := newClient(t, Config{})
	var wire *recorder
	connecting(c, func(nc net.Conn, _ int) net.Conn { wire = &recorder{Conn: nc}; return wire })
	for i, body := range [][]byte{nil, []byte("body"), bytes.Repeat([]byte("x"), maxAtOnce-200)} {
		r := post(u)
		r.Body = body
		if res := c.Send(t.Context(), r); !res.OK() {
			t.Fatalf("%+v", res)
		}
		if len(wire.writes) != i+1 {
			t.Fatalf("%d writes for %d requests", len(wire.writes), i+1)
		}
		want := fmt.Sprintf("POST /hook HTTP/1.1\r\nHost: %s\r\nUser-Agent: punctual\r\nContent-Length: %d\r\n\r\n%s",
			u.Host, len(body), body)
		if wire.writes[i] != want {
			t.Errorf("wrote %q, want %q", wire.writes[i], want)
		}
	}
}

// A reset is told from an end, wherever in the answer it comes.
func TestAResetIsReportedAsOne(t *testing.T) {
	for _, part := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok"} {
		u := listen(t, answering("%s", part))
		c := newClient(t, Config{})
		connecting(c, func(nc net.Conn, _ int) net.Conn { return &endingIn{nc, len(part), syscall.ECONNRESET} })
		if res := c.Send(t.Context(), post(u)); res.Reason != wire.ReasonConnect || res.Error != "connection reset by "+u.Host {
			t.Errorf("after %q: %+v", part, res)
		}
	}
}

// An endingIn is a connection that ends in an error after so many bytes.
type endingIn struct {
	net.Conn
	left int
	err  error
}

func (e *endingIn) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, &net.OpError{Op: "read", Net: "tcp", Addr: e.RemoteAddr(), Err: e.err}
	}
	n, err := e.Conn.Read(p[:min(e.left, len(p))])
	e.left -= n
	return n, err
}

// A caller that goes just when the answer has come does not spoil the connection for the next attempt: either it stays
// as it is or it is closed.
func TestACancelThatComesLateReachesNoOtherAttempt(t *testing.T) {
	u := listen(t, answering(okAnswer))
	c := newClient(t, Config{})
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() { cancel(); close(gone) }()
		if res := c.Send(ctx, post(u)); !res.OK() && !res.Cancelled {
			t.Fatalf("%+v", res)
		}
		if res := c.Send(t.Context(), post(u)); !res.OK() {
			t.Fatalf("the next attempt: %+v", res)
		}
		<-gone
	}
}

// The bytes that a target has sent before it is cut off count as an answer only if they are one.
func TestAnswersWithinTheHeaderLimit(t *testing.T) {
	head := func(size int) string {
		rest := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: \r\n\r\n"
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: %s\r\n\r\n", bytes.Repeat([]byte("x"), size-len(rest)))
	}
	c := newClient(t, Config{})
	c.maxHeader = 1000
	for size, want := range map[int]bool{200: true, 1000: true, 1001: false, 5000: false} {
		if res := c.Send(t.Context(), post(listen(t, answering("%sok", head(size))))); res.OK() != want {
			t.Errorf("headers of %d bytes: %+v", size, res)
		}
	}
	long := wire.Request{Method: "POST", URL: listen(t, answering("HTTP/1.1 103 Hint\r\nX: %0900d\r\n\r\n%s", 1, head(200)))}
	if res := c.Send(t.Context(), long); res.Reason != wire.ReasonConnect || res.Status != 0 {
		t.Errorf("interim answers count towards the limit: %+v", res)
	}
}
