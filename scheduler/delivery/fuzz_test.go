package delivery

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"punctual/scheduler/delivery/wire"
)

var errDialled = errors.New("dialled")

// dialled returns the address that the client dials for a request.
func dialled(r *wire.Request) (addr string) {
	c := New(Config{})
	defer c.Close()
	c.everybody.connect = func(_ context.Context, _, to string) (net.Conn, error) {
		addr = to
		return nil, errDialled
	}
	c.Send(context.Background(), *r)
	return addr
}

// sent writes a request and reads it back as a server does.
func sent(t *testing.T, r *wire.Request) *http.Request {
	t.Helper()
	wire, err := appendHead(nil, r, "punctual")
	if err != nil {
		t.Fatalf("it cannot be sent: %v", err)
	}
	reader := bufio.NewReader(bytes.NewReader(append(wire, r.Body...)))
	got, err := http.ReadRequest(reader)
	if err != nil {
		t.Fatalf("a server does not read it: %v", err)
	}
	_, _ = io.Copy(io.Discard, got.Body)
	if rest := reader.Buffered(); rest > 0 {
		t.Fatalf("%d bytes come after the request", rest)
	}
	return got
}

// FuzzCheckURL checks every accepted URL: the client dials the address that the URL names, the request names its host
// and path, and the URL means the same when it is parsed again.
func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{
		"http://example.com", "https://Example.COM:8443/a/b?c=d&e=%20f", "http://[::1]:8080/x",
		"http://[::ffff:169.254.169.254]/", "http://[64:ff9b::a9fe:a9fe]/", "http://127.1/", "http://0x7f.1/",
		"http://a_b.example.com./", "http://xn--mnchen-3ya.de/", "http://example.com\\@evil.com/",
		"http://example.com:80:80/", "http://[::1%25lo]/", "http://a.b:/", "http://1.2.3.4.:80/",
		"http://example.com/%2e%2e//?#",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := wire.CheckURL(raw)
		if err != nil {
			if text := err.Error(); text == "" || len(text) > 500 {
				t.Fatalf("%q: %q", raw, text)
			}
			return
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		r := &wire.Request{Method: "POST", URL: u, Body: []byte("body")}
		if addr, want := dialled(r), net.JoinHostPort(u.Hostname(), port); addr != want {
			t.Fatalf("%q: dialled %q, want %q", raw, addr, want)
		}
		rest := raw[len(u.Scheme)+len("://"):]
		if end := strings.IndexAny(rest, "/?"); end >= 0 {
			rest = rest[:end]
		}
		if rest != u.Host {
			t.Fatalf("%q: the host was taken for %q, it is %q", raw, u.Host, rest)
		}
		got := sent(t, r)
		if got.Host != u.Host || got.URL.Path != u.Path && u.Path != "" || got.URL.RawQuery != u.RawQuery ||
			len(got.Header["Host"]) != 0 {
			t.Fatalf("%q: sent as host %q, %q", raw, got.Host, got.URL)
		}
		if again, err := url.Parse(u.String()); err != nil || again.Host != u.Host ||
			again.EscapedPath() != u.EscapedPath() || again.RawQuery != u.RawQuery {
			t.Fatalf("%q became %q", raw, u)
		}
	})
}

// FuzzCheckHeader checks every accepted header: it is sent as exactly one header with its value, and it is none of the
// headers that every attempt carries, even for servers that ignore case or take underscores for dashes.
func FuzzCheckHeader(f *testing.F) {
	for _, seed := range [][2]string{
		{"X-Team", "billing"},
		{"authorization", "Bearer abc="},
		{"X", "a\tb"},
		{"X-Name", "Grüße"},
		{"X", "a\r\nHost: x"},
		{"Host", "x"},
		{"Punctual_Run", "x"},
		{"webhook-id", "x"},
		{"X\r\nY", "x"},
		{"X", "\x85"},
		{"X", " "},
		{"X", ""},
		{"content-length", "1"},
		{"!#$%&'*+-.^_`|~", "x"},
		{"Trailer", "x"},
		{"X", "\xff\xfe"},
		{"user-agent", "x"},
		{"Connection", "X-Team"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if err := wire.CheckHeader(name, value); err != nil {
			if text := err.Error(); text == "" || len(text) > 2000 ||
				len(value) > 8 && !strings.Contains(name, value) && strings.Contains(text, value) {
				t.Fatalf("%q: %q: %q", name, value, text)
			}
			return
		}
		// Build and send the header as for a job.
		r := &wire.Request{
			Method: "GET", URL: &url.URL{Scheme: "http", Host: "example.com", Path: "/"},
			Header: http.Header{http.CanonicalHeaderKey(name): {value}}, Extra: []wire.Header{{Name: "Punctual-Run", Value: "1"}},
		}
		got := sent(t, r)
		key, want := http.CanonicalHeaderKey(name), 3
		if key == "User-Agent" {
			want = 2
		}
		if len(got.Header) != want || got.Host != "example.com" || len(got.Header[key]) != 1 ||
			got.Header.Get(key) != value || got.Header.Get("Punctual-Run") != "1" {
			if value != "" || key != "User-Agent" { // an empty User-Agent is left out
				t.Fatalf("%q: %q was sent as %v", name, value, got.Header)
			}
		}
		same := strings.ReplaceAll(strings.ToUpper(name), "-", "_")
		for _, ours := range []string{
			"PUNCTUAL_", "WEBHOOK_", "IDEMPOTENCY_KEY", "TRACEPARENT", "CONTENT_LENGTH", "TRANSFER_ENCODING", "HOST",
		} {
			if same == ours || strings.HasSuffix(ours, "_") && strings.HasPrefix(same, ours) {
				t.Fatalf("%q passes for %s", name, ours)
			}
		}
	})
}
