package delivery

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"syscall"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"punctual/scheduler/delivery/guard"
)

const (
	defaultTimeout = 30 * time.Second

	// maxResponseBytes is how much of a body is read before the connection is closed, and maxHeaderBytes how much of the
	// headers of a response. keptOfFailure is how much of a failure's body is kept in [Result.Body].
	maxResponseBytes = 64 << 10
	maxHeaderBytes   = 64 << 10
	keptOfFailure    = 1 << 10

	// gunicorn closes an idle connection after 2 s; Node, Apache and uvicorn after 5 s. Giving up sooner than the target
	// avoids writing into a connection that is just being closed, which would cost an attempt.
	idleTimeout = 1500 * time.Millisecond

	// A job's timeout may be hours, but a connection that takes longer than this will not come.
	connectTimeout = 30 * time.Second
)

// Config says how a [Client] behaves. The zero value is usable; zero fields mean their default.
type Config struct {
	// Guard decides which addresses may be called, by the tenant of a request. Default: a guard that allows public ones.
	Guard *guard.Guard
	// Control, if set, is asked before the guard, with every address that is about to be connected to, as by
	// [net.Dialer.Control]. An error that wraps [ErrBlockedAddress] yields [ReasonBlockedAddress].
	Control func(network, address string, c syscall.RawConn) error
	// Proxy is the proxy through which targets are reached: http://host:port, with a user and password if it asks for
	// them. Default: none. The guard judges targets, and not the proxy.
	Proxy *url.URL
	// UserAgent is sent unless a job sets its own. Default "punctual".
	UserAgent string
	// RootCAs verify targets. Default: the system's.
	RootCAs *x509.CertPool

	certificates []tls.Certificate // are presented to targets that ask for one; see [Client.WithTLS]
}

// ErrBlockedAddress is wrapped by the refusals of [Config.Guard] and [Config.Control].
var ErrBlockedAddress = guard.ErrBlocked

// A Client sends attempts. It is safe for concurrent use; a replica needs one.
type Client struct {
	config    Config
	everybody *pool                           // connections of tenants without rules of their own
	others    *lru.Cache[*guard.Rules, *pool] // connections of tenants with rules of their own
	maxBytes  int64                           // of a body
	maxHeader int64                           // of the headers of a response
}

// New returns a client.
func New(cfg Config) *Client {
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "punctual")
	if cfg.Guard == nil {
		cfg.Guard = guard.New(nil)
	}
	// NewWithEvict fails only for sizes below 1.
	others, _ := lru.NewWithEvict(maxPools, func(_ *guard.Rules, p *pool) { p.closeAll() })
	c := &Client{config: cfg, others: others, maxBytes: maxResponseBytes, maxHeader: maxHeaderBytes}
	c.everybody = c.newPool(cfg.Guard.Everybody())
	return c
}

// Guard returns the guard that decides which addresses may be called.
func (c *Client) Guard() *guard.Guard { return c.config.Guard }

// WithTLS returns a client like c, with connections of its own, that presents certificates and verifies targets by
// roots, unless roots is nil.
func (c *Client) WithTLS(certificates []tls.Certificate, roots *x509.CertPool) *Client {
	cfg := c.config
	cfg.certificates = certificates
	if roots != nil {
		cfg.RootCAs = roots
	}
	return New(cfg)
}

// Close closes the connections that no attempt is using. Call it when no more attempts will be sent.
func (c *Client) Close() {
	c.everybody.closeAll()
	c.others.Purge()
}
