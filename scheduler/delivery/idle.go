package delivery

import (
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"punctual/scheduler/delivery/wire"
)

// An address is what connections are shared by.
type address struct {
	scheme, name, port string
	server             string // the name that a target proves, of [wire.Request.Host] or else of the URL
}

func addressOf(u *url.URL, host string) address {
	server := u.Hostname()
	if host != "" {
		server = (&url.URL{Host: host}).Hostname()
	}
	return address{u.Scheme, u.Hostname(), wire.PortOf(u), server}
}

// conn returns an idle connection, unless fresh asks for a new one, or else a new one.
func (p *pool) conn(x *attempt, to address, fresh bool) (*conn, error) {
	for !fresh {
		c := p.take(to)
		if c == nil {
			break
		}
		if time.Now().Before(c.until) && c.usable() {
			return c, nil
		}
		_ = c.Close()
	}
	return p.dial(x, to)
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

// put keeps a connection for the next attempt, for at most the given time. No more are idle than were in use at one
// time within the idle timeout: a lower bound would close and dial connections all through a burst.
func (p *pool) put(to address, c *conn, most time.Duration) {
	c.until = time.Now().Add(min(most, p.idleTimeout))
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
	p.closeIdle(time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeping = len(p.idle) > 0; p.sweeping {
		p.sweeper.Reset(p.idleTimeout / sweeps)
	}
}

func (p *pool) closeAll() { p.closeIdle(time.Now().Add(p.idleTimeout)) }

// closeIdle closes the idle connections whose time is up at an instant, and forgets the addresses that have no others.
func (p *pool) closeIdle(at time.Time) {
	var old []*conn
	p.mu.Lock()
	for to, idle := range p.idle {
		p.idle[to] = slices.DeleteFunc(idle, func(c *conn) bool {
			over := !at.Before(c.until)
			if over {
				old = append(old, c)
			}
			return over
		})
		if len(p.idle[to]) == 0 {
			delete(p.idle, to)
		}
	}
	p.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}

// keepAlive returns how long a target lets its connection be used again: half of what it announces in Keep-Alive, so
// that a request on its way does not meet the end. It returns the longest duration if the target announces nothing.
func keepAlive(h http.Header) time.Duration {
	for parameter := range strings.SplitSeq(strings.Join(h["Keep-Alive"], ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 16)
		if err == nil && strings.EqualFold(name, "timeout") {
			return time.Duration(seconds) * time.Second / 2
		}
	}
	return math.MaxInt64
}
