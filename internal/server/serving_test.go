package server

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"punctual/scheduler"
)

// patience bounds every wait on a busy machine.
const patience = 30 * time.Second

// hardened is a server like the API's with shorter limits. It counts the requests that its handler gets.
type hardened struct {
	address string
	seen    atomic.Int32
	mu      sync.Mutex
	paths   []string
}

func harden(t *testing.T, most int32, change func(*http.Server)) *hardened {
	t.Helper()
	h := &hardened{}
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.seen.Add(1)
		h.mu.Lock()
		h.paths = append(h.paths, r.Method+" "+r.URL.Path)
		h.mu.Unlock()
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<20)); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	}), slog.New(slog.DiscardHandler))
	change(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	done := make(chan struct{})
	go func() {
		_ = server.Serve(bounded(l, most, slog.New(slog.DiscardHandler), new(scheduler.Shortages)))
		close(done)
	}()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return h
}

func (h *hardened) dial(t *testing.T) net.Conn {
	t.Helper()
	return dial(t, h.address)
}

// dial returns a connection, on which no wait is longer than patience.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return nc
}

func TestNothingOfTheServerIsUnbounded(t *testing.T) {
	s := newServer(nil, slog.New(slog.DiscardHandler))
	for name, limit := range map[string]time.Duration{
		"headers":  s.ReadHeaderTimeout,
		"reading":  s.ReadTimeout,
		"writing":  s.WriteTimeout,
		"idleness": s.IdleTimeout,
	} {
		if limit <= 0 || limit > 2*time.Minute {
			t.Errorf("the limit on %s is %s", name, limit)
		}
	}
	if s.MaxHeaderBytes <= 0 || s.MaxHeaderBytes > 64<<10 {
		t.Errorf("the limit on headers is %d", s.MaxHeaderBytes)
	}
}

// Clients that drip headers, bodies or chunks, or stay idle, are cut off.
//
//prove:api
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	h := harden(t, mostConnections, func(s *http.Server) {
		s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout = 100*time.Millisecond, 300*time.Millisecond, 100*time.Millisecond
	})
	for name, start := range map[string]string{
		"says nothing":                   "",
		"drips its headers":              "GET / HTTP/1.1\r\nHost: x\r\n",
		"drips its body":                 "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
		"drips its chunks":               "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"stays idle after its request":   "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"waits for leave to send a body": "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := h.dial(t)
			_, _ = io.WriteString(nc, start)
			if strings.Contains(name, "drips") {
				go func() {
					tick := time.NewTicker(20 * time.Millisecond)
					defer tick.Stop()
					for err := error(nil); err == nil; <-tick.C {
						_, err = io.WriteString(nc, "1")
					}
				}()
			}
			if _, err := io.Copy(io.Discard, nc); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("the connection was still open after %s", patience)
			}
		})
	}
}

// Connections beyond the limit are closed at once, and open ones continue.
//
//prove:api
func TestConnectionsBeyondTheBoundAreClosedAtOnce(t *testing.T) {
	t.Parallel()
	h := harden(t, 5, func(*http.Server) {})
	request := func(nc net.Conn) error {
		if _, err := io.WriteString(nc, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		response, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	var open []net.Conn
	for i := range 5 {
		nc := h.dial(t)
		if err := request(nc); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		open = append(open, nc)
	}
	for i := range 20 {
		if err := request(h.dial(t)); err == nil {
			t.Errorf("connection %d is one too many", 5+i)
		}
	}
	if err := request(open[0]); err != nil {
		t.Errorf("those that are open are not disturbed: %v", err)
	}
	_ = open[1].Close()
	deadline := time.Now().Add(patience)
	for request(h.dial(t)) != nil {
		if time.Now().After(deadline) {
			t.Fatal("a connection that was closed is still counted")
		}
	}
}

// Garbage, other protocols and contradictory lengths get an error or nothing. Bytes after them are not a request.
//
// Also encodings that contradict each other.
//
//prove:api
func TestGarbageOnThePort(t *testing.T) {
	t.Parallel()
	h := harden(t, mostConnections, func(s *http.Server) {
		s.ReadHeaderTimeout, s.ReadTimeout = 300*time.Millisecond, 600*time.Millisecond
	})
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, raw := range map[string]string{
		"a TLS handshake":        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 600),
		"NULs":                   strings.Repeat("\x00", 10_000),
		"a Postgres startup":     "\x00\x00\x00\x08\x04\xd2\x16\x2f",
		"no version":             "GET /\r\n\r\n",
		"another version":        "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
		"no host":                "GET / HTTP/1.1\r\n\r\n",
		"two hosts":              "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"a host with a blank":    "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		"a blank before a colon": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n" + smuggled,
		"a bare CR in a value":   "GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
		"a NUL in a value":       "GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
		"two lengths": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 40\r\n\r\nabc" +
			smuggled,
		"a list of lengths": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 40\r\n\r\nabc" + smuggled,
		"a signed length":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc" + smuggled,
		"a negative length": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" + smuggled,
		"an encoding that is no encoding": "POST / HTTP/1.1\r\nHost: x\r\n" +
			"Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc" + smuggled,
		"an encoding twice": "POST / HTTP/1.1\r\nHost: x\r\n" +
			"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
		"an encoding in a list": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n" +
			smuggled,
		"chunks that are none": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" +
			smuggled,
		"chunks that end early": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n" +
			smuggled,
		"headers without end": "GET / HTTP/1.1\r\nHost: x\r\n" +
			strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 100),
		"a path without end":                  "GET /" + strings.Repeat("a", 100_000) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"a method of controls":                "\x01\x02 / HTTP/1.1\r\nHost: x\r\n\r\n",
		"a path of controls":                  "GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
		"a length that is more than was sent": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + smuggled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := h.dial(t)
			go func() { _, _ = io.WriteString(nc, raw) }()
			answer, _ := io.ReadAll(nc)
			if text := string(answer); strings.HasPrefix(text, "HTTP/1.1 2") || strings.Contains(text, "goroutine") ||
				strings.Count(text, "HTTP/1.") > 1 {
				t.Errorf("answered %.200q", text)
			}
		})
	}
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, p := range h.paths {
			if strings.Contains(p, "smuggled") {
				t.Errorf("bytes of a body were taken for a request: %v", h.paths)
			}
		}
	})
}

// If a request has both a length and chunks, the chunks count, as RFC 9112 section 6.3 demands. The handler sees one
// request.
func TestALengthBesideChunksIsIgnored(t *testing.T) {
	t.Parallel()
	h := harden(t, mostConnections, func(*http.Server) {})
	nc := h.dial(t)
	body := "5\r\nhello\r\n0\r\n\r\n"
	fmt.Fprintf(nc,
		"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n%s",
		len(body), body)
	answer, err := io.ReadAll(nc)
	if err != nil || strings.Count(string(answer), "HTTP/1.1") != 1 || h.seen.Load() != 1 {
		t.Errorf("%d requests were seen, answered %q, %v", h.seen.Load(), answer, err)
	}
}
