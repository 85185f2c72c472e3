package delivery

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"punctual/scheduler/delivery/wire"
)

func TestWhichConnectionsAreUsedAgain(t *testing.T) {
	const body64k = 64 << 10
	tests := []struct {
		name, method, answer string
		status               int
		again                bool
	}{
		{"a length", "POST", okAnswer, 200, true},
		{"no body", "POST", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, true},
		{"chunks", "POST", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, true},
		{
			"chunks and trailers", "POST",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", 200, true,
		},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", 200, true},
		{"HEAD, chunks", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, true},
		{"204", "POST", "HTTP/1.1 204 No Content\r\n\r\n", 204, true},
		{"204 with a length", "POST", "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", 204, true},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", 304, true},
		{"a failure", "POST", "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", 500, true},
		{"hints", "POST", "HTTP/1.1 103 Early Hints\r\n\r\n" + okAnswer, 200, true},
		{"HTTP/1.0, kept", "POST", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, true},
		{
			"as much as is read", "POST",
			"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + strings.Repeat("x", body64k), 200, true,
		},
		{
			"more than is read", "POST",
			"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n" + strings.Repeat("x", body64k+1), 200, false,
		},
		{"HTTP/1.0", "POST", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, false},
		{"close", "POST", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, false},
		{"101", "POST", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 101, false},
		{"more than the answer", "POST", okAnswer + "HTTP/1.1 200 OK\r\n", 200, false},
		{"two answers", "POST", okAnswer + okAnswer, 200, false},
		{"204 with a body", "POST", "HTTP/1.1 204 No Content\r\n\r\nok", 204, false},
		{"HEAD with a body", "HEAD", okAnswer, 200, false},
		{"broken chunks", "POST", "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 500, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := new(witness)
			u := listen(t, func(nc net.Conn, _ int) {
				for _, req := range requests(nc) {
					w.note(req)
					_, _ = io.WriteString(nc, test.answer)
				}
			})
			c := newClient(t, Config{})
			count := connecting(c, func(nc net.Conn, _ int) net.Conn { return nc })
			for _, id := range []string{"first", "second"} {
				res := c.Send(t.Context(), attemptRequest(u, test.method, id, nil))
				if res.Status != test.status || w.count(id) != 1 {
					t.Errorf("%s: seen %d times, %+v", id, w.count(id), res)
				}
			}
			if again := count.Load() == 1; again != test.again {
				t.Errorf("%d connections; want the first one used again: %t", count.Load(), test.again)
			}
		})
	}
}

// idleConn returns the only idle connection of the client.
func idleConn(t *testing.T, c *Client) *conn {
	t.Helper()
	c.everybody.mu.Lock()
	defer c.everybody.mu.Unlock()
	for _, idle := range c.everybody.idle {
		if len(idle) == 1 {
			return idle[0]
		}
	}
	t.Fatal("no connection is idle")
	return nil
}

// An idle connection ends, is reset or brings anything. It is not used again.
//
// Also within TLS.
//
//prove:targets
func TestAConnectionThatEndedOrSpokeWhileIdleIsNotUsed(t *testing.T) {
	for name, act := range map[string]func(net.Conn){
		"closed":         func(nc net.Conn) { _ = nc.Close() },
		"half closed":    closeWrite,
		"cut off":        func(nc net.Conn) { _ = socket(nc).Close() },
		"reset":          reset,
		"answered again": func(nc net.Conn) { _, _ = io.WriteString(nc, okAnswer) },
		"timed out": func(nc net.Conn) {
			_, _ = io.WriteString(nc, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			_ = nc.Close()
		},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+" "+scheme, func(t *testing.T) {
				t.Parallel()
				w, now := new(witness), make(chan struct{})
				u, roots := listenAs(t, scheme, func(nc net.Conn, number int) {
					for n, req := range requests(nc) {
						w.note(req)
						_, _ = io.WriteString(nc, okAnswer)
						if number == 1 && n == 1 {
							<-now
							act(nc)
						}
					}
				})
				c := newClient(t, Config{RootCAs: roots})
				count := connecting(c, func(nc net.Conn, _ int) net.Conn { return nc })
				if res := c.Send(t.Context(), attemptRequest(u, "POST", "first", nil)); !res.OK() {
					t.Fatalf("first: %+v", res)
				}
				idle := idleConn(t, c)
				if !idle.usable() {
					t.Fatal("the connection cannot be used at once")
				}
				close(now)
				until(t, "the connection to be unusable", func() bool { return !idle.usable() })
				res := c.Send(t.Context(), attemptRequest(u, "POST", "second", []byte("body")))
				if !res.OK() || w.count("second") != 1 || count.Load() != 2 {
					t.Errorf("seen %d times, %d connections, %+v", w.count("second"), count.Load(), res)
				}
			})
		}
	}
}

// A batch is a connection that hands over what is written to it since the handshake when it is closed, in one piece.
type batch struct {
	net.Conn
	begun bool
	held  bytes.Buffer
}

func (b *batch) Write(p []byte) (int, error) {
	if b.begun {
		return b.held.Write(p)
	}
	return b.Conn.Write(p)
}

func (b *batch) Close() error {
	_ = b.SetWriteDeadline(time.Time{}) // crypto/tls has set one that is over
	_, _ = b.Conn.Write(b.held.Bytes())
	return nil // the socket stays open
}

// The notice of the end comes with the answer, so crypto/tls holds it already and nothing of it is left on the socket.
func TestATLSConnectionThatHasSaidGoodbyeIsNotUsed(t *testing.T) {
	pair, roots := certificate(t, valid)
	w, end := new(witness), make(chan struct{})
	defer close(end)
	u := listen(t, func(nc net.Conn, number int) {
		b := &batch{Conn: nc}
		sc := tls.Server(b, &tls.Config{Certificates: []tls.Certificate{pair}})
		for _, req := range requests(sc) {
			w.note(req)
			b.begun = number == 1
			_, _ = io.WriteString(sc, okAnswer)
			if number == 1 {
				_ = sc.Close()
				<-end
				return
			}
		}
	})
	u.Scheme = "https"
	c := newClient(t, Config{RootCAs: roots})
	for _, id := range []string{"first", "second", "third"} {
		if res := c.Send(t.Context(), attemptRequest(u, "POST", id, []byte("body"))); !res.OK() || w.count(id) != 1 {
			t.Errorf("%s: seen %d times, %+v", id, w.count(id), res)
		}
	}
}

// Idle connections are closed without anybody asking, and then nothing is remembered of their hosts.
func TestIdleConnectionsAreClosedInTime(t *testing.T) {
	var open atomic.Int32
	handle := func(nc net.Conn, number int) {
		open.Add(1)
		answering(okAnswer)(nc, number)
		open.Add(-1)
	}
	c := newClient(t, Config{})
	c.everybody.idleTimeout = 50 * time.Millisecond
	var group sync.WaitGroup
	for range 5 {
		u := listen(t, handle)
		for range 4 {
			group.Go(func() {
				if res := c.Send(t.Context(), post(u)); !res.OK() {
					t.Errorf("%+v", res)
				}
			})
		}
	}
	group.Wait()
	until(t, "all connections to be closed", func() bool { return open.Load() == 0 })
	until(t, "nothing to be remembered, and the timer to rest", func() bool {
		c.everybody.mu.Lock()
		defer c.everybody.mu.Unlock()
		return len(c.everybody.idle) == 0 && !c.everybody.sweeping
	})
	if res := c.Send(t.Context(), post(listen(t, handle))); !res.OK() {
		t.Errorf("and then: %+v", res)
	}
	until(t, "that connection to be closed too", func() bool { return open.Load() == 0 })
}

// The timer may come late. A connection is not used after its time all the same.
func TestAConnectionThatWasIdleForTooLongIsNotUsed(t *testing.T) {
	u := listen(t, answering(okAnswer))
	c := newClient(t, Config{})
	c.everybody.idleTimeout = time.Hour
	count := connecting(c, func(nc net.Conn, _ int) net.Conn { return nc })
	for _, idle := range []time.Duration{0, 59 * time.Minute, 61 * time.Minute} {
		if res := c.Send(t.Context(), post(u)); !res.OK() {
			t.Fatalf("%+v", res)
		}
		idleConn(t, c).until = time.Now().Add(time.Hour - idle)
	}
	if res := c.Send(t.Context(), post(u)); !res.OK() || count.Load() != 2 {
		t.Errorf("%d connections, %+v", count.Load(), res)
	}
}

func TestATargetSaysHowLongAConnectionIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		announced []string
		want      time.Duration // at most idleTimeout
	}{
		{nil, idleTimeout},
		{[]string{"timeout=5, max=100"}, idleTimeout},
		{[]string{"timeout=2"}, time.Second},
		{[]string{"max=3", `Timeout="1"`}, 500 * time.Millisecond},
		{[]string{"timeout=0"}, 0},
		{[]string{"timeout=-1"}, idleTimeout},
		{[]string{"timeout=soon, max"}, idleTimeout},
		{[]string{"timeout=99999999999999999999"}, idleTimeout},
	} {
		lines := ""
		for _, line := range c.announced {
			lines += "Keep-Alive: " + line + "\r\n"
		}
		client := newClient(t, Config{})
		before := time.Now()
		res := client.Send(t.Context(), post(listen(t, answering("HTTP/1.1 204 No Content\r\n%s\r\n", lines))))
		after := time.Now()
		if !res.OK() {
			t.Fatalf("%q: %+v", c.announced, res)
		}
		until := idleConn(t, client).until
		if until.Before(before.Add(c.want)) || until.After(after.Add(c.want)) {
			t.Errorf("%q: kept for %s, want %s", c.announced, until.Sub(after), c.want)
		}
	}
}

func TestAFreshConnectionCarriesOneRequest(t *testing.T) {
	t.Parallel()
	said := make(chan string, 3)
	u := listen(t, func(nc net.Conn, _ int) {
		for _, req := range requests(nc) {
			said <- fmt.Sprint(req.Close)
			_, _ = io.WriteString(nc, okAnswer)
		}
	})
	c := newClient(t, Config{})
	count := connecting(c, func(nc net.Conn, _ int) net.Conn { return nc })
	for _, fresh := range []bool{false, true, false} {
		r := post(u)
		r.Fresh = fresh
		if res := c.Send(t.Context(), r); !res.OK() {
			t.Errorf("%+v", res)
		}
		if closes := <-said; closes != fmt.Sprint(fresh) {
			t.Errorf("fresh %t: the target is asked to close: %s", fresh, closes)
		}
	}
	if count.Load() != 2 {
		t.Errorf("%d connections; want the first and the last request to share one", count.Load())
	}
}

func TestTheLastConnectionUsedIsTheFirstUsedAgain(t *testing.T) {
	pool, to := newClient(t, Config{}).everybody, address{}
	first, second := &conn{}, &conn{}
	pool.put(to, first, time.Hour)
	pool.put(to, second, time.Hour)
	if a, b, c := pool.take(to), pool.take(to), pool.take(to); a != second || b != first || c != nil {
		t.Errorf("took %p, %p, %p; want %p, %p and none", a, b, c, second, first)
	}
}

func TestAddresses(t *testing.T) {
	for raw, want := range map[string]address{
		"http://example.com/a":      {"http", "example.com", "80", "example.com"},
		"http://example.com:80/b?c": {"http", "example.com", "80", "example.com"},
		"https://example.com":       {"https", "example.com", "443", "example.com"},
		"https://[::1]:8443/":       {"https", "::1", "8443", "::1"},
	} {
		u, err := url.Parse(raw)
		if got := addressOf(u, ""); err != nil || got != want {
			t.Errorf("%s: %v, %v", raw, got, err)
		}
	}
	for host, server := range map[string]string{
		"api.internal": "api.internal", "api.internal:8443": "api.internal", "[::1]:1": "::1",
	} {
		want := address{"https", "10.0.0.1", "443", server}
		if got := addressOf(&url.URL{Scheme: "https", Host: "10.0.0.1"}, host); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
	res := New(Config{}).Send(t.Context(), wire.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "ftp", Host: "127.0.0.1"}})
	if res.Reason == "" || res.Sent {
		t.Errorf("%+v", res)
	}
}
