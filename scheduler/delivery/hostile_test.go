package delivery

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

// Targets hang, drip, never end, reset or speak garbage. Timeouts and caps hold.
//
//prove:targets
func TestHostileTargets(t *testing.T) {
	for _, h := range hostileTargets() {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			res := newClient(t, Config{}).Send(t.Context(), h.request(listen(t, h.handle)))
			if res.Status != h.status || res.Reason != h.reason || !strings.Contains(res.Error, h.text) {
				t.Errorf("got %+v; want status %d, reason %q, error … %s …", res, h.status, h.reason, h.text)
			}
			if len(res.Body) > keptOfFailure || (res.OK() && res.Body != nil) {
				t.Errorf("kept %d bytes", len(res.Body))
			}
		})
	}
}

// They leave no goroutine or descriptor behind.
//
//prove:targets
func TestHostileTargetsLeaveNothingBehind(t *testing.T) {
	c := New(Config{Guard: guard.New(guard.Loopback)})
	targets := hostileTargets()
	urls := make([]*url.URL, len(targets))
	for i, h := range targets {
		urls[i], targets[i].timeout = listen(t, h.handle), min(h.timeout, short) // what they answer does not matter here
	}
	round := func() {
		done := make(chan struct{})
		for i, h := range targets {
			for range 4 {
				go func() {
					c.Send(t.Context(), h.request(urls[i]))
					done <- struct{}{}
				}()
			}
		}
		for range 4 * len(targets) {
			<-done
		}
		c.Close()
	}
	round()
	ignore := goleak.IgnoreCurrent()
	heap, files := heapInUse(), openFiles(t)
	for range 5 {
		round()
	}
	until(t, "descriptors to be closed", func() bool { return openFiles(t) <= files+2 })
	until(t, "memory to be freed", func() bool { return heapInUse() <= heap+4<<20 })
	if err := goleak.Find(ignore); err != nil {
		t.Error(err)
	}
}

// A target answers 1 GB. It is read up to the cap.
//
//prove:targets
func TestABodyIsReadUpToTheCap(t *testing.T) {
	var written atomic.Int64
	closed := make(chan struct{})
	u := listen(t, func(nc net.Conn, _ int) {
		defer close(closed)
		readRequest(bufio.NewReader(nc))
		_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
		for block := make([]byte, 64<<10); ; {
			n, err := nc.Write(block)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	r := post(u)
	r.KeepBody = true
	res := newClient(t, Config{}).Send(t.Context(), r)
	<-closed
	if !res.OK() || len(res.Body) != maxResponseBytes || !res.Truncated {
		t.Errorf("got %d bytes, truncated %t, %s", len(res.Body), res.Truncated, res.Error)
	}
	if n := written.Load(); n > 32<<20 { // the two sockets may buffer this much
		t.Errorf("the target could write %d bytes", n)
	}
}

func TestTargetsThatCannotBeReached(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_ = ln.Close()
	blocked := func(string, string, syscall.RawConn) error {
		return fmt.Errorf("%w: it is private", ErrBlockedAddress)
	}
	tests := []struct {
		name, host string
		control    func(string, string, syscall.RawConn) error
		reason     wire.Reason
		text       string
	}{
		{"refused", ln.Addr().String(), nil, wire.ReasonConnect, "connection refused by " + ln.Addr().String()},
		{"unknown name", "no-such-host.invalid", nil, wire.ReasonConnect, "resolve"},
		{"blocked", ln.Addr().String(), blocked, wire.ReasonBlockedAddress, "the address is not allowed: it is private"},
	}
	for _, test := range tests {
		for _, scheme := range []string{"http", "https"} {
			t.Run(test.name+" "+scheme, func(t *testing.T) {
				u := &url.URL{Scheme: scheme, Host: test.host, Path: "/secret", RawQuery: "token=secret"}
				res := newClient(t, Config{Control: test.control}).Send(t.Context(), post(u))
				if res.Reason != test.reason || !strings.Contains(res.Error, test.text) || strings.Contains(res.Error, "secret") ||
					res.Sent {
					t.Errorf("got %+v; want %s: … %s …", res, test.reason, test.text)
				}
			})
		}
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	return len(entries)
}

// A hostileTarget describes how a target may mistreat a client, and the result that the client must report.
type hostileTarget struct {
	name    string
	handle  func(nc net.Conn, number int)
	status  int
	reason  wire.Reason
	text    string // part of the error
	timeout time.Duration
}

const (
	short  = 60 * time.Millisecond
	enough = 2 * time.Second // for the beginning of an answer, on a machine that is busy with other things
)

func hostileTargets() []hostileTarget {
	return []hostileTarget{
		{name: "never answers", handle: answering(""), reason: wire.ReasonTimeout, text: "no answer within 2s", timeout: enough},
		{name: "reads too slowly", handle: readingSlowly, reason: wire.ReasonTimeout, timeout: short},
		{
			name:   "drips its headers",
			handle: dripping("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
			reason: wire.ReasonTimeout, timeout: short,
		},
		{
			name:   "drips its body",
			handle: dripping("HTTP/1.1 200 OK\r\n\r\n", "x"),
			status: 200, reason: wire.ReasonTimeout, text: "the answer was not complete within 2s", timeout: enough,
		},
		{
			name:   "drips the body of a failure",
			handle: dripping("HTTP/1.1 410 Gone\r\n\r\n", "x"),
			status: 410, reason: wire.ReasonHTTP4xx, timeout: enough,
		},
		{
			name:   "stalls within its body",
			handle: answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
			status: 200, reason: wire.ReasonTimeout, timeout: enough,
		},
		{
			name:   "stalls within a chunk",
			handle: answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
			status: 200, reason: wire.ReasonTimeout, timeout: enough,
		},
		{name: "never ends its body", handle: endless("HTTP/1.1 200 OK\r\n\r\n", nil), status: 200},
		{
			name:   "never ends its headers",
			handle: endless("HTTP/1.1 200 OK\r\nX: ", nil),
			reason: wire.ReasonConnect, text: "larger than 64 KiB",
		},
		{
			name:   "answers a gigabyte",
			handle: endless("HTTP/1.1 500 No\r\nContent-Length: 1073741824\r\n\r\n", nil),
			status: 500, reason: wire.ReasonHTTP5xx,
		},
		{
			name:   "answers 100 headers",
			handle: answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n%s\r\n", headerLines(100)),
			status: 200,
		},
		{
			name:   "answers 10,000 headers",
			handle: answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n%s\r\n", headerLines(10_000)),
			reason: wire.ReasonConnect, text: "larger than 64 KiB",
		},
		{
			name:   "redirects",
			handle: answering("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
			status: 302, reason: wire.ReasonRedirect, text: "redirects to http://127.0.0.1:1/; redirects are not followed",
		},
		{name: "resets", handle: resetting, reason: wire.ReasonConnect, text: "reset"},
		{name: "closes unanswered", handle: closing(""), reason: wire.ReasonConnect, text: "closed the connection"},
		{
			name:   "closes within its headers",
			handle: closing("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n"),
			reason: wire.ReasonConnect, text: "closed the connection",
		},
		{
			name:   "closes within its body",
			handle: closing("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
			status: 200, reason: wire.ReasonConnect, text: "closed the connection",
		},
		{
			name: "speaks garbage", handle: closing("\x00\xff\x16 hello\r\n\r\n"), reason: wire.ReasonConnect, text: "not valid HTTP",
		},
		{name: "speaks unasked", handle: func(nc net.Conn, _ int) {
			_, _ = io.WriteString(nc, "220 mail.example.com ESMTP\r\n")
			_, _ = io.Copy(io.Discard, nc)
		}, reason: wire.ReasonConnect},
		{
			name:   "answers two lengths",
			handle: closing("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
			reason: wire.ReasonConnect, text: "not valid HTTP: it has two values of Content-Length",
		},
		{
			name:   "breaks its chunks",
			handle: closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
			status: 200, reason: wire.ReasonConnect, text: "its chunks are malformed",
		},
		{name: "goes on with hints", handle: endless("", []byte("HTTP/1.1 103 Early Hints\r\n\r\n")), reason: wire.ReasonConnect},
		{
			name:   "hints, then answers",
			handle: answering("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n%s", okAnswer),
			status: 200,
		},
		{
			name:   "switches protocols",
			handle: answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
			status: 101, reason: wire.ReasonConnect, text: "101",
		},
		{
			name:   "answers 999",
			handle: answering("HTTP/1.1 999 Huh\r\nContent-Length: 0\r\n\r\n"),
			status: 999, reason: wire.ReasonConnect, text: "999",
		},
		{
			name:   "never answers a handshake",
			handle: func(nc net.Conn, _ int) { _, _ = io.Copy(io.Discard, nc) },
			reason: wire.ReasonTimeout, timeout: short,
		},
	}
}

// request returns the request to send to the target.
func (h *hostileTarget) request(u *url.URL) wire.Request {
	r := post(u)
	if h.timeout > 0 {
		r.Timeout = h.timeout
	}
	switch h.name {
	case "reads too slowly":
		r.Body = make([]byte, 16<<20)
	case "never answers a handshake":
		u := *u
		u.Scheme, r.URL = "https", &u
	}
	return r
}

func closing(answer string) func(net.Conn, int) {
	return func(nc net.Conn, _ int) {
		readRequest(bufio.NewReader(nc))
		_, _ = io.WriteString(nc, answer)
	}
}

func resetting(nc net.Conn, _ int) {
	readRequest(bufio.NewReader(nc))
	_ = nc.(*net.TCPConn).SetLinger(0)
}

// dripping writes start, and then writes piece again and again with a pause before each.
func dripping(start, piece string) func(net.Conn, int) {
	return func(nc net.Conn, _ int) {
		readRequest(bufio.NewReader(nc))
		_, err := io.WriteString(nc, start)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ; err == nil; <-tick.C {
			_, err = io.WriteString(nc, piece)
		}
	}
}

// endless writes start, and then writes block again and again, as fast and as long as the client lets it.
func endless(start string, block []byte) func(net.Conn, int) {
	if block == nil {
		block = []byte(strings.Repeat("x", 32<<10))
	}
	return func(nc net.Conn, _ int) {
		readRequest(bufio.NewReader(nc))
		_, err := io.WriteString(nc, start)
		for err == nil {
			_, err = nc.Write(block)
		}
	}
}

// readingSlowly reads the large body so slowly that the attempt times out long before the end.
func readingSlowly(nc net.Conn, _ int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for buf, err := make([]byte, 64<<10), error(nil); err == nil; <-tick.C {
		_, err = nc.Read(buf)
	}
}

func headerLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-Header-%d: %d\r\n", i, i)
	}
	return b.String()
}
