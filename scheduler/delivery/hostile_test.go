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

	"go.uber.org/goleak"

	"punctual/scheduler/delivery/guard"
)

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

// After many requests to each hostile target, the client holds no more resources than before.
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
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	blocked := func(string, string, syscall.RawConn) error {
		return fmt.Errorf("%w: it is private", ErrBlockedAddress)
	}
	tests := []struct {
		name, host string
		control    func(string, string, syscall.RawConn) error
		reason     Reason
		text       string
	}{
		{"refused", ln.Addr().String(), nil, ReasonConnect, "connection refused by " + ln.Addr().String()},
		{"unknown name", "no-such-host.invalid", nil, ReasonConnect, "resolve"},
		{"blocked", ln.Addr().String(), blocked, ReasonBlockedAddress, "the address is not allowed: it is private"},
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
