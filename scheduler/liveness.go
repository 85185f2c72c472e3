package scheduler

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// TTL is how long a heartbeat may stand still: whoever watched another replica's for so long takes over its
// runs. With the sweep's period and a retry at once, a killed replica's runs are taken over within 15 s.
const TTL = 10 * time.Second

// selfStop is how long after its last renewal a replica starts nothing new and cuts off what must not
// overlap. Before the TTL, as it looks every selfCheckEvery, and requests take a moment to close: when
// others take over, they have been closed.
const selfStop = TTL - time.Second

// Heartbeat is a replica's counter as it was read.
type Heartbeat struct {
	Replica uuid.UUID
	Beat    int64
}

// watch judges replicas by their heartbeats: only by having watched one stand still for a TTL on this
// machine's monotonic clock, while this replica's own renewals succeeded. So neither a database outage nor a
// step of any clock makes the living look dead.
type watch struct {
	mu      sync.Mutex
	seen    map[uuid.UUID]sighting
	renewed time.Time // when the last renewal that succeeded was sent
	lapses  int       // how often the time between two renewals was so long that others may have taken over
}

type sighting struct {
	beat  int64
	since time.Time // when the first answer with this beat had arrived
}

func newWatch(now time.Time) *watch {
	return &watch{seen: map[uuid.UUID]sighting{}, renewed: now}
}

// alone reports whether no other replica was there at the last renewal.
func (w *watch) alone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen) == 0
}

// observe takes the heartbeats that a successful renewal brought back, and returns those that have stood
// still for a TTL: from when an answer first showed them, as they may have moved until then, to when this
// renewal was sent. After a gap in the renewals everybody is watched anew: what was not looked at may have
// moved.
func (w *watch) observe(sent, answered time.Time, beats []Heartbeat) (still []Heartbeat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := sent.Sub(w.renewed) > TTL/2
	if sent.Sub(w.renewed) >= selfStop {
		w.lapses++
	}
	w.renewed = sent
	now := make(map[uuid.UUID]sighting, len(beats))
	for _, b := range beats {
		s, known := w.seen[b.Replica]
		if gap || !known || s.beat != b.Beat {
			s = sighting{beat: b.Beat, since: answered}
		}
		now[b.Replica] = s
		if sent.Sub(s.since) >= TTL {
			still = append(still, b)
		}
	}
	w.seen = now
	return still
}

// expired reports whether this replica could not renew for so long that others may soon take over.
func (w *watch) expired(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return now.Sub(w.renewed) >= selfStop
}

// lapsed counts the times at which others may have taken over before this replica could renew again.
func (w *watch) lapsed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lapses
}
