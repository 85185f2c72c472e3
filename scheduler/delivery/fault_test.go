package delivery

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"punctual/scheduler/delivery/wire"
)

func TestEachFaultOfAnAnswerHasItsName(t *testing.T) {
	t.Parallel()
	const (
		ok       = "HTTP/1.1 200 OK\r\n"
		settings = "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"
		goAway   = "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"
		closed   = "the target closed the connection before its answer was complete"
	)
	for _, test := range []struct{ name, answer, text string }{
		{"HTTP/0.9", "hello world\n", "begins without a status line, as in HTTP/0.9"},
		{"HTTP/0.9 without the end of a line", "hello world", "begins without a status line, as in HTTP/0.9"},
		{"a radio stream", "ICY 200 OK\r\n\r\n", "begins with ICY"},
		{"an empty line first", "\r\n" + ok + "\r\n", "begins with an empty line"},
		{"settings of HTTP/2", settings, onlyHTTP2},
		{"goodbye of HTTP/2", goAway, onlyHTTP2},
		{"both, and a newline", settings + goAway + "\n", onlyHTTP2},
		{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", onlyHTTP2},
		{"a version in one digit", "HTTP/2 200\r\nX: y\r\n\r\nok", "its version is neither HTTP/1.1 nor HTTP/1.0"},
		{"an alert of TLS", "\x15\x03\x01\x00\x02\x02\x0a", "speaks TLS on this port; write https"},
		{"a status of four digits", "HTTP/1.1 1000 X\r\n\r\n", "its status is not a number of three digits"},
		{"a status in words", "HTTP/1.1 OK\r\n\r\n", "its status is not a number of three digits"},
		{"two lengths", ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", "it has two values of Content-Length"},
		{"a length in words", ok + "Content-Length: two\r\n\r\nok", "its Content-Length is not a number"},
		{"a signed length", ok + "Content-Length: +2\r\n\r\nok", "its Content-Length is not a number"},
		{"a list of lengths", ok + "Content-Length: 2, 2\r\n\r\nok", "its Content-Length is not a number"},
		{"NUL in a header", ok + "Server: a\x00b\r\n\r\n", "a header has a control character"},
		{"a control character", ok + "Server: a\x01b\r\n\r\n", "a header has a control character"},
		{"identity", ok + "Transfer-Encoding: identity\r\n\r\nok", "its Transfer-Encoding is not chunked"},
		{"gzip and chunks", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", "its Transfer-Encoding is not chunked"},
		{"a folded line first", ok + " X: one\r\n\r\n", "its first header line is folded"},
		{"no colon", ok + "Garbage\r\n\r\n", "a header line has no colon"},
		{"no name", ok + ": x\r\n\r\n", "a header has a name that is none"},
		{"headers of 70 KB", ok + "X: " + strings.Repeat("v", 70_000) + "\r\n\r\n", "are larger than 64 KiB"},
		{"after hints", "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + ok + "Garbage\r\n\r\n", "a header line has no colon"},
		{"a fault far behind", ok + headerLines(400) + "Garbage\r\n\r\n", notHTTP},
		{"a cut chunk", ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nok", closed},
		{"no last chunk", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", closed},
		{"chunks of no size", ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "its chunks are malformed"},
		{"nothing", "", closed},
		{"a part of the version", "HTT", closed},
		{"a part of the head", ok + "Content-", closed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u := listen(t, closing(test.answer))
			res := newClient(t, Config{}).Send(t.Context(), post(u))
			if res.Reason != wire.ReasonConnect || !res.Sent || !strings.Contains(res.Error, test.text) {
				t.Errorf("%s: %q, want … %s", res.Reason, res.Error, test.text)
			}
		})
	}
}

func TestATargetThatSpeaksOnlyHTTP2InTLS(t *testing.T) {
	t.Parallel()
	pair, roots := certificate(t, valid)
	u := listen(t, func(nc net.Conn, _ int) {
		// A server of Go lets a client of HTTP/1.1 in that it then does not understand. Others refuse it by this alert.
		server := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"another"}})
		_ = server.Handshake()
		_, _ = io.Copy(io.Discard, nc)
	})
	u.Scheme = "https"
	res := newClient(t, Config{RootCAs: roots}).Send(t.Context(), post(u))
	if res.Reason != wire.ReasonTLS || !strings.HasSuffix(res.Error, onlyHTTP2) {
		t.Errorf("%s: %q, want … %s", res.Reason, res.Error, onlyHTTP2)
	}
}

func TestARedirectNamesWhereItLeads(t *testing.T) {
	t.Parallel()
	none := 0
	for _, test := range []struct {
		status         int
		location, text string
		keep           *int
	}{
		{301, "https://example.com/new", "answered 301 and redirects to https://example.com/new; redirects are not", nil},
		{308, "/elsewhere", "redirects to http://127.0.0.1", nil},
		{302, "https://me:hunter2@example.com/a?token=hunter2#hunter2", "redirects to https://example.com/a?…;", nil},
		{303, "https://example.com/" + strings.Repeat("a", 200), "answered 303; redirects are not followed", nil},
		{307, "::not a URL", "answered 307; redirects are not followed", nil},
		{307, "", "answered 307; redirects are not followed", nil},
		{301, "https://example.com/new", "the target answered 301; redirects are not followed", &none},
		{304, "https://example.com/new", "the target answered 304 (not modified), which is not a success", nil},
	} {
		const answer = "HTTP/1.1 %d X\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
		u := listen(t, answering(answer, test.status, test.location))
		r := post(u)
		r.KeepBytes = test.keep
		res := newClient(t, Config{}).Send(t.Context(), r)
		if res.Reason != wire.ReasonRedirect || !strings.Contains(res.Error, test.text) ||
			strings.Contains(res.Error, "hunter2") {
			t.Errorf("%d %s: %s: %q, want … %s", test.status, test.location, res.Reason, res.Error, test.text)
		}
	}
}
