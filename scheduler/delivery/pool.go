package delivery

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
	"syscall"

	lru "github.com/hashicorp/golang-lru/v2"

	"punctual/scheduler/delivery/guard"
)

// A pool holds the connections of tenants that may call the same addresses. net/http hands a connection to any request
// for the same host. So one pool for all would let a tenant use a connection to an address that only another may call.
type pool struct {
	transport *http.Transport
	rules     *guard.Rules
	dialer    net.Dialer
	proxy     *proxy // nil: targets are dialled directly
	tls       *tls.Config
}

// maxPools bounds the pools of tenants with rules of their own. A pool that is pushed out loses its idle connections
// and is built anew when it is needed.
const maxPools = 256

func newPools() *lru.Cache[*guard.Rules, *pool] {
	pools, err := lru.NewWithEvict(maxPools, func(_ *guard.Rules, p *pool) { p.transport.CloseIdleConnections() })
	if err != nil { // for a size that is not positive
		panic(err)
	}
	return pools
}

// pool returns the connections that a tenant may use.
func (c *Client) pool(tenant int32) *pool {
	rules := c.guard.For(tenant)
	if rules == c.guard.Everybody() {
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
		rules:  rules,
		proxy:  newProxy(c.config.Proxy),
		dialer: net.Dialer{Control: c.control(rules)},
		tls: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			RootCAs:            c.config.RootCAs,
			Certificates:       c.config.Certificates,
			ClientSessionCache: tls.NewLRUClientSessionCache(1024),
		},
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	p.transport = &http.Transport{
		Proxy:                  nil, // the environment's proxy must not be used
		DialContext:            p.dial,
		DialTLSContext:         p.dialTLS,
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxConnsPerHost:        c.config.MaxConnsPerHost,
		IdleConnTimeout:        cmp.Or(c.config.IdleTimeout, defaultIdleTimeout),
		MaxResponseHeaderBytes: cmp.Or(c.config.MaxHeaderBytes, defaultMaxHeaderBytes),
	}
	return p
}
