package delivery

import (
	"bufio"
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// A conn is a connection to a target. It carries one exchange at a time, in the goroutine of its attempt:
//
//	begin ──► start, which writes ──► answer ──► its body is read ──► end ──► idle, or closed
//
// An exchange has one call of write, and nothing writes again what it has written. A request moves to another
// connection only if this call was not able to hand over a single byte (see [Client.Send]).
type conn struct {
	net.Conn                 // for https the *tls.Conn
	socket   net.Conn        // what leads to the target
	raw      syscall.RawConn // of the socket, to look at it
	until    time.Time       // when it is too old for another exchange; zero before the first one
	made     time.Time       // when it was connected
	secured  time.Time       // when its TLS handshake was over

	// Of the exchange that goes on:
	unhook  func() bool   // keeps the end of the caller's context from ending the exchange
	reader  *bufio.Reader // reads through conn.Read
	looking bool          // the head of the answer is being read
	seen    *[]byte       // the beginning of what was read meanwhile; nil: nothing
	left    int64         // how many bytes may still be read
	heard   bool          // some of the answer has come
	writing chan struct{} // closed when the request is written, if another goroutine writes it
	wrote   int64         // how much of the request was taken
	failure error         // why the request was not written, or not all of it
}

// past is an expired deadline: with it every read and write fails at once.
var past = time.Unix(1, 0)

var (
	readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}
	heads   = sync.Pool{New: func() any { return new(make([]byte, 0, maxSeen)) }}
)

// begin prepares an exchange. Reads and writes fail from the deadline on, or as soon as the caller's context ends.
func (c *conn) begin(caller context.Context, deadline time.Time) {
	_ = c.SetDeadline(deadline)
	c.unhook = afterFunc(caller, func() { _ = c.SetDeadline(past) })
	c.reader = readers.Get().(*bufio.Reader)
	c.reader.Reset(c)
	c.heard, c.writing, c.wrote, c.failure = false, nil, 0, nil
}

// afterFunc is context.AfterFunc, which makes a context of its own even if the caller's context can call f by itself.
func afterFunc(caller context.Context, f func()) (stop func() bool) {
	if c, can := caller.(interface{ AfterFunc(func()) func() bool }); can {
		return c.AfterFunc(f)
	}
	return context.AfterFunc(caller, f)
}

// answer reads the head of the answer, with at most limit bytes. It passes over interim answers.
func (c *conn) answer(method string, limit int64) (*http.Response, error) {
	var request *http.Request // which stands for GET
	if method == http.MethodHead {
		request = &http.Request{Method: method}
	}
	c.looking = true
	defer c.looked()
	c.left = limit // for interim answers too: they may be endless
	for {
		response, err := http.ReadResponse(c.reader, request)
		if err != nil {
			return nil, c.faulty(err)
		}
		if s := response.StatusCode; s < 100 || s > 199 || s == http.StatusSwitchingProtocols {
			c.left = math.MaxInt64
			return response, nil
		}
	}
}

var errTooLong = errors.New("the headers of the answer are too large")

func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLong
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.heard = c.heard || n > 0
	if c.looking && n > 0 {
		c.look(p[:n])
	}
	return n, err
}

// look keeps the beginning of an answer. Attempts that wait for one need no room for it.
func (c *conn) look(came []byte) {
	if c.seen == nil {
		c.seen = heads.Get().(*[]byte)
	}
	room := cap(*c.seen) - len(*c.seen)
	*c.seen = append(*c.seen, came[:min(room, len(came))]...)
}

// looked forgets what look has kept.
func (c *conn) looked() {
	if c.looking = false; c.seen != nil {
		*c.seen = (*c.seen)[:0]
		heads.Put(c.seen)
		c.seen = nil
	}
}

// afterAnswer is how long a request that another goroutine writes may take after its answer has come. The goroutine may
// have written all, and only not have been scheduled since.
const afterAnswer = 50 * time.Millisecond

// end ends the exchange, whatever it is doing. The connection is kept for another one if keep says that the answer was
// read to its end, if the target has taken all of the request, and if it sent nothing after its answer. Otherwise it is
// closed.
func (c *conn) end(keep bool) (kept bool) {
	if !keep {
		c.abort()
	}
	if c.writing != nil {
		_ = c.SetWriteDeadline(time.Now().Add(afterAnswer))
		<-c.writing
	}
	keep = keep && c.failure == nil && c.reader.Buffered() == 0
	c.reader.Reset(nil)
	readers.Put(c.reader)
	c.reader = nil
	if !c.unhook() || !keep { // where it was too late to unhook, a deadline in the past may yet be set
		c.abort()
		return false
	}
	return true
}

// abort closes a connection that is in use. It does not say goodbye in TLS, which might have to wait for the target.
func (c *conn) abort() { _ = c.socket.Close() }

// reused reports whether the connection has carried an exchange before.
func (c *conn) reused() bool { return !c.until.IsZero() }

// usable reports whether an idle connection may carry an exchange: neither has it ended nor has the target spoken since
// its last answer. Nothing waits for that while it is idle.
func (c *conn) usable() bool {
	if c.Conn != c.socket || c.raw == nil {
		// crypto/tls may hold the notice of the end already. With a deadline in the past it reads nothing else.
		_ = c.SetReadDeadline(past)
		if n, err := c.Conn.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return c.raw == nil || silent(c.raw)
}
