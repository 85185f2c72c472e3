package delivery

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"
)

// A hostileTarget describes how a target may mistreat a client, and the result that the client must report.
type hostileTarget struct {
	name    string
	handle  func(nc net.Conn, number int)
	status  int
	reason  Reason
	text    string // part of the error
	timeout time.Duration
}

const (
	short  = 60 * time.Millisecond
	enough = 2 * time.Second // for the beginning of an answer, on a machine that is busy with other things
)

func hostileTargets() []hostileTarget {
	return []hostileTarget{
		{name: "never answers", handle: answering(""), reason: ReasonTimeout, text: "no answer within 2s", timeout: enough},
		{name: "reads too slowly", handle: readingSlowly, reason: ReasonTimeout, timeout: short},
		{
			name:   "drips its headers",
			handle: dripping("HTTP/1.1 200 OK\r\n", "X: y\r\n"),
			reason: ReasonTimeout, timeout: short,
		},
		{
			name:   "drips its body",
			handle: dripping("HTTP/1.1 200 OK\r\n\r\n", "x"),
			status: 200, reason: ReasonTimeout, text: "the answer was not complete within 2s", timeout: enough,
		},
		{
			name:   "drips the body of a failure",
			handle: dripping("HTTP/1.1 410 Gone\r\n\r\n", "x"),
			status: 410, reason: ReasonHTTP4xx, timeout: enough,
		},
		{
			name:   "stalls within its body",
			handle: answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
			status: 200, reason: ReasonTimeout, timeout: enough,
		},
		{
			name:   "stalls within a chunk",
			handle: answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"),
			status: 200, reason: ReasonTimeout, timeout: enough,
		},
		{name: "never ends its body", handle: endless("HTTP/1.1 200 OK\r\n\r\n", nil), status: 200},
		{
			name:   "never ends its headers",
			handle: endless("HTTP/1.1 200 OK\r\nX: ", nil),
			reason: ReasonConnect, text: "too large",
		},
		{
			name:   "answers a gigabyte",
			handle: endless("HTTP/1.1 500 No\r\nContent-Length: 1073741824\r\n\r\n", nil),
			status: 500, reason: ReasonHTTP5xx,
		},
		{
			name:   "answers 100 headers",
			handle: answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n%s\r\n", headerLines(100)),
			status: 200,
		},
		{
			name:   "answers 10,000 headers",
			handle: answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n%s\r\n", headerLines(10_000)),
			reason: ReasonConnect, text: "too large",
		},
		{
			name:   "redirects",
			handle: answering("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
			status: 302, reason: ReasonRedirect, text: "not followed",
		},
		{name: "resets", handle: resetting, reason: ReasonConnect, text: "reset"},
		{name: "closes unanswered", handle: closing(""), reason: ReasonConnect, text: "closed the connection"},
		{
			name:   "closes within its headers",
			handle: closing("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n"),
			reason: ReasonConnect, text: "closed the connection",
		},
		{
			name:   "closes within its body",
			handle: closing("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
			status: 200, reason: ReasonConnect, text: "closed the connection",
		},
		{
			name: "speaks garbage", handle: closing("\x00\xff\x16 hello\r\n\r\n"), reason: ReasonConnect, text: "not valid HTTP",
		},
		{name: "speaks unasked", handle: func(nc net.Conn, _ int) {
			_, _ = io.WriteString(nc, "220 mail.example.com ESMTP\r\n")
			_, _ = io.Copy(io.Discard, nc)
		}, reason: ReasonConnect},
		{
			name:   "answers two lengths",
			handle: closing("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
			reason: ReasonConnect, text: "not valid HTTP",
		},
		{
			name:   "breaks its chunks",
			handle: closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
			status: 200, reason: ReasonConnect,
		},
		{name: "goes on with hints", handle: endless("", []byte("HTTP/1.1 103 Early Hints\r\n\r\n")), reason: ReasonConnect},
		{
			name:   "hints, then answers",
			handle: answering("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n%s", okAnswer),
			status: 200,
		},
		{
			name:   "switches protocols",
			handle: answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
			status: 101, reason: ReasonConnect, text: "101",
		},
		{
			name:   "answers 999",
			handle: answering("HTTP/1.1 999 Huh\r\nContent-Length: 0\r\n\r\n"),
			status: 999, reason: ReasonConnect, text: "999",
		},
		{
			name:   "never answers a handshake",
			handle: func(nc net.Conn, _ int) { _, _ = io.Copy(io.Discard, nc) },
			reason: ReasonTimeout, timeout: short,
		},
	}
}

// request returns the request to send to the target.
func (h *hostileTarget) request(u *url.URL) Request {
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
