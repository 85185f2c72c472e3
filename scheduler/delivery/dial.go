package delivery

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// A handshakeError is any failure to establish TLS.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

func (p *pool) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, stop := dialContext(ctx)
	defer stop()
	nc, err := p.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: nc}, nil
}

func (p *pool) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, stop := dialContext(ctx)
	defer stop()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	nc, err := p.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	cfg := p.tls.Clone()
	cfg.ServerName = host
	tc := tls.Client(nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, &handshakeError{err}
	}
	return &conn{Conn: tc}, nil
}

// connect reaches a target, directly or through the proxy.
func (p *pool) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if p.proxy != nil {
		return p.proxy.tunnel(ctx, p.rules, addr)
	}
	return p.dialer.DialContext(ctx, network, addr)
}

// dialContext bounds ctx by the attempt that asked for the connection. net/http detaches the dial from its request,
// so that another request may use the connection. It would otherwise leave the dial hanging after the attempt has
// timed out or was cancelled. The dial may outlive an attempt that found another connection.
func dialContext(ctx context.Context) (_ context.Context, stop func()) {
	deadline := time.Now().Add(connectTimeout)
	x, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return context.WithDeadline(ctx, deadline)
	}
	if x.deadline.Before(deadline) {
		deadline = x.deadline
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	unhook := context.AfterFunc(x.caller, cancel)
	return ctx, func() { unhook(); cancel() }
}
