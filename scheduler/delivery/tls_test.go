package delivery

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/delivery/wire"
)

func valid(*x509.Certificate) {}

// certificate returns a self-signed certificate for 127.0.0.1, changed by edit, and a pool that trusts it.
func certificate(t testing.TB, edit func(*x509.Certificate)) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	edit(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// listenAs is listen for a target that speaks http or https. The client has to trust roots.
func listenAs(
	t testing.TB, scheme string, handle func(nc net.Conn, number int),
) (u *url.URL, roots *x509.CertPool) {
	t.Helper()
	if scheme == "http" {
		return listen(t, handle), nil
	}
	pair, roots := certificate(t, valid)
	u = listen(t, func(nc net.Conn, number int) {
		handle(tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{pair}}), number)
	})
	u.Scheme = scheme
	return u, roots
}

// socket returns what carries a connection, with TLS or without.
func socket(nc net.Conn) *net.TCPConn {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	return nc.(*net.TCPConn)
}

// closeWrite says that no more is to come, in TLS if the connection speaks it.
func closeWrite(nc net.Conn) { _ = nc.(interface{ CloseWrite() error }).CloseWrite() }

// reset breaks a connection off.
func reset(nc net.Conn) {
	_ = socket(nc).SetLinger(0)
	_ = socket(nc).Close()
}

func TestTargetsWithoutASecureConnection(t *testing.T) {
	tests := []struct {
		name  string
		edit  func(*x509.Certificate)
		serve func(*tls.Config)
		trust bool
		text  string
	}{
		{name: "untrusted", edit: valid, text: "unknown authority"},
		{
			name: "expired",
			edit: func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, trust: true, text: "expired",
		},
		{
			name: "wrong host",
			edit: func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} }, trust: true,
			text: "not for host 127.0.0.1",
		},
		{
			name: "old version",
			edit: valid, trust: true, serve: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }, text: "protocol version",
		},
		{
			name: "wants a client certificate",
			edit: valid, trust: true, serve: func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert },
			text: "certificate required",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pair, roots := certificate(t, test.edit)
			if !test.trust {
				roots = x509.NewCertPool()
			}
			server := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10}
			if test.serve != nil {
				test.serve(server)
			}
			u := listen(t, func(nc net.Conn, _ int) { _ = tls.Server(nc, server).Handshake() })
			u.Scheme = "https"
			res := newClient(t, Config{RootCAs: roots}).Send(t.Context(), post(u))
			if res.Reason != wire.ReasonTLS || !strings.Contains(res.Error, test.text) {
				t.Errorf("got %+v, want tls: … %s …", res, test.text)
			}
		})
	}
}

func TestTargetsThatBreakTheHandshake(t *testing.T) {
	tests := []struct {
		name   string
		handle func(net.Conn, int)
		want   wire.Reason
		text   string
	}{
		{
			"speaks plain HTTP",
			func(nc net.Conn, _ int) { _, _ = io.WriteString(nc, "HTTP/1.1 400 Bad Request\r\n\r\n") }, wire.ReasonTLS,
			"does not speak TLS",
		},
		{"hangs up", func(nc net.Conn, _ int) { _, _ = io.ReadFull(nc, make([]byte, 5)) }, wire.ReasonTLS, "handshake"},
		{"never answers", func(nc net.Conn, _ int) { _, _ = io.Copy(io.Discard, nc) }, wire.ReasonTimeout, "no handshake within"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			u := listen(t, test.handle)
			u.Scheme = "https"
			r := post(u)
			if test.want == wire.ReasonTimeout {
				r.Timeout = 50 * time.Millisecond
			}
			res := newClient(t, Config{}).Send(t.Context(), r)
			if res.Sent && res.Reason != wire.ReasonTLS {
				t.Errorf("sent without a handshake")
			}
			if res.Reason != test.want || (!strings.Contains(res.Error, test.text) && !strings.Contains(res.Error, "reset")) {
				t.Errorf("got %+v, want %s: … %s …", res, test.want, test.text)
			}
		})
	}
}

func TestHTTPSConnectionsAreReused(t *testing.T) {
	pair, roots := certificate(t, valid)
	w, conns := new(witness), make(chan int, 10)
	u := listen(t, func(nc net.Conn, number int) {
		conns <- number
		sc := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}})
		w.closesUnanswered(nil)(sc, 0)
	})
	u.Scheme = "https"
	c := newClient(t, Config{RootCAs: roots})
	for _, id := range []string{"first", "second", "third"} {
		if res := c.Send(t.Context(), attemptRequest(u, "POST", id, []byte("body"))); !res.OK() {
			t.Fatalf("%+v", res)
		}
	}
	if len(conns) != 1 {
		t.Errorf("%d connections for three attempts in a row", len(conns))
	}
}
