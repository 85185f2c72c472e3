package delivery

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync"
	"syscall"
	"time"

	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

// A pool holds the connections of tenants that may call the same addresses. A connection serves any attempt at the same
// host. So one pool for all would let a tenant use a connection to an address that only another may call.
type pool struct {
	dialer      net.Dialer
	connect     func(ctx context.Context, network, addr string) (net.Conn, error) // directly or through the proxy
	tunnels     bool                                                              // through the proxy
	tls         *tls.Config
	idleTimeout time.Duration

	mu       sync.Mutex
	idle     map[address][]*conn // the one that was used last is the last
	sweeper  *time.Timer
	sweeping bool // the timer runs
}

// maxPools bounds the pools of tenants with rules of their own. A pool that is pushed out loses its idle connections
// and is built anew when it is needed.
const maxPools = 256

// pool returns the connections that a tenant may use.
func (c *Client) pool(tenant int32) *pool {
	rules := c.config.Guard.For(tenant)
	if rules == c.config.Guard.Everybody() {
		return c.everybody
	}
	if p, ok := c.others.Get(rules); ok {
		return p
	}
	p := c.newPool(rules)
	if first, ok, _ := c.others.PeekOrAdd(rules, p); ok { // another attempt was faster
		return first
	}
	return p
}

// control is asked before each connection, about every address that a name has resolved to.
func (c *Client) control(rules *guard.Rules) func(network, address string, conn syscall.RawConn) error {
	first := c.config.Control
	if first == nil {
		return rules.Control
	}
	return func(network, address string, conn syscall.RawConn) error {
		if err := first(network, address, conn); err != nil {
			return err
		}
		return rules.Control(network, address, conn)
	}
}

func (c *Client) newPool(rules *guard.Rules) *pool {
	p := &pool{
		dialer: net.Dialer{Control: c.control(rules)},
		tls: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			RootCAs:            c.config.RootCAs,
			Certificates:       c.config.certificates,
			ClientSessionCache: tls.NewLRUClientSessionCache(1024),
		},
		idleTimeout: idleTimeout,
		idle:        map[address][]*conn{},
	}
	p.connect = p.dialer.DialContext
	if p.tunnels = c.config.Proxy != nil; p.tunnels {
		through := newProxy(c.config.Proxy)
		p.connect = func(ctx context.Context, _, addr string) (net.Conn, error) { return through.tunnel(ctx, rules, addr) }
	}
	p.sweeper = time.AfterFunc(time.Hour, p.sweep)
	p.sweeper.Stop()
	return p
}

// A handshakeError is any failure to establish TLS.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// dial makes a connection for an attempt. It returns when the attempt ends, even if a resolver or a [Config.Control]
// does not.
func (p *pool) dial(x *attempt, to address) (*conn, error) {
	ctx, cancel := context.WithDeadline(x.caller, x.deadline)
	defer cancel()
	var c *conn
	made := make(chan error)
	go func() {
		var err error
		c, err = p.open(ctx, x, to)
		select {
		case made <- err:
		case <-ctx.Done():
			if c != nil {
				c.abort()
			}
		}
	}()
	select {
	case err := <-made:
		return c, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// following returns a context that has an attempt know what its new connection lacks.
func (p *pool) following(ctx context.Context, x *attempt) context.Context {
	if p.tunnels {
		x.missing.Store(noTunnel)
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart:     func(httptrace.DNSStartInfo) { x.missing.Store(wire.MissingName) },
		ConnectStart: func(string, string) { x.missing.Store(wire.MissingConnection) },
	})
}

// open connects to a target, and has it prove its name where the URL says https.
func (p *pool) open(ctx context.Context, x *attempt, to address) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	socket, err := p.connect(p.following(ctx, x), "tcp", net.JoinHostPort(to.name, to.port))
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: socket, socket: socket, made: time.Now()}
	if s, ok := socket.(syscall.Conn); ok {
		c.raw, err = s.SyscallConn()
	}
	if err == nil && to.scheme == "https" {
		x.missing.Store(wire.MissingHandshake)
		cfg := p.tls.Clone()
		cfg.ServerName = to.server
		secure := tls.Client(socket, cfg)
		if err = secure.HandshakeContext(ctx); err != nil {
			err = &handshakeError{err}
		}
		c.Conn, c.secured = secure, time.Now()
	}
	if err != nil {
		c.abort()
		return nil, err
	}
	return c, nil
}
