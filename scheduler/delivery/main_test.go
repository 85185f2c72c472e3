package delivery

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient returns a client that may call loopback addresses. It is closed when the test ends.
func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	if cfg.Guard == nil {
		cfg.Guard = guard.New(guard.Loopback)
	}
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen serves every connection with handle, each in a goroutine of its own. handle gets the connection's number,
// which counts from 1. When the test ends, listen closes the connections and waits for the goroutines. Use it for
// targets that do things an http.Server would not do.
func listen(t testing.TB, handle func(nc net.Conn, number int)) *url.URL {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var (
		mu    sync.Mutex
		open  = map[net.Conn]bool{}
		group sync.WaitGroup
	)
	group.Go(func() {
		for number := 1; ; number++ {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[nc] = true
			mu.Unlock()
			group.Go(func() {
				handle(nc, number)
				_ = nc.Close()
				mu.Lock()
				delete(open, nc)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return &url.URL{Scheme: "http", Host: ln.Addr().String(), Path: "/hook"}
}

// readRequest reads one whole request. It returns nil when the connection ends.
func readRequest(br *bufio.Reader) *http.Request {
	req, err := http.ReadRequest(br)
	if err != nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, req.Body)
	return req
}

// requests returns the requests of a connection, each read to its end, with their numbers, which count from 1.
func requests(nc net.Conn) iter.Seq2[int, *http.Request] {
	return func(yield func(int, *http.Request) bool) {
		br := bufio.NewReader(nc)
		for n := 1; ; n++ {
			req := readRequest(br)
			if req == nil || !yield(n, req) {
				return
			}
		}
	}
}

// answering returns a handler that gives every request the same answer and lets the client close the connection.
func answering(format string, args ...any) func(net.Conn, int) {
	return func(nc net.Conn, _ int) {
		for range requests(nc) {
			_, _ = fmt.Fprintf(nc, format, args...)
		}
	}
}

func post(u *url.URL) wire.Request {
	return wire.Request{Method: http.MethodPost, URL: u, Body: []byte(`{"n":1}`), Timeout: 20 * time.Second}
}

// until waits for a condition that another goroutine brings about.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
