// Package breaker keeps requests away from hosts that do not answer.
//
// There is a breaker for each tenant and host, and it is closed for nearly all of them: then it lets
// everything through, and only counts failures in a row.
//
//	         10 failures in a row                    a probe is answered
//	closed ───────────────────────► open, probing ───────────────────────► recovering
//	   ▲                             ▲    │ ▲                                │   │
//	   │                             │    └─┘ a probe fails:                 │   │
//	   │                             │        twice the cooldown             │   │
//	   │                             └───────────────────────────────────────┘   │
//	   │                               none is allowed any more                  │
//	   └─────────────────────────────────────────────────────────────────────────┘
//	       256 are allowed at a time, or for a minute none had to wait
//
// An open breaker lets one request through after each cooldown, the probe. When that is answered the host
// gets one request at a time; each answer allows one more, so the number doubles with each round trip, and
// each failure one less. So a host that is up again is not knocked down by all that has waited for it, and one that
// fails now and then still gets out.
//
// What must wait is told for how long, at random within a span, so that it does not come back as a herd.
package breaker

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// forgetAfter is how long a host that nobody calls is remembered.
	forgetAfter = 10 * time.Minute
	// maxHosts bounds the memory, to a few megabytes. Beyond it a host that starts to fail takes the place
	// of some other one.
	maxHosts = 10_000
)

// Key names a breaker: what one tenant's hosts do is nothing to the others.
type Key struct {
	Tenant int32
	Host   string // with its port, such as billing.internal:443
}

// Answer is how a request ended, as far as its host is concerned.
type Answer int

// The answers.
const (
	Answered Answer = iota // the host is alive
	Failed                 // no answer, or that of a broken server
	Unknown                // cut off, or never sent: says nothing about the host
)

// Breakers are the breakers of one replica. They are safe for concurrent use. Hosts without a recent failure
// have no entry, so what is healthy costs a look-up.
type Breakers struct {
	log   *slog.Logger
	known atomic.Int32 // len(hosts): while nothing fails nobody locks
	mu    sync.Mutex
	hosts map[Key]*host
}

// New returns breakers that are all closed, and that log when one opens or closes.
func New(log *slog.Logger) *Breakers { return &Breakers{log: log, hosts: map[Key]*host{}} }

// Permit lets one request out. Done must be called when it is over.
type Permit struct {
	breakers *Breakers
	key      Key
	host     *host // nil: the breaker was closed
	round    int   // of the host
	sent     time.Time
}

// Wait says that a request must not go out now.
type Wait struct {
	For time.Duration // when to ask again; random, so that those who wait do not come back together
	Why string        // for people
}

// Admit asks whether a request may go out now; if wait is not nil it must not, and there is no permit.
func (b *Breakers) Admit(k Key) (p Permit, wait *Wait) {
	p = Permit{breakers: b, key: k}
	if b.known.Load() == 0 {
		return p, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hosts[k]
	if h == nil || h.state == closed {
		return p, nil
	}
	now := time.Now()
	if h.idle(now) {
		b.forget(k)
		return p, nil
	}
	h.touched = now
	if !h.admit(now) {
		return Permit{}, h.wait(k.Host, now)
	}
	p.host, p.round, p.sent = h, h.round, now
	return p, nil
}

// Done tells how the request ended; why is the error for people of one that failed.
func (p Permit) Done(a Answer, why string) {
	b := p.breakers
	if a != Failed && b.known.Load() == 0 {
		return
	}
	was, is := b.settle(p, a, why)
	// Not under the lock: a log that blocks would stop every request.
	switch {
	case was.state != open && is.state == open:
		b.log.Warn("circuit breaker opened: requests to the host wait", "tenant", p.key.Tenant, "host", p.key.Host,
			"failures_in_a_row", is.failures, "error", is.last, "next_probe_in", is.cooldown)
	case was.state != closed && is.state == closed:
		b.log.Info("circuit breaker closed: the host answers again", "tenant", p.key.Tenant, "host", p.key.Host,
			"after", time.Since(was.since).Round(time.Second), "last_error", was.last)
	}
}

// settle enters an answer, and returns what its host was before and is now. What was sent in an earlier
// state of the breaker says nothing about this one.
func (b *Breakers) settle(p Permit, a Answer, why string) (was, is host) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hosts[p.key]
	switch {
	case h == nil && (p.host != nil || a != Failed):
		return was, is
	case h == nil:
		h = b.add(p.key)
	case p.host == nil && h.state != closed:
		return was, is
	case p.host != nil && (p.host != h || p.round != h.round):
		return was, is
	}
	was = *h
	now := time.Now()
	h.settle(a, why, now, now.Sub(p.sent))
	if h.state == closed && h.failures == 0 {
		b.forget(p.key)
	}
	return was, *h
}

// Open counts the hosts whose breaker is not closed.
func (b *Breakers) Open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for k, h := range b.hosts {
		if h.idle(now) {
			b.forget(k)
		} else if h.state != closed {
			n++
		}
	}
	return n
}

func (b *Breakers) add(k Key) *host {
	for other := range b.hosts {
		if len(b.hosts) < maxHosts {
			break
		}
		b.forget(other)
	}
	h := &host{}
	b.hosts[k] = h
	b.known.Store(int32(len(b.hosts)))
	return h
}

func (b *Breakers) forget(k Key) {
	delete(b.hosts, k)
	b.known.Store(int32(len(b.hosts)))
}
