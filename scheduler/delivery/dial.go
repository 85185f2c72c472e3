package delivery

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
)

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
		c, err = p.open(ctx, to)
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

// open connects to a target, and has it prove its name where the URL says https.
func (p *pool) open(ctx context.Context, to address) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	socket, err := p.connect(ctx, "tcp", net.JoinHostPort(to.name, to.port))
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: socket, socket: socket}
	if s, ok := socket.(syscall.Conn); ok {
		c.raw, err = s.SyscallConn()
	}
	if err == nil && to.scheme == "https" {
		cfg := p.tls.Clone()
		cfg.ServerName = to.name
		secure := tls.Client(socket, cfg)
		if err = secure.HandshakeContext(ctx); err != nil {
			err = &handshakeError{err}
		}
		c.Conn = secure
	}
	if err != nil {
		c.abort()
		return nil, err
	}
	return c, nil
}
