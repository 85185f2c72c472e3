package delivery

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"punctual/scheduler/delivery/wire"
)

func TestErrorsOfTheSystemNameTheAddress(t *testing.T) {
	t.Parallel()
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	for _, c := range []struct {
		errno syscall.Errno
		at    net.Addr
		want  string
	}{
		{syscall.ECONNREFUSED, at, "connection refused by 127.0.0.1:9"},
		{syscall.ECONNRESET, at, "connection reset by 127.0.0.1:9"},
		{syscall.EHOSTUNREACH, at, "127.0.0.1:9: no route to host"},
		{syscall.ECONNRESET, nil, "connection reset by peer"},
	} {
		reason, text := classify(&net.OpError{
			Op: "dial", Net: "tcp", Addr: c.at, Err: os.NewSyscallError("connect", c.errno),
		}, false)
		if reason != wire.ReasonConnect || text != c.want {
			t.Errorf("%s: %q, want %q", reason, text, c.want)
		}
	}
	if _, text := classify(syscall.ECONNREFUSED, false); text != "connection refused" {
		t.Errorf("of nobody known: %q", text)
	}
}

func TestATimeoutSaysWhatWasMissing(t *testing.T) {
	t.Parallel()
	silent := func(nc net.Conn, _ int) { _, _ = io.Copy(io.Discard, nc) }
	secure := listen(t, silent)
	secure.Scheme = "https"
	begun, over := listen(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")), make(chan struct{})
	t.Cleanup(func() { close(over) })
	for _, test := range []struct {
		name   string
		u      *url.URL
		config Config
		change func(*Client, *wire.Request)
		text   string
	}{
		{name: "the answer", u: listen(t, silent), text: "no answer within 2s"},
		{name: "the rest of the answer", u: begun, text: "the answer was not complete within 2s"},
		{name: "the handshake", u: secure, text: "no handshake within 2s"},
		{
			name: "the name", u: &url.URL{Scheme: "http", Host: "hanging.example"},
			text: "the host's name was not resolved within 2s",
			change: func(c *Client, _ *wire.Request) {
				c.everybody.dialer.Resolver = &net.Resolver{
					PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
						<-over
						return nil, net.ErrClosed
					},
				}
			},
		},
		{
			name: "the connection", u: secure, text: "no connection within 2s",
			config: Config{Control: func(string, string, syscall.RawConn) error { <-over; return nil }},
		},
		{
			name: "the proxy", u: &url.URL{Scheme: "https", Host: "192.0.2.1"},
			config: Config{Proxy: listen(t, silent), Guard: allowing("192.0.2.0/24")},
			text:   "no connection through the egress proxy within 2s",
		},
		{
			name: "most of the time was used up before", u: listen(t, silent), text: "no answer within 1h",
			change: func(_ *Client, r *wire.Request) { r.Timeout, r.Deadline = time.Hour, time.Now().Add(enough) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, r := newClient(t, test.config), post(test.u)
			r.Timeout = enough
			if test.change != nil {
				test.change(c, &r)
			}
			if res := c.Send(t.Context(), r); res.Reason != wire.ReasonTimeout || res.Error != test.text {
				t.Errorf("%s: %s; want %s", res.Reason, res.Error, test.text)
			}
		})
	}
}
