package delivery

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"

	"punctual/scheduler/delivery/wire"
)

// An ingress is reached by its address and decides by name, in the handshake and in the header.
func TestATargetIsCalledByAnotherName(t *testing.T) {
	t.Parallel()
	pair, roots := certificate(t, func(c *x509.Certificate) {
		c.IPAddresses, c.DNSNames = nil, []string{"billing.internal"}
	})
	plain := func(nc net.Conn, _ int) {
		for _, req := range requests(nc) {
			_, _ = fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.Host), req.Host)
		}
	}
	secure := listen(t, func(nc net.Conn, number int) {
		server := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{pair}})
		if server.Handshake() == nil && server.ConnectionState().ServerName != "billing.internal" {
			t.Errorf("the handshake is for %q", server.ConnectionState().ServerName)
		}
		plain(server, number)
	})
	secure.Scheme = "https"
	c := newClient(t, Config{RootCAs: roots})
	send := func(host string, over string) wire.Result {
		r := post(secure)
		if over == "http" {
			r.URL = listen(t, plain)
		}
		r.Host, r.KeepBody = host, true
		return c.Send(t.Context(), r)
	}
	for _, over := range []string{"http", "https"} {
		for _, host := range []string{"billing.internal", "billing.internal:8443"} {
			if res := send(host, over); !res.OK() || string(res.Body) != host {
				t.Errorf("%s to %s: %+v %s", over, host, res, res.Body)
			}
		}
	}
	for called, name := range map[string]string{"other.internal": "other.internal", "": "127.0.0.1"} {
		res := send(called, "https")
		if res.Reason != wire.ReasonTLS || !strings.HasSuffix(res.Error, "the certificate is not for host "+name) {
			t.Errorf("by the name %s: %+v", name, res)
		}
	}
	// The name is only a name: the address is judged.
	r := post(secure)
	r.Host = "billing.internal"
	c = newClient(t, Config{RootCAs: roots, Guard: allowing("192.0.2.0/24")})
	if res := c.Send(t.Context(), r); res.Reason != wire.ReasonBlockedAddress {
		t.Errorf("at an address that must not be called: %+v", res)
	}
}
