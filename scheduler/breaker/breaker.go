// Package breaker keeps requests away from hosts that cannot be reached, and bounds requests that hang.
//
// # Unreachable
//
// There is a breaker for each tenant and host. Nearly all of them are closed: a closed breaker lets everything
// through, and only counts how often in a row the host could not be reached (name, connection, TLS). An HTTP status
// of any kind proves that the host is there, and so does a connection on which no answer comes.
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
// An open breaker lets one request through after each cooldown, the probe. Once the host is reached it gets one request
// at a time. Each answer allows one more, so the number doubles with each round trip; each failure allows one less. So
// a host that is up again is not knocked down by its backlog, and a host that fails now and then still recovers.
//
// # Waiting
//
// A run that must wait is parked in the database. Breakers say how many of the waiting runs may be sent (Wanted), and
// the replica fetches them: the run that has waited longest goes first, and probes come from one job after the other.
// A run that has just been claimed does not overtake them.
//
// A run waits for as long as it may, which the caller knows. Then it may be given up only if a request that was sent
// shortly before has failed (Wait.Failed). Otherwise it asks as the Last one, and is a probe itself, whatever is left
// of the cooldown. So the cooldown ends at the latest when the first waiting run has waited long enough, and that probe
// answers for the others as well.
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
	// forgetAfter is how long a host is remembered that is not called.
	forgetAfter = 10 * time.Minute
	// maxHosts bounds the memory to a few megabytes. Beyond it a host that starts to fail takes the place of some other
	// one.
	maxHosts = 10_000
)

// Key names a breaker. A breaker belongs to one tenant: what that tenant's host does is nothing to the others.
type Key struct {
	Tenant int32
	Host   string // with its port, such as billing.internal:443
}

// By names what holds back the runs that wait for the host.
func (k Key) By() string { return "breaker " + k.Host }

// Answer is how a request ended, as far as its host is concerned.
type Answer int

// The answers.
const (
	Answered    Answer = iota // with any status: the host is alive
	Reached                   // there was a connection, but no answer
	Unreachable               // there was no connection: name, connect, TLS
	Unknown                   // cut off, or never sent: says nothing about the host
)

// Turn is why a run asks to be sent.
type Turn int

// The turns.
const (
	Fresh  Turn = iota // it has just become due: it does not overtake waiting runs
	Waited             // it has waited, and was fetched because Wanted said so
	Last               // it has waited for as long as it may, and no request has failed shortly before
	Always             // it is sent whatever the host does: a run by hand, or one with a single attempt
)

// Breakers are the breakers of one replica. They are safe for concurrent use. A host without a recent failure has no
// entry, so a healthy host costs a look-up only.
type Breakers struct {
	log   *slog.Logger
	known atomic.Int32 // len(hosts), so that no request takes the lock while no host fails
	mu    sync.Mutex
	hosts map[Key]*host
}

// New returns breakers that are all closed, and that log when one opens or closes.
func New(log *slog.Logger) *Breakers { return &Breakers{log: log, hosts: map[Key]*host{}} }

// Permit lets one request out. Done must be called when the request is over.
type Permit struct {
	breakers *Breakers
	key      Key
	host     *host // nil: the breaker was closed
	round    int   // the host's round when the permit was given
	at       time.Time
}

// Wait says that a request must not go out now.
type Wait struct {
	By  string // what holds it back, in two words, such as "breaker billing.internal:443"
	Why string // for people

	Hanging bool // the host can be reached, but does not answer

	Failed time.Time     // start of the latest request that failed, by the caller's clock; zero: none since an answer
	Again  time.Duration // how long until it is worth asking as the Last one
}

// Admit asks whether a request may go out now, which is at by the caller's clock. If wait is not nil it must not, and
// there is no permit.
func (b *Breakers) Admit(k Key, turn Turn, at time.Time) (p Permit, wait *Wait) {
	p = Permit{breakers: b, key: k, at: at}
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
		return Permit{}, h.wait(k, now)
	}
	p.host, p.round = h, h.round
	return p, nil
}

// Done reports how the request ended; why is the error of a failed one, for people. changed is true when the breaker
// opened or closed.
func (p Permit) Done(a Answer, why string) (changed bool) {
	b := p.breakers
	if a != Unreachable && b.known.Load() == 0 {
		return false
	}
	was, is := b.settle(p, a, why)
	return b.tell(p.key, was, is)
}

// tell logs a change of a breaker. It does so outside the lock: a log that blocks would stop every request.
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

// settle records an answer, and returns the state of its host before and after. A request that was sent in an earlier
// state of the breaker says nothing about the current one.
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
	h.settle(a, why, p.at, time.Now())
	if h.state == closed && h.failures == 0 {
		b.forget(p.key)
	}
	return was, *h
}

// Wanted is how many of the runs that wait for a host may be fetched now.
type Wanted struct {
	Key
	Most int
	Not  []uuid.UUID // jobs that have had their turn: one of their runs was a probe already
}

// Wanted returns at most most hosts to which waiting runs may be sent now. Fetched must be called for each of them.
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
	// The host that has waited longest comes first, so that each gets its turn.
	slices.SortFunc(wanted, func(a, c Wanted) int {
		return cmp.Or(
			b.hosts[a.Key].nextAt.Compare(b.hosts[c.Key].nextAt),
			cmp.Compare(a.Host, c.Host), cmp.Compare(a.Tenant, c.Tenant))
	})
	return wanted[:min(len(wanted), most)]
}

// Fetched reports what a fetch for a host found: the jobs of the runs, and whether more may wait. changed is true
// when the breaker closed because no run waits any more.
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

// Until returns how long it takes until a waiting run may be wanted; at most most.
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

// Recovering reports whether some host is recovering, and so gets more requests with each answer.
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

// Probe makes the next probe of a host due now: another replica has reached the host.
func (b *Breakers) Probe(k Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.hosts[k]; h != nil && h.state == open && h.inFlight == 0 {
		h.nextAt, h.lookAt = time.Now(), time.Time{}
	}
}

// Hold is something that runs are held back for.
type Hold struct {
	Tenant     int32
	By         string // such as "breaker billing.internal:443"
	State      string
	Failures   int // in a row
	LastError  string
	For        time.Duration // for how long it has been so
	ProbeIn    time.Duration // open: until the next probe; 0: the probe is under way, or wanted now
	Host, Path string
}

// The states of a hold.
const (
	Open       = "open"       // the host cannot be reached
	Recovering = "recovering" // the host can be reached again, and gets more and more requests
	Hanging    = "hanging"    // requests time out
)

// compare orders holds by what they are for.
func (h Hold) compare(other Hold) int {
	return cmp.Or(cmp.Compare(h.Tenant, other.Tenant), cmp.Compare(h.By, other.By))
}

// All returns the breakers that are not closed, sorted.
func (b *Breakers) All() (all []Hold) {
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
			hold := Hold{
				Tenant: k.Tenant, By: k.By(), State: Open, Failures: h.failures, LastError: h.last,
				For: now.Sub(h.since), ProbeIn: h.probeIn(now), Host: k.Host,
			}
			if h.state == recovering {
				hold.State = Recovering
			}
			all = append(all, hold)
		}
	}
	slices.SortFunc(all, Hold.compare)
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
