package delivery

import (
	"cmp"
	"net/url"
	"slices"
	"time"
)

// An address is what connections are shared by.
type address struct{ scheme, name, port string }

var ports = map[string]string{"http": "80", "https": "443"}

func addressOf(u *url.URL) address {
	return address{u.Scheme, u.Hostname(), cmp.Or(u.Port(), ports[u.Scheme])}
}

// A host is what the attempts at one address have in common.
type host struct {
	address
	pool  *pool
	idle  []*conn // the one that was used last is the last
	users int     // attempts that are under way
}

// enter returns the host of an address.
func (p *pool) enter(to address) *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[to]
	if h == nil {
		h = &host{address: to, pool: p}
		p.hosts[to] = h
	}
	h.users++
	return h
}

// leave is called by each attempt that has entered, with its connection if another attempt may use it.
func (h *host) leave(kept *conn) {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if kept != nil {
		h.put(kept)
	}
	h.users--
	h.pool.drop(h)
}

// drop forgets a host that has nothing to be remembered. p.mu is held.
func (p *pool) drop(h *host) {
	if h.users == 0 && len(h.idle) == 0 {
		delete(p.hosts, h.address)
	}
}

// conn returns an idle connection, or else a new one.
func (h *host) conn(x *attempt) (*conn, error) {
	for {
		c := h.take()
		if c == nil {
			return h.pool.dial(x, h.address)
		}
		if time.Since(c.idle) < h.pool.idleTimeout && c.usable() {
			return c, nil
		}
		_ = c.Close()
	}
}

func (h *host) take() *conn {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	last := len(h.idle) - 1
	if last < 0 {
		return nil
	}
	c := h.idle[last]
	h.idle[last], h.idle = nil, h.idle[:last]
	return c
}

// put keeps a connection for the next attempt. No more are idle than were in use at one time within the idle timeout:
// a lower bound would close and dial connections all through a burst. p.mu is held.
func (h *host) put(c *conn) {
	c.idle = time.Now()
	h.idle = append(h.idle, c)
	if p := h.pool; !p.sweeping {
		p.sweeping = true
		p.sweeper.Reset(p.idleTimeout / sweeps)
	}
}

// sweeps is how often idle connections are looked through within the idle timeout. So one that is not used again is
// closed in time and a quarter; nor is it used after its time.
const sweeps = 4

// sweep closes connections that were idle for too long. One timer does this for all, and runs while there are any.
func (p *pool) sweep() {
	p.closeIdle(p.idleTimeout)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeping = len(p.hosts) > 0; p.sweeping {
		p.sweeper.Reset(p.idleTimeout / sweeps)
	}
}

// closeIdle closes the connections that have been idle for so long.
func (p *pool) closeIdle(long time.Duration) {
	var old []*conn
	p.mu.Lock()
	for _, h := range p.hosts {
		n := 0
		for n < len(h.idle) && time.Since(h.idle[n].idle) >= long {
			n++
		}
		old = append(old, h.idle[:n]...)
		h.idle = slices.Delete(h.idle, 0, n)
		p.drop(h)
	}
	p.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}
