package delivery

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

// A proxy is the proxy through which targets are reached, by CONNECT, for http as for https. So an exchange is with
// the target itself. A proxy that is handed a request may send it twice, change it, or answer in the target's place.
type proxy struct {
	address string
	header  http.Header
	dialer  net.Dialer // without the guard: the operator of the replica chose the proxy
}

// CheckProxy parses the URL of a proxy, or reports what is wrong with it. The error repeats nothing of it, because it
// may contain a password.
func CheckProxy(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || u.Opaque != "" ||
		(u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New(
			"must be http://host:port or http://user:password@host:port, with the password percent-encoded")
	}
	return u, nil
}

func newProxy(u *url.URL) *proxy {
	p := &proxy{address: u.Host, header: http.Header{}}
	if u.User != nil {
		password, _ := u.User.Password()
		p.header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	return p
}

// A proxyError is a failure of the proxy, and not of the target.
type proxyError struct {
	text string
	err  error // what the system told, if it did
	away bool  // there was no connection to the proxy
}

func (e *proxyError) Error() string { return e.text }
func (e *proxyError) Unwrap() error { return e.err }

// A tunnelError says that the proxy could not connect to the target, or not in time.
type tunnelError struct{ text string }

func (e *tunnelError) Error() string { return e.text }

// tunnel returns a connection to addr through the proxy.
func (p *proxy) tunnel(ctx context.Context, rules *guard.Rules, addr string) (net.Conn, error) {
	if err := checkBehind(ctx, rules, addr); err != nil {
		return nil, err
	}
	nc, err := p.dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, &proxyError{"the egress proxy cannot be reached", err, ctx.Err() == nil}
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(past) })
	err = p.ask(nc, addr)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	return nc, nil
}

// ask has the proxy connect to addr.
func (p *proxy) ask(nc net.Conn, addr string) error {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: p.header}
	if err := request.Write(nc); err != nil {
		return &proxyError{text: "the egress proxy closed the connection", err: err}
	}
	reader := bufio.NewReader(io.LimitReader(nc, maxHeaderBytes))
	// Closing the body would read it to its end.
	response, err := http.ReadResponse(reader, request) //nolint:bodyclose // the connection is closed instead
	if isDeadline(err) {
		return &tunnelError{noTunnel + " within " + wire.Short(connectTimeout)}
	}
	// A target does not speak before it is asked, so nothing may follow the headers.
	if err != nil || response.StatusCode/100 == 2 && reader.Buffered() > 0 {
		return &proxyError{text: "the egress proxy does not answer as a proxy does"}
	}
	switch {
	case response.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%w: the egress proxy refused it", ErrBlockedAddress)
	case response.StatusCode == http.StatusProxyAuthRequired:
		return &proxyError{text: "the egress proxy does not accept the user and password of --egress-proxy"}
	case response.StatusCode/100 != 2:
		return &tunnelError{fmt.Sprintf(
			"the egress proxy could not connect to the target, and answered %d", response.StatusCode)}
	}
	return nil
}

// checkBehind judges a target that a proxy is to connect to, by every address that its name resolves to here. If the
// name does not resolve here, or resolves to something else there, the proxy has to judge it.
func checkBehind(ctx context.Context, rules *guard.Rules, addr string) error {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if Shortage(err) != "" {
		return err // nobody has judged the target
	}
	if err != nil {
		return ctx.Err()
	}
	for _, a := range addresses {
		if err := rules.Check(netip.AddrPortFrom(a, uint16(port))); err != nil {
			return err
		}
	}
	return nil
}

// noTunnel is what is missing of a connection while it is made through the proxy.
const noTunnel = "no connection through the egress proxy"
