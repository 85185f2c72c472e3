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
	defaultTimeout          = 30 * time.Second
	defaultMaxResponseBytes = 64 << 10
	defaultKeepBytes        = 1 << 10
	defaultMaxHeaderBytes   = 64 << 10

	// Node, Apache and uvicorn close an idle connection after 5 s. Giving up sooner than the target avoids writing into
	// a connection that is just being closed, which would cost an attempt.
	defaultIdleTimeout = 4 * time.Second

	// A job's timeout may be hours, but a connection that takes longer than this will not come.
	connectTimeout = 30 * time.Second
)

// Config says how a [Client] behaves. The zero value is usable; zero fields mean their default.
type Config struct {
	// MaxResponseBytes is how much of a body is read before the connection is closed. Default 64 KiB.
	MaxResponseBytes int64
	// KeepBytes is how much of a failure's body is kept in [Result.Body]. Default 1 KiB; negative keeps none.
	KeepBytes int
	// MaxHeaderBytes caps the headers of a response. Default 64 KiB.
	MaxHeaderBytes int64
	// MaxConnsPerHost bounds the connections to one host; attempts beyond it wait, within their timeout. Default: no
	// bound, because worker slots already bound it.
	MaxConnsPerHost int
	// IdleTimeout is how long an unused connection is kept. Default 4 s.
	IdleTimeout time.Duration
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
	// Certificates are presented to targets that ask for one. Default: none.
	Certificates []tls.Certificate
}

// A Client sends attempts. It is safe for concurrent use; a replica needs one.
type Client struct {
	config    Config
	guard     *guard.Guard
	everybody *pool                           // connections of tenants without rules of their own
	others    *lru.Cache[*guard.Rules, *pool] // connections of tenants with rules of their own
	userAgent string
	maxBytes  int64
	maxHeader int64
	keepBytes int
}

// New returns a client.
func New(cfg Config) *Client {
	c := &Client{
		config:    cfg,
		guard:     cfg.Guard,
		userAgent: cmp.Or(cfg.UserAgent, "punctual"),
		maxBytes:  cmp.Or(cfg.MaxResponseBytes, defaultMaxResponseBytes),
		maxHeader: cmp.Or(cfg.MaxHeaderBytes, defaultMaxHeaderBytes),
		keepBytes: max(cmp.Or(cfg.KeepBytes, defaultKeepBytes), 0),
	}
	if c.guard == nil {
		c.guard = guard.New(nil)
	}
	c.everybody = c.newPool(c.guard.Everybody())
	c.others = newPools()
	return c
}

// Guard returns the guard that decides which addresses may be called.
func (c *Client) Guard() *guard.Guard { return c.guard }

// WithTLS returns a client like c, with connections of its own, that presents certificates and verifies targets by
// roots, unless roots is nil.
func (c *Client) WithTLS(certificates []tls.Certificate, roots *x509.CertPool) *Client {
	cfg := c.config
	cfg.Guard, cfg.Certificates = c.guard, certificates
	if roots != nil {
		cfg.RootCAs = roots
	}
	return New(cfg)
}

// Close closes the connections that no attempt is using. Call it when no more attempts will be sent.
func (c *Client) Close() {
	c.everybody.closeIdle(0)
	c.others.Purge()
}
