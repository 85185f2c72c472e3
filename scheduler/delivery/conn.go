package delivery

import (
	"errors"
	"io"
	"net"
	"sync/atomic"

	"punctual/scheduler/failpoint"
)

// A conn makes sure that a request that may have reached its target is never sent a second time.
//
//	   ┌──────────────── begin ────────────────┐
//	   ▼        Write           Read data      │       Read error         begin
//	waiting ───────────► asked ───────────► answered ────────────► over ────────► ended
//	   │                   │ Read error                                             ▲
//	   │                   ▼                                                        │
//	   │                 broken                                                     │
//	   └───────────────────────────── Read error ───────────────────────────────────┘
//
// In ended nothing of the request has been written, and Write refuses to write, so trying another connection is right.
//
// In broken something may have been written. net/http would take an error there for a connection that was closed while
// idle, and would send the request again on another one. So the error is handed over as an answer that is not HTTP.
//
// net/http reads and writes in two goroutines; every transition is one compare-and-swap.
type conn struct {
	net.Conn // for https the *tls.Conn, so that handshake bytes do not count as the request's
	state    atomic.Uint32
	err      error // why reading ended; written by the reader before the state says so
}

const (
	waiting  uint32 = iota // handed out, or fresh: nothing of the request is written
	asked                  // some of the request may be written; no answer yet
	answered               // the answer has begun; it may be complete
	over                   // reading ended after an answer had begun
	ended                  // reading ended with nothing of the request written
	broken                 // reading ended with the request unanswered
)

var (
	errEnded   = errors.New("the target closed the connection before the request was written")
	errUnasked = errors.New("the target sent data before the request was written")
)

// begin is called when the connection is handed to an attempt.
func (c *conn) begin() {
	if !c.state.CompareAndSwap(answered, waiting) {
		c.state.CompareAndSwap(over, ended)
	}
}

// sent reports whether any of the current request may have been written.
func (c *conn) sent() bool {
	s := c.state.Load()
	return s != waiting && s != ended
}

// failure is why the connection ended without an answer. It is nil if it did not, or was just closed while unused.
func (c *conn) failure() error {
	if s := c.state.Load(); s == broken || s == ended && !errors.Is(c.err, io.EOF) {
		return c.err
	}
	return nil
}

func (c *conn) Write(p []byte) (int, error) {
	if !c.state.CompareAndSwap(waiting, asked) {
		if s := c.state.Load(); s == ended || s == over {
			return 0, errEnded
		}
	}
	failpoint.At(failpoint.SendWriting)
	n, err := c.Conn.Write(p)
	failpoint.At(failpoint.SendWritten)
	return n, err
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && err == nil {
		return 0, nil
	}
	for {
		s := c.state.Load()
		if n > 0 && s != waiting {
			c.state.CompareAndSwap(asked, answered)
			return n, err
		}
		if n > 0 { // it cannot be an answer
			n, err = 0, errUnasked
		}
		next := afterReadError[s]
		if next == s {
			return 0, err
		}
		c.err = err
		switch {
		case !c.state.CompareAndSwap(s, next):
			continue
		case next == broken:
			p[0] = 0
			return 1, nil
		}
		return 0, err
	}
}

var afterReadError = [...]uint32{
	waiting: ended, asked: broken, answered: over, over: over, ended: ended, broken: broken,
}
