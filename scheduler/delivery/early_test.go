package delivery

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
)

// A target answers before it has read the request. It is heard, and the connection is not used again.
//
// It hangs up, says that it will, or does not take the rest of the body.
//
//prove:targets
func TestATargetThatAnswersBeforeItHasReadTheBody(t *testing.T) {
	for _, status := range []int{401, 413, 200} {
		for _, size := range []int{maxAtOnce + 1, 256 << 10, 16 << 20} {
			for _, scheme := range []string{"http", "https"} {
				for _, then := range []string{"hangs up", "will close", "reads no more", "reads the rest"} {
					if (then == "reads no more") != (size == 16<<20) {
						continue // a smaller body is taken by the systems in between, so nobody can tell
					}
					t.Run(fmt.Sprintf("%d after the head of %d bytes, %s, %s", status, size, scheme, then), func(t *testing.T) {
						t.Parallel()
						testEarlyAnswer(t, status, size, scheme, then)
					})
				}
			}
		}
	}
}

func testEarlyAnswer(t *testing.T, status, size int, scheme, then string) {
	over := make(chan struct{})
	defer close(over)
	var seen atomic.Int32
	u, roots := listenAs(t, scheme, func(nc net.Conn, _ int) {
		for br := bufio.NewReader(nc); ; {
			req, err := http.ReadRequest(br) // the head
			if err != nil {
				return
			}
			seen.Add(1)
			more := ""
			if then == "will close" {
				more = "Connection: close\r\n"
			}
			_, _ = fmt.Fprintf(nc, "HTTP/1.1 %d Early\r\n%sContent-Length: 2\r\n\r\nno", status, more)
			switch then {
			case "hangs up":
				return
			case "will close", "reads no more":
				<-over
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
		}
	})
	c := newClient(t, Config{RootCAs: roots})
	count := connecting(c, func(nc net.Conn, _ int) net.Conn { return nc })
	r := post(u)
	r.Body = bytes.Repeat([]byte("x"), size)
	for n := range int32(2) {
		res := c.Send(t.Context(), r)
		if res.Status != status || !res.Sent || seen.Load() != n+1 {
			t.Fatalf("attempt %d: the target saw %d requests; got %+v, want %d", n+1, seen.Load(), res, status)
		}
		if then != "reads the rest" && count.Load() != n+1 {
			t.Errorf("the connection of an unread request was used again")
		}
		if then == "hangs up" { // which may take a moment to arrive
			until(t, "the end of the connection", func() bool {
				c.everybody.mu.Lock()
				defer c.everybody.mu.Unlock()
				for _, idle := range c.everybody.idle {
					return len(idle) == 0 || !idle[0].usable()
				}
				return true
			})
		}
	}
}

// A request that is small goes out whole before the answer is read, and its answer is heard too.
func TestATargetThatAnswersASmallRequestUnread(t *testing.T) {
	for _, size := range []int{0, 100, maxAtOnce - 200} {
		over := make(chan struct{})
		u := listen(t, func(nc net.Conn, _ int) {
			_, _ = io.WriteString(nc, "HTTP/1.1 413 Early\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
			<-over
		})
		r := post(u)
		r.Body = make([]byte, size)
		if res := newClient(t, Config{}).Send(t.Context(), r); res.Status != 413 {
			t.Errorf("%d bytes: %+v", size, res)
		}
		close(over)
	}
}

// Large requests use a connection again like others.
func TestConnectionsOfLargeRequestsAreUsedAgain(t *testing.T) {
	u := listen(t, answering(okAnswer))
	c := newClient(t, Config{})
	count := connecting(c, func(nc net.Conn, _ int) net.Conn { return nc })
	for _, size := range []int{1 << 20, 0, maxAtOnce + 1, maxAtOnce, 1 << 20} {
		r := post(u)
		r.Body = make([]byte, size)
		if res := c.Send(t.Context(), r); !res.OK() {
			t.Errorf("%+v", res)
		}
	}
	if count.Load() != 1 {
		t.Errorf("%d connections", count.Load())
	}
}

// A cutting is a connection that takes so many bytes, and then fails to write, but can still be read.
type cutting struct {
	net.Conn
	takes int
}

func (c *cutting) Write(p []byte) (int, error) {
	n, _ := c.Conn.Write(p[:min(c.takes, len(p))])
	return n, &net.OpError{Op: "write", Net: "tcp", Addr: c.RemoteAddr(), Err: syscall.EPIPE}
}

// What a target said before it hung up is heard, whether the rest of the request could be written or not.
func TestAnAnswerIsHeardThoughTheRequestCouldNotBeWritten(t *testing.T) {
	for _, size := range []int{4, 2 * maxAtOnce} {
		for _, takes := range []int{0, 1, 100} {
			u := listen(t, func(nc net.Conn, _ int) {
				_, _ = io.WriteString(nc, "HTTP/1.1 413 Early\r\nContent-Length: 2\r\n\r\nno")
				_, _ = io.Copy(io.Discard, nc)
			})
			c := newClient(t, Config{})
			count := connecting(c, func(nc net.Conn, _ int) net.Conn { return &cutting{nc, takes} })
			for n := range int32(2) {
				r := post(u)
				r.Body = make([]byte, size)
				if res := c.Send(t.Context(), r); res.Status != 413 || count.Load() != n+1 {
					t.Errorf("%d bytes of which %d are taken: %d connections, %+v", size, takes, count.Load(), res)
				}
			}
		}
	}
}
