// Package breaker keeps requests away from hosts that cannot be reached, and bounds those that hang.
//
// # Unreachable
//
// There is a breaker for each tenant and host, and it is closed for nearly all of them: then it lets
// everything through, and only counts in a row how often the host could not be reached (name, connection, TLS).
// An HTTP status of any kind proves that the host is there, and so does a connection on which no answer comes.
//
//	         unreachable 10 times in a row           a probe reaches the host
//	closed ───────────────────────► open, probing ───────────────────────► recovering
//	   ▲                             ▲    │ ▲                                │   │
//	   │                             │    └─┘ a probe fails:                 │   │
//	   │                             │        twice the cooldown             │   │
//	   │                             └───────────────────────────────────────┘   │
//	   │                               none is allowed any more                  │
//	   └─────────────────────────────────────────────────────────────────────────┘
//	       256 are allowed at a time, or no run waits any more
//
// An open breaker lets one request through after each cooldown, the probe. Once the host is reached it gets one
// request at a time; each answer allows one more, so the number doubles with each round trip, and each failure one
// less. So a host that is up again is not knocked down by all that has waited for it, and one that fails now and
// then still gets out.
//
// # Waiting
//
// A run that must wait is parked in the database. Breakers say how many of those that wait may be sent (Wanted), and
// the replica fetches them: the longest unsent first, and as probes one of each job in turn. A run that has just been
// claimed does not overtake them.
//
// # Hanging
//
// Hangs counts the requests in flight at hosts, and at single paths of hosts, that have stopped answering; see there.
package breaker

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
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
	Answered    Answer = iota // with any status: the host is alive
	Reached                   // there was a connection, and no answer
	Unreachable               // there was no connection: name, connect, TLS
	Unknown                   // cut off, or never sent: says nothing about the host
)

// Turn is why a run asks to be sent.
type Turn int

// The turns.
const (
	Fresh  Turn = iota // it has just become due: it does not overtake those that wait
	Waited             // it has waited, and was fetched because Wanted said so
	Always             // it is sent whatever the host does: a run by hand, or one that has a single attempt
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
}

// Wait says that a request must not go out now.
type Wait struct {
	By  string // what holds it back, in two words, such as "breaker billing.internal:443"
	Why string // for people

	Hanging bool // the host can be reached, and does not answer
}

// Admit asks whether a request may go out now; if wait is not nil it must not, and there is no permit.
func (b *Breakers) Admit(k Key, turn Turn) (p Permit, wait *Wait) {
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
	if !h.admit(turn, now) {
		h.waiting = true
		return Permit{}, h.wait(k.Host, now)
	}
	p.host, p.round = h, h.round
	return p, nil
}

// Done tells how the request ended; why is the error for people of one that failed. changed is true when the
// breaker opened or closed.
func (p Permit) Done(a Answer, why string) (changed bool) {
	b := p.breakers
	if a != Unreachable && b.known.Load() == 0 {
		return false
	}
	was, is := b.settle(p, a, why)
	return b.tell(p.key, was, is)
}

// tell logs what became of a breaker. Not under the lock: a log that blocks would stop every request.
func (b *Breakers) tell(k Key, was, is host) (changed bool) {
	switch {
	case was.state != open && is.state == open:
		b.log.Warn("circuit breaker opened: runs wait for the host to be reachable", "tenant", k.Tenant, "host", k.Host,
			"failures_in_a_row", is.failures, "error", is.last, "next_probe_in", is.cooldown)
	case was.state != closed && is.state == closed:
		b.log.Info("circuit breaker closed: the host can be reached again", "tenant", k.Tenant, "host", k.Host,
			"after", time.Since(was.since).Round(time.Second), "last_error", was.last)
	}
	return was.state != is.state
}

// settle enters an answer, and returns what its host was before and is now. What was sent in an earlier
// state of the breaker says nothing about this one.
func (b *Breakers) settle(p Permit, a Answer, why string) (was, is host) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hosts[p.key]
	switch {
	case h == nil && (p.host != nil || a != Unreachable):
		return was, is
	case h == nil:
		h = b.add(p.key)
	case p.host == nil && h.state != closed:
		return was, is
	case p.host != nil && (p.host != h || p.round != h.round):
		return was, is
	}
	was = *h
	h.settle(a, why, time.Now())
	if h.state == closed && h.failures == 0 {
		b.forget(p.key)
	}
	return was, *h
}

// Wanted is how many of the runs that wait for a host may be fetched now.
type Wanted struct {
	Key
	Most int
	Not  []uuid.UUID // jobs whose turn it is not, as one of their runs was a probe already
}

// By names what holds the runs back that are wanted.
func (w Wanted) By() string { return heldBy(w.Host) }

func heldBy(host string) string { return "breaker " + host }

// Wanted returns the hosts that some of the runs that wait for them may be sent to now, at most so many hosts. Fetched
// must be called for each.
func (b *Breakers) Wanted(most int) (wanted []Wanted) {
	if b.known.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for k, h := range b.hosts {
		if n := h.wants(now); n > 0 {
			w := Wanted{Key: k, Most: n}
			if h.state == open {
				w.Not = h.tried
			}
			wanted = append(wanted, w)
		}
	}
	// The one that has waited longest comes first, so that each gets its turn.
	slices.SortFunc(wanted, func(a, c Wanted) int {
		return cmp.Or(b.hosts[a.Key].nextAt.Compare(b.hosts[c.Key].nextAt), cmp.Compare(a.Host, c.Host), cmp.Compare(a.Tenant, c.Tenant))
	})
	return wanted[:min(len(wanted), most)]
}

// Fetched tells what was found of what was wanted: the jobs of the runs, and whether more may wait. changed is true
// when the breaker closed, because none does.
func (b *Breakers) Fetched(w Wanted, jobs []uuid.UUID, more bool) (changed bool) {
	b.mu.Lock()
	h := b.hosts[w.Key]
	if h == nil {
		b.mu.Unlock()
		return false
	}
	was := *h
	h.fetched(jobs, more, time.Now())
	is := *h
	if h.state == closed {
		b.forget(w.Key)
	}
	b.mu.Unlock()
	return b.tell(w.Key, was, is)
}

// Until returns how long it takes until a run that waits may be wanted; at most so long.
func (b *Breakers) Until(most time.Duration) time.Duration {
	if b.known.Load() == 0 {
		return most
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, h := range b.hosts {
		if h.state != closed && !h.idle(now) {
			most = min(most, max(h.nextAt.Sub(now), h.lookAt.Sub(now), 0))
		}
	}
	return most
}

// Recovering reports whether a host is sent more with each answer.
func (b *Breakers) Recovering() bool {
	if b.known.Load() == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.hosts {
		if h.state == recovering {
			return true
		}
	}
	return false
}

// Reset closes the breaker of a host, whatever the host does.
func (b *Breakers) Reset(k Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(k)
}

// Probe has the next probe of a host sent now: another replica has reached it.
func (b *Breakers) Probe(k Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.hosts[k]; h != nil && h.state == open && h.inFlight == 0 {
		h.nextAt, h.lookAt = time.Now(), time.Time{}
	}
}

// Status is a breaker that is not closed.
type Status struct {
	Key
	Recovering bool // the host has been reached again
	Failures   int  // in a row
	LastError  string
	OpenFor    time.Duration
	ProbeIn    time.Duration // 0: one is under way, or wanted now
}

// By names what holds the runs back.
func (s Status) By() string { return heldBy(s.Host) }

// All returns the breakers that are not closed, sorted.
func (b *Breakers) All() (all []Status) {
	if b.known.Load() == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for k, h := range b.hosts {
		if h.idle(now) {
			b.forget(k)
		} else if h.state != closed {
			all = append(all, Status{
				Key: k, Recovering: h.state == recovering, Failures: h.failures, LastError: h.last,
				OpenFor: now.Sub(h.since), ProbeIn: h.probeIn(now),
			})
		}
	}
	slices.SortFunc(all, func(a, c Status) int { return cmp.Or(cmp.Compare(a.Tenant, c.Tenant), cmp.Compare(a.Host, c.Host)) })
	return all
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
