package delivery

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	defaultTimeout          = 30 * time.Second
	defaultMaxResponseBytes = 64 << 10
	defaultKeepBytes        = 1 << 10
	defaultMaxHeaderBytes   = 64 << 10

	// Node, Apache and uvicorn close an idle connection after 5 s. Giving up sooner than the target does avoids
	// writing into a connection that is just being closed, which would cost an attempt.
	defaultIdleTimeout = 4 * time.Second

	// Idle connections are bounded by the requests recently in flight and by the idle timeout. A lower limit
	// per host (net/http's own is 2) closes and dials connections all through a burst.
	maxIdlePerHost = 1 << 15

	// A job's timeout may be hours; a connection that is not there by now will not come.
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
	// MaxConnsPerHost bounds the connections to one host; attempts beyond it wait, within their timeout.
	// Default: no bound, as worker slots already bound it.
	MaxConnsPerHost int
	// IdleTimeout is how long an unused connection is kept. Default 4 s.
	IdleTimeout time.Duration
	// Control is called with every address before it is connected to, as by [net.Dialer.Control], also after the
	// name was resolved. An error that wraps [ErrBlockedAddress] yields [ReasonBlockedAddress].
	Control func(network, address string, c syscall.RawConn) error
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
	transport *http.Transport
	dialer    net.Dialer
	tls       *tls.Config
	userAgent []string // shared by all requests, never written to
	maxBytes  int64
	keepBytes int
}

// New returns a client.
func New(cfg Config) *Client {
	c := &Client{
		config:    cfg,
		dialer:    net.Dialer{Control: cfg.Control},
		userAgent: []string{cmp.Or(cfg.UserAgent, "punctual")},
		maxBytes:  cmp.Or(cfg.MaxResponseBytes, defaultMaxResponseBytes),
		keepBytes: max(cmp.Or(cfg.KeepBytes, defaultKeepBytes), 0),
		tls: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			RootCAs:            cfg.RootCAs,
			Certificates:       cfg.Certificates,
			ClientSessionCache: tls.NewLRUClientSessionCache(1024),
		},
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	c.transport = &http.Transport{
		Proxy:                  nil, // the environment's is not ours to use
		DialContext:            c.dial,
		DialTLSContext:         c.dialTLS,
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxConnsPerHost:        cfg.MaxConnsPerHost,
		IdleConnTimeout:        cmp.Or(cfg.IdleTimeout, defaultIdleTimeout),
		MaxResponseHeaderBytes: cmp.Or(cfg.MaxHeaderBytes, defaultMaxHeaderBytes),
	}
	return c
}

// WithTLS returns a client like c, with connections of its own, that presents certificates and verifies targets by
// roots, unless that is nil.
func (c *Client) WithTLS(certificates []tls.Certificate, roots *x509.CertPool) *Client {
	cfg := c.config
	cfg.Certificates = certificates
	if roots != nil {
		cfg.RootCAs = roots
	}
	return New(cfg)
}

// Close closes the connections no attempt is using. Call it when no more attempts will be sent.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
