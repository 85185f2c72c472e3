package delivery

import (
	"cmp"
	"net/url"
	"slices"
	"time"
)

// An address is what connections are shared by.
type address struct{ scheme, name, port string }

func addressOf(u *url.URL) address { return address{u.Scheme, u.Hostname(), PortOf(u)} }

var ports = map[string]string{"http": "80", "https": "443"}

// PortOf returns the port that an HTTP or HTTPS URL leads to.
func PortOf(u *url.URL) string { return cmp.Or(u.Port(), ports[u.Scheme]) }

// conn returns an idle connection, or else a new one.
func (p *pool) conn(x *attempt, to address) (*conn, error) {
	for {
		c := p.take(to)
		if c == nil {
			return p.dial(x, to)
		}
		if time.Since(c.idle) < p.idleTimeout && c.usable() {
			return c, nil
		}
		_ = c.Close()
	}
}

func (p *pool) take(to address) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := p.idle[to]
	last := len(idle) - 1
	if last < 0 {
		return nil
	}
	c := idle[last]
	idle[last], p.idle[to] = nil, idle[:last]
	return c
}

// put keeps a connection for the next attempt. No more are idle than were in use at one time within the idle timeout:
// a lower bound would close and dial connections all through a burst.
func (p *pool) put(to address, c *conn) {
	c.idle = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle[to] = append(p.idle[to], c)
	if !p.sweeping {
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
	if p.sweeping = len(p.idle) > 0; p.sweeping {
		p.sweeper.Reset(p.idleTimeout / sweeps)
	}
}

// closeIdle closes the connections that have been idle for so long, and forgets the addresses that have none.
func (p *pool) closeIdle(long time.Duration) {
	var old []*conn
	p.mu.Lock()
	for to, idle := range p.idle {
		n := 0
		for n < len(idle) && time.Since(idle[n].idle) >= long {
			n++
		}
		old = append(old, idle[:n]...)
		p.idle[to] = slices.Delete(idle, 0, n)
		if len(p.idle[to]) == 0 {
			delete(p.idle, to)
		}
	}
	p.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}
