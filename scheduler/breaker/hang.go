package breaker

import (
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// hangsAfter is how many requests in a row to a place have to time out, without an answer in between, for it to hang.
	hangsAfter = 3
	// LongAfter is how long a request may be in flight before it counts as possibly hanging.
	LongAfter = time.Minute
	// lookAgain is how long no runs are looked for at a place after none was found waiting there.
	lookAgain = time.Second
	// settleIn is how long it takes until fetched runs are in flight.
	settleIn = 100 * time.Millisecond
)

// Hangs keeps requests that hang from taking the worker slots of all others, in two ways.
//
// A place is a host of a tenant, or one path of it. A place hangs once three requests in a row to it have timed out
// without an answer in between. From then on its requests may occupy a quarter of a queue's worker slots, and further
// runs wait. One answer ends that. The requests that are let through are the probes. If none of them was both sent and
// timed out since a run's wait began, the run may ask as the Last one, and be a probe beyond the quarter.
//
// Requests that have been in flight for longer than a minute may hang, or may be slow and about to be answered. They
// go on. But for each host only a quarter of a queue's worker slots count as taken by such requests. The slots of the
// others are lent out (Long), so that other runs find slots.
//
// Hangs is safe for concurrent use.
type Hangs struct {
	log     *slog.Logger
	mu      sync.Mutex
	flights map[*Flight]struct{}
	places  map[Place]*place // places where a request has timed out and none was answered since
}

// Place is what may hang: a host, or with a Path one path of it.
type Place struct {
	Key
	Path string
}

// By names what holds back the runs that wait for the place.
func (p Place) By() string { return "hanging " + p.Host + p.Path }

func (p Place) host() Place { return Place{Key: p.Key} }

// wholes returns the host of a place and the place, each once.
func (p Place) wholes() []Place {
	if p.Path == "" {
		return []Place{p}
	}
	return []Place{p.host(), p}
}

type place struct {
	timeouts int // in a row
	since    time.Time
	touched  time.Time
	last     *Flight             // the one probe beyond the quarter; nil: none is in flight
	failedAt time.Time           // start of the latest request that timed out, by the callers' clock
	inFlight map[int16]int       // by queue
	waiting  map[int16]bool      // runs are known to wait
	lookAt   map[int16]time.Time // when to look again for waiting runs
}

func (p *place) hangs() bool { return p.timeouts >= hangsAfter }

// Flight is a request in flight.
type Flight struct {
	Request
	sent time.Time
	lent bool // its worker slot was lent to others
}

// Request is what Hangs knows of a request.
type Request struct {
	Queue int16
	Slots int // worker slots of the queue
	Work  int // the kind of work that it was claimed as, for Lent
	To    Place
	Turn  Turn
	At    time.Time // now, by the caller's clock
}

// NewHangs returns the hangs of a replica.
func NewHangs(log *slog.Logger) *Hangs {
	return &Hangs{log: log, flights: map[*Flight]struct{}{}, places: map[Place]*place{}}
}

// Quarter is how many of a queue's worker slots requests to one hanging place may have.
func Quarter(slots int) int { return max(1, slots/4) }

// Admit asks whether a request may go out now. If wait is not nil it must not; otherwise End must be called when the
// request is over.
func (h *Hangs) Admit(r Request) (f *Flight, wait *Wait) {
	f = &Flight{Request: r, sent: time.Now()} // made before the lock, which all attempts share
	h.mu.Lock()
	defer h.mu.Unlock()
	for at, p := range h.watched(r.To) {
		if !p.admit(r.Queue, Quarter(r.Slots), r.Turn) {
			return nil, at.wait(p)
		}
	}
	if r.Turn == Last {
		for _, p := range h.watched(r.To) {
			p.last = f
		}
	}
	h.flights[f] = struct{}{}
	h.count(f, 1)
	return f, nil
}

func (p *place) admit(queue int16, most int, turn Turn) bool {
	p.touched = time.Now()
	switch {
	case turn == Always, !p.hangs(), turn == Last && p.last == nil,
		p.inFlight[queue] < most && (turn != Fresh || !p.waiting[queue]):
		return true
	}
	p.waiting[queue] = true
	return false
}

func (p Place) wait(at *place) *Wait {
	w := &Wait{By: p.By(), Hanging: true, Failed: at.failedAt, Again: trickle, Why: fmt.Sprintf(
		"waiting: %s%s hangs: the last %d requests timed out, and it has its maximum of requests in flight",
		p.Host, p.Path, at.timeouts)}
	if at.last != nil {
		w.Again = max(trickle, time.Since(at.last.sent))
	}
	return w
}

// count adds by to the requests in flight at the places of a request.
func (h *Hangs) count(f *Flight, by int) {
	for _, p := range h.watched(f.To) {
		p.inFlight[f.Queue] += by
		if by < 0 && p.last == f {
			p.last = nil
		}
	}
}

// watched yields the places of a request that are watched. Nearly always there are none at all.
func (h *Hangs) watched(to Place) iter.Seq2[Place, *place] {
	return func(yield func(Place, *place) bool) {
		if len(h.places) == 0 {
			return
		}
		for _, at := range to.wholes() {
			if p := h.places[at]; p != nil && !yield(at, p) {
				return
			}
		}
	}
}

// End reports how a request ended: answered, or by a timeout, or neither. lent is true when its worker slot had been
// lent to others. changed is true when a place has begun or ceased to hang.
func (h *Hangs) End(f *Flight, answered, timedOut bool) (lent, changed bool) {
	h.mu.Lock()
	delete(h.flights, f)
	h.count(f, -1)
	var begun, over []Place
	switch {
	case answered:
		over = h.answered(f)
	case timedOut:
		begun = h.timedOut(f)
	}
	lent = f.lent
	h.mu.Unlock()
	for _, p := range begun {
		h.log.Warn("requests hang: once they use a quarter of the queue's concurrency, further runs wait",
			"tenant", p.Tenant, "host", p.Host, "path", p.Path)
	}
	for _, p := range over {
		h.log.Info("requests are answered again", "tenant", p.Tenant, "host", p.Host, "path", p.Path)
	}
	return lent, len(begun)+len(over) > 0
}

func (h *Hangs) answered(f *Flight) (over []Place) {
	for at, p := range h.watched(f.To) {
		if p.hangs() {
			over = append(over, at)
		}
		delete(h.places, at)
	}
	return over
}

func (h *Hangs) timedOut(f *Flight) (begun []Place) {
	for _, at := range f.To.wholes() {
		p := h.places[at]
		if p == nil {
			p = h.add(at)
		}
		p.touched = time.Now()
		if f.At.After(p.failedAt) {
			p.failedAt = f.At
		}
		if p.timeouts++; p.timeouts == hangsAfter {
			p.since = p.touched
			begun = append(begun, at)
		}
	}
	return begun
}

// add begins to watch a place.
func (h *Hangs) add(at Place) *place {
	for other := range h.places {
		if len(h.places) < maxHosts {
			break
		}
		delete(h.places, other)
	}
	p := &place{inFlight: map[int16]int{}, waiting: map[int16]bool{}, lookAt: map[int16]time.Time{}}
	for f := range h.flights {
		if f.To == at || f.To.host() == at {
			p.inFlight[f.Queue]++
		}
	}
	h.places[at] = p
	return p
}

// WantedAt is how many of the runs that wait for a place may be fetched now, in one queue.
type WantedAt struct {
	Place
	Queue int16
	Most  int
}

// Wanted returns at most most places to which waiting runs may be sent now. slots is how many worker slots each queue
// has. Fetched must be called for each of them.
func (h *Hangs) Wanted(slots map[int16]int, most int) (wanted []WantedAt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for at, p := range h.places {
		if now.Sub(p.touched) > forgetAfter {
			delete(h.places, at)
			continue
		}
		if !p.hangs() {
			continue
		}
		for queue, size := range slots {
			n := Quarter(size) - p.inFlight[queue]
			if n > 0 && len(wanted) < most && !now.Before(p.lookAt[queue]) {
				wanted = append(wanted, WantedAt{Place: at, Queue: queue, Most: n})
			}
		}
	}
	return wanted
}

// Fetched reports how many of the wanted runs a fetch found, and whether more may wait.
func (h *Hangs) Fetched(w WantedAt, found int, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.places[w.Place]
	if p == nil {
		return
	}
	p.waiting[w.Queue] = more
	p.lookAt[w.Queue] = time.Now().Add(settleIn)
	if found < w.Most {
		p.lookAt[w.Queue] = time.Now().Add(lookAgain)
	}
}

// Any reports whether some place hangs.
func (h *Hangs) Any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.places {
		if p.hangs() {
			return true
		}
	}
	return false
}

// Reset forgets a place's timeouts.
func (h *Hangs) Reset(at Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.places, at)
}

// All returns the places that hang, sorted.
func (h *Hangs) All() (all []Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at, p := range h.places {
		if p.hangs() {
			all = append(all, Hold{
				Tenant: at.Tenant, By: at.By(), State: Hanging, Failures: p.timeouts, For: time.Since(p.since), Host: at.Host,
				Path: at.Path, LastError: fmt.Sprintf("%d timeouts in a row", p.timeouts),
			})
		}
	}
	slices.SortFunc(all, Hold.compare)
	return all
}

// Lent is the worker slot of a request that was lent to other runs.
type Lent struct {
	Queue int16
	Work  int // as in Request
}

// Long lends to other runs the worker slots of requests that have been in flight for more than a minute. Per host it
// leaves them a quarter of their queue's slots, and in all it lends at most as many as the queue has slots.
func (h *Hangs) Long() (slots []Lent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	type at struct {
		queue int16
		Key
	}
	var long []*Flight
	counted, lent := map[at]int{}, map[int16]int{}
	for f := range h.flights {
		switch {
		case f.lent:
			lent[f.Queue]++
		case time.Since(f.sent) > LongAfter:
			long = append(long, f)
			counted[at{f.Queue, f.To.Key}]++
		}
	}
	for _, f := range long {
		k := at{f.Queue, f.To.Key}
		if counted[k] > Quarter(f.Slots) && lent[f.Queue] < f.Slots {
			f.lent = true
			counted[k]--
			lent[f.Queue]++
			slots = append(slots, Lent{Queue: f.Queue, Work: f.Work})
		}
	}
	return slots
}
