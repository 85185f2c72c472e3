package delivery

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

// allowing returns a guard that allows every tenant a network.
func allowing(network string) *guard.Guard {
	return guard.New([]netip.Prefix{netip.MustParsePrefix(network)})
}

func TestTheZeroConfigCallsPublicAddressesOnly(t *testing.T) {
	u := listen(t, answering(okAnswer))
	c := New(Config{})
	t.Cleanup(c.Close)
	for _, host := range []string{
		u.Host, "localhost:" + u.Port(), "[::1]:" + u.Port(), "[::ffff:127.0.0.1]:" + u.Port(), "0.0.0.0:" + u.Port(),
	} {
		for _, scheme := range []string{"http", "https"} {
			res := c.Send(t.Context(), post(&url.URL{Scheme: scheme, Host: host, Path: "/"}))
			if res.Reason != wire.ReasonBlockedAddress || res.Sent || !strings.Contains(res.Error, "--allow-targets=") {
				t.Errorf("%s://%s: %+v", scheme, host, res)
			}
		}
	}
}

// An open connection leads to an address that another tenant may call. It is not used.
//
// The connection pool of net/http tells hosts apart, but not tenants.
//
//prove:addresses
func TestAConnectionIsNotUsedByATenantThatMayNotCallItsAddress(t *testing.T) {
	var conns atomic.Int32
	u := listen(t, func(nc net.Conn, number int) {
		conns.Store(int32(number))
		answering(okAnswer)(nc, number)
	})
	g := guard.New(nil)
	loopback := guard.Loopback
	g.SetTenants(map[int32][]netip.Prefix{1: loopback, 3: loopback, 4: {netip.MustParsePrefix("10.0.0.0/8")}})
	c := newClient(t, Config{Guard: g})
	send := func(tenant int32) wire.Reason {
		r := post(u)
		r.Tenant = tenant
		return c.Send(t.Context(), r).Reason
	}
	for i, test := range []struct {
		tenant int32
		want   wire.Reason
	}{{1, ""}, {2, wire.ReasonBlockedAddress}, {4, wire.ReasonBlockedAddress}, {3, ""}, {1, ""}, {2, wire.ReasonBlockedAddress}} {
		if got := send(test.tenant); got != test.want {
			t.Errorf("step %d, tenant %d: reason %q, want %q", i, test.tenant, got, test.want)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections; tenants that may call the same share one", n)
	}
	g.SetTenants(map[int32][]netip.Prefix{3: loopback})
	if got := send(1); got != wire.ReasonBlockedAddress {
		t.Errorf("reason %q after the permission was taken back, though a connection is idle", got)
	}
	if got := send(3); got != "" || conns.Load() != 1 {
		t.Errorf("reason %q, %d connections, for a tenant whose list stays", got, conns.Load())
	}
}

func TestPoolsAreBounded(t *testing.T) {
	u := listen(t, answering(okAnswer))
	lists := map[int32][]netip.Prefix{}
	for i := range int32(2 * maxPools) {
		lists[i+1] = append([]netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32),
		}, guard.Loopback...)
	}
	g := guard.New(nil)
	g.SetTenants(lists)
	c := newClient(t, Config{Guard: g})
	for tenant := range lists {
		r := post(u)
		r.Tenant = tenant
		if res := c.Send(t.Context(), r); !res.OK() {
			t.Fatalf("%+v", res)
		}
	}
	if n := c.others.Len(); n != maxPools {
		t.Errorf("%d pools, want %d", n, maxPools)
	}
}

// A name resolves to a public address, later to a forbidden one. That one is not called.
//
//prove:addresses
func TestANameThatRebindsIsJudgedAtEveryConnection(t *testing.T) {
	called := make(chan string, 10)
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	must(t, err)
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called <- r.Context().Value(http.LocalAddrContextKey).(net.Addr).(*net.TCPAddr).IP.String()
	}))
	target.Listener = ln
	target.Start()
	t.Cleanup(target.Close)
	_, port, _ := net.SplitHostPort(ln.Addr().String())

	var answer atomic.Pointer[[]string]
	c := newClient(t, Config{Guard: allowing("127.0.0.1/32")})
	c.everybody.dialer.Resolver = &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go answerDNS(there, *answer.Load())
			return here, nil
		},
	}
	send := func(resolvesTo ...string) wire.Result {
		answer.Store(&resolvesTo)
		return c.Send(t.Context(), post(&url.URL{Scheme: "http", Host: "rebinding.example:" + port, Path: "/"}))
	}
	if res := send("127.0.0.1"); !res.OK() {
		t.Fatalf("%+v", res)
	}
	if res := send("127.0.0.2"); !res.OK() { // over the open connection to the former address
		t.Errorf("%+v", res)
	}
	c.Close()
	for _, to := range []string{"127.0.0.2", "169.254.169.254", "10.0.0.1", "0.0.0.0"} {
		if res := send(to); res.Reason != wire.ReasonBlockedAddress || !strings.Contains(res.Error, to) {
			t.Errorf("%s: %+v", to, res)
		}
	}
	if res := send("127.0.0.2", "127.0.0.1"); !res.OK() { // the allowed one of the two is called
		t.Errorf("%+v", res)
	}
	close(called)
	for at := range called {
		if at != "127.0.0.1" {
			t.Errorf("%s was called", at)
		}
	}
}

// answerDNS answers one DNS question over TCP: type A with the addresses, any other type with none.
func answerDNS(nc net.Conn, addresses []string) {
	defer nc.Close()
	var size [2]byte
	if _, err := io.ReadFull(nc, size[:]); err != nil {
		return
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(nc, question); err != nil {
		return
	}
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5
	if binary.BigEndian.Uint16(question[end-4:]) != 1 { // A
		addresses = nil
	}
	answer := append([]byte{
		question[0], question[1], 0x81, 0x80, 0, 1, 0, byte(len(addresses)), 0, 0, 0, 0,
	}, question[12:end]...)
	for _, a := range addresses {
		ip := netip.MustParseAddr(a).As4()
		answer = append(append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4), ip[:]...)
	}
	_, _ = nc.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
}

// A fakeProxy connects every request to one target, or sends the answer that it was given.
type fakeProxy struct {
	url    *url.URL
	asked  chan *http.Request
	answer string // sent instead of making a connection
}

func newFakeProxy(t *testing.T, target, answer string) *fakeProxy {
	p := &fakeProxy{asked: make(chan *http.Request, 100), answer: answer}
	p.url = listen(t, func(nc net.Conn, _ int) {
		request, err := http.ReadRequest(bufio.NewReader(nc))
		if err != nil {
			return
		}
		p.asked <- request
		if p.answer != "" {
			_, _ = io.WriteString(nc, p.answer)
			_, _ = io.Copy(io.Discard, nc)
			return
		}
		onward, err := net.Dial("tcp", target)
		if err != nil {
			t.Error(err)
			return
		}
		defer onward.Close()
		_, _ = io.WriteString(nc, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(nc, onward); _ = nc.Close() }()
		_, _ = io.Copy(onward, nc)
	})
	p.url.Path, p.url.User = "", url.UserPassword("punctual", "hunter2")
	return p
}

func TestTargetsBehindAProxy(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		target, roots := listenAs(t, scheme, func(nc net.Conn, _ int) {
			for _, req := range requests(nc) {
				_, _ = fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.Host), req.Host)
			}
		})
		p := newFakeProxy(t, target.Host, "")
		c := newClient(t, Config{Proxy: p.url, RootCAs: roots, Guard: allowing("127.0.0.1/32")})
		r := post(&url.URL{Scheme: scheme, Host: "127.0.0.1:7", Path: "/"})
		r.KeepBody = true
		for range 3 {
			if res := c.Send(t.Context(), r); !res.OK() || string(res.Body) != "127.0.0.1:7" {
				t.Fatalf("%s: %+v", scheme, res)
			}
		}
		asked := <-p.asked
		user, password, _ := (&http.Request{
			Header: http.Header{"Authorization": asked.Header["Proxy-Authorization"]},
		}).BasicAuth()
		if asked.Method != "CONNECT" || asked.Host != "127.0.0.1:7" || user != "punctual" || password != "hunter2" ||
			len(asked.Header) != 2 || len(p.asked) != 0 {
			t.Errorf("%s: the proxy was asked %s %s %v, and %d times more", scheme, asked.Method, asked.Host, asked.Header,
				len(p.asked))
		}
		for _, host := range []string{"127.0.0.2:7", "[::1]:7", "[::ffff:127.0.0.2]:7", "169.254.169.254"} {
			res := c.Send(t.Context(), post(&url.URL{Scheme: scheme, Host: host, Path: "/"}))
			if res.Reason != wire.ReasonBlockedAddress {
				t.Errorf("%s: %+v", host, res)
			}
		}
		// The proxy may know a name that this machine does not.
		res := c.Send(t.Context(), post(&url.URL{Scheme: "http", Host: "no-such-host.invalid", Path: "/"}))
		if scheme == "http" && !res.OK() {
			t.Errorf("%+v", res)
		}
		if asked := <-p.asked; asked.Host != "no-such-host.invalid:80" || len(p.asked) != 0 {
			t.Errorf("the proxy was asked for %s, and %d targets more that must not be called", asked.Host, len(p.asked))
		}
	}
}

// An egress proxy refuses, fails, hangs or speaks something else. Timeouts hold.
//
//prove:addresses
func TestProxiesThatRefuseOrFail(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_ = gone.Close()
	for _, test := range []struct {
		name, answer string
		reason       wire.Reason
		text         string
	}{
		{
			"refuses the target",
			"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", wire.ReasonBlockedAddress, "the egress proxy refused it",
		},
		{"wants another password", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", wire.ReasonConnect, "--egress-proxy"},
		{"cannot reach the target", "HTTP/1.1 502 Bad Gateway\r\n\r\n", wire.ReasonConnect, "answered 502"},
		{"redirects", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", wire.ReasonConnect, "answered 302"},
		{"is none", "220 mail.example.com ESMTP\r\n", wire.ReasonConnect, "does not answer as a proxy does"},
		{
			"never ends its headers",
			"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100<<10), wire.ReasonConnect, "does not answer as a proxy does",
		},
		{
			"speaks for the target",
			"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", wire.ReasonConnect,
			"does not answer as a proxy does",
		},
		{"says nothing", " ", wire.ReasonTimeout, "no connection through the egress proxy within " + short.String()},
		{"is down", "", wire.ReasonConnect, "cannot be reached"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newFakeProxy(t, "", test.answer)
			if test.answer == "" {
				p.url.Host = gone.Addr().String()
			}
			r := post(&url.URL{Scheme: "http", Host: "192.0.2.1", Path: "/"})
			if test.reason == wire.ReasonTimeout {
				r.Timeout = short
			}
			res := newClient(t, Config{Proxy: p.url, Guard: allowing("192.0.2.0/24")}).Send(t.Context(), r)
			if res.Reason != test.reason || !strings.Contains(res.Error, test.text) || strings.Contains(res.Error, "hunter2") ||
				res.Sent {
				t.Errorf("got %+v, want %s: … %s …", res, test.reason, test.text)
			}
		})
	}
}

func TestProxyURLs(t *testing.T) {
	for _, raw := range []string{"http://proxy:3128", "http://u:p%40ss@10.0.0.1:80/", "http://[::1]:3128"} {
		if _, err := CheckProxy(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range []string{
		"", "proxy:3128", "http://proxy", "https://u:hunter2@proxy:443", "socks5://proxy:1080",
		"http://u:hunter2@proxy:3128/path", "http://u:hunter2@:3128", "http://u:hunter2@proxy:3128?x",
		"http://u:hunter2%zz@proxy:1",
	} {
		if _, err := CheckProxy(raw); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// BenchmarkDial measures what the guard costs. The cost arises where a connection is made: an attempt on a reused
// connection only looks up its tenant's rules.
func BenchmarkDial(b *testing.B) {
	target := startTargetProcess(b)
	u, err := url.Parse(target)
	must(b, err)
	p := newClient(b, Config{}).everybody
	for name, control := range map[string]func() net.Dialer{
		"guarded":   func() net.Dialer { return p.dialer },
		"unguarded": func() net.Dialer { return net.Dialer{} },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			dialer := control()
			for b.Loop() {
				nc, err := dialer.DialContext(b.Context(), "tcp", u.Host)
				must(b, err)
				_ = nc.(*net.TCPConn).SetLinger(0) // leaves no port in TIME_WAIT
				_ = nc.Close()
			}
		})
	}
}

func TestTimeoutsHoldWhileAProxyIsAsked(t *testing.T) {
	p := newFakeProxy(t, "", " ")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(short, cancel)
	c := newClient(t, Config{Proxy: p.url, Guard: allowing("192.0.2.0/24")})
	res := c.Send(ctx, post(&url.URL{Scheme: "https", Host: "192.0.2.1"}))
	if !res.Cancelled || res.Sent || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("%+v", res)
	}
}
