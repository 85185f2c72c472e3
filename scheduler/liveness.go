package scheduler

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// TTL is how long a heartbeat may stand still. A replica that has watched another's heartbeat stand still for that
// long takes over its runs. With the period of the heartbeats and an immediate retry, a killed replica's runs are
// taken over within 15 s.
const TTL = 10 * time.Second

// selfStop is how long after its last renewal a replica starts nothing new and cuts off what must not overlap. It is
// shorter than the TTL, because the replica checks only every selfCheckEvery, and requests take a moment to close.
// When others take over, the requests are closed.
const selfStop = TTL - time.Second

// Heartbeat is the counter of a replica's heartbeats as it was read.
type Heartbeat struct {
	Replica uuid.UUID
	Beat    int64
}

// watch judges replicas by their heartbeats. It calls a replica dead only after it has watched the heartbeat stand
// still for a TTL on this machine's monotonic clock, while this replica's own renewals succeeded. So neither a
// database outage nor a step of any clock makes a living replica look dead.
type watch struct {
	mu      sync.Mutex
	seen    map[uuid.UUID]sighting
	renewed time.Time // when the last successful renewal was sent
	lapses  int       // how often two renewals lay so far apart that others may have taken over
}

type sighting struct {
	beat  int64
	since time.Time // when the first answer with this beat arrived
}

func newWatch(now time.Time) *watch {
	return &watch{seen: map[uuid.UUID]sighting{}, renewed: now}
}

// alone reports whether no other replica existed at the last renewal.
func (w *watch) alone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen) == 0
}

// observe takes the heartbeats that a successful renewal returned, and returns those that have stood still for a TTL.
// The time counts from the arrival of the first answer that showed the beat, because the heartbeat may have moved
// until then, to the sending of this renewal. After a gap in the renewals every replica is watched anew: an unwatched
// heartbeat may have moved.
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

// lapsed counts how often others may have taken over before this replica could renew again.
func (w *watch) lapsed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lapses
}
