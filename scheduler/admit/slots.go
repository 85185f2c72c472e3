package admit

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"punctual/scheduler/domain"
)

// Slots counts what each queue of this replica may still take on. A replica claims only as much as it has free
// slots for, so no claimed run waits in memory while another replica idles.
type Slots struct {
	mu       sync.Mutex
	queues   []queueSlots // sorted by number
	Released chan struct{}

	Sizes map[int16]int // worker slots by the number of their queue
	total int           // worker slots of all queues

	ceiling int       // the most that may be taken at once; 0: all
	most    int       // may be taken at once now, because the replica lacks something; 0: as many as ceiling says
	cutAt   time.Time // when most was last lowered
}

type queueSlots struct {
	queue    int16
	name     string
	size     int
	inFlight [domain.WorkKinds]int  // requests that occupy a slot
	promised [domain.WorkKinds]int  // slots that claims under way may need
	lent     int                    // further requests in flight: they took so long that their slots were lent to others
	wanted   [domain.WorkKinds]bool // more is due than was claimed
	tenants  map[int32]int
}

// NewSlots returns the worker slots of queues: how many by name, and the queues' numbers. Most is how many may be taken
// at once, whatever worker slots there are; 0: all.
func NewSlots(sizes map[string]int, numbers map[string]int16, most int) *Slots {
	w := &Slots{Released: make(chan struct{}, 1), Sizes: map[int16]int{}, ceiling: most}
	for name, size := range sizes {
		w.Sizes[numbers[name]] = size
		w.total += size
		w.queues = append(w.queues, queueSlots{queue: numbers[name], name: name, size: size, tenants: map[int32]int{}})
	}
	slices.SortFunc(w.queues, func(a, b queueSlots) int { return int(a.queue) - int(b.queue) })
	return w
}

// Quotas returns how many runs of a kind of work each queue can take now, at most most in all; see deal.
func (w *Slots) Quotas(of domain.Work, most int, waiting []Contender) []Quota {
	w.mu.Lock()
	defer w.mu.Unlock()
	if most = min(most, w.Spare()); most == 0 {
		return nil
	}
	var quotas []Quota
	// The start is random, so that where there is not enough for all, no queue is always among the last.
	begin := rand.IntN(max(1, len(w.queues))) //nolint:gosec // spreads load, guards nothing
	for i := range w.queues {
		q := &w.queues[(begin+i)%len(w.queues)]
		if n := q.room(of); n > 0 {
			quotas = append(quotas, Quota{Queue: q.queue, Slots: n})
		}
	}
	return deal(quotas, most, waiting)
}

// Promise keeps slots of quotas for a claim that is under way, so that none beside it asks for them. By is -1 when the
// claim has ended: its runs have then taken their slots.
func (w *Slots) Promise(of domain.Work, quotas []Quota, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range quotas {
		for i := range w.queues {
			if q := &w.queues[i]; q.queue == p.Queue {
				q.promised[of] += by * p.Slots
			}
		}
	}
}

// RoomFor reports whether there are n slots for a kind of work.
func (w *Slots) RoomFor(of domain.Work, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		n -= w.queues[i].room(of)
	}
	return n <= 0
}

// Found records in which queues more of a kind of work is due than was claimed. Those are the queues in more. They
// also include, as far as can be told, the queues that were not looked into and had no slot for the work.
func (w *Slots) Found(of domain.Work, looked, more []int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		q := &w.queues[i]
		q.wanted[of] = slices.Contains(more, q.queue) || !slices.Contains(looked, q.queue) && q.room(of) == 0
	}
}

// FoundNone records that nothing of a kind of work was due in some queues.
func (w *Slots) FoundNone(of domain.Work, queues []int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		if q := &w.queues[i]; slices.Contains(queues, q.queue) {
			q.wanted[of] = false
		}
	}
}

// Starved reports whether a kind of work waits in some queue without a slot there.
func (w *Slots) Starved(of domain.Work) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.queues, func(q queueSlots) bool { return q.starved(of) })
}

// Take occupies a slot.
func (w *Slots) Take(queue int16, tenant int32, of domain.Work) { w.change(queue, tenant, of, 1) }

// Release gives a slot back and wakes a loop that waits for one. lent says that the slot had been lent to others.
func (w *Slots) Release(queue int16, tenant int32, of domain.Work, lent bool) {
	w.change(queue, tenant, of, -1)
	if lent {
		w.lend(queue, of, -1)
	}
	w.wake()
}

// lend lends the slots of some requests in flight to others; a negative number takes slots back.
func (w *Slots) lend(queue int16, of domain.Work, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		if q := &w.queues[i]; q.queue == queue {
			q.lent += by
			q.inFlight[of] -= by
		}
	}
}

// wake wakes a loop that waits for a slot.
func (w *Slots) wake() {
	select {
	case w.Released <- struct{}{}:
	default: // it has been woken already
	}
}

func (w *Slots) change(queue int16, tenant int32, of domain.Work, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		if q := &w.queues[i]; q.queue == queue {
			q.inFlight[of] += by
			if q.tenants[tenant] += by; q.tenants[tenant] == 0 {
				delete(q.tenants, tenant)
			}
		}
	}
}

// Held is how many slots of a queue a tenant's runs occupy.
func (w *Slots) Held(queue int16, tenant int32) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		if q := &w.queues[i]; q.queue == queue {
			return q.tenants[tenant]
		}
	}
	return 0
}

// ofTenant is how many slots of all queues a tenant's runs occupy.
func (w *Slots) ofTenant(tenant int32) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		n += q.tenants[tenant]
	}
	return n
}

// Numbers returns the numbers of all queues.
func (w *Slots) Numbers() []int16 {
	w.mu.Lock()
	defer w.mu.Unlock()
	numbers := make([]int16, len(w.queues))
	for i, q := range w.queues {
		numbers[i] = q.queue
	}
	return numbers
}

// Numbered reports whether the queues have these numbers.
func (w *Slots) Numbered(numbers map[string]int16) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.queues, func(q queueSlots) bool { return numbers[q.name] != q.queue })
}

// Open returns the numbers of the queues to look into for a kind of work. others says that queues without a slot for
// it were left out: what is due there must not delay the rest. A single queue is never left out.
func (w *Slots) Open(of domain.Work) (numbers []int16, others bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		if q := &w.queues[i]; q.room(of) > 0 || len(w.queues) == 1 {
			numbers = append(numbers, q.queue)
		} else {
			others = true
		}
	}
	return numbers, others
}

// Each calls visit with every queue's name, size and runs in flight.
func (w *Slots) Each(visit func(name string, size, inFlight int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		n := q.lent
		for _, of := range q.inFlight {
			n += of
		}
		visit(q.name, q.size, n)
	}
}

// workOf is the kind of work that a run was claimed as. Runs that waited for their host are claimed together, whatever
// their kind.
func workOf(a domain.Assignment) domain.Work {
	if a.Held != nil && a.Held.Fetched && a.Trigger.Ordered() {
		return domain.WorkOrdered
	}
	return a.Lease.Work
}

// deal cuts the free slots of queues down to a total of at most most. It shares them out evenly where the queues ask
// for more. With more queues than slots, the last queues get none.
//
// waiting lists the tenants that wait, if that is known. The queues where none waits then get half of the slots at
// most, in case a tenant has come meanwhile. A replica may serve hundreds of queues: a claim cut up evenly among all
// of them would bring a single run from the one queue that has work.
func deal(free []Quota, most int, waiting []Contender) []Quota {
	var asked, idle []Quota
	for _, q := range free {
		if slices.ContainsFunc(waiting, func(c Contender) bool { return c.Queue == q.Queue }) {
			asked = append(asked, q)
		} else {
			idle = append(idle, q)
		}
	}
	if len(asked) == 0 {
		return evenly(idle, most)
	}
	idle = evenly(idle, most/2)
	return append(evenly(asked, most-Total(idle)), idle...)
}

// evenly shares out most slots evenly. The smallest quota goes first: what it leaves of its share goes to the others.
func evenly(quotas []Quota, most int) []Quota {
	quotas = quotas[:min(len(quotas), most)]
	slices.SortFunc(quotas, func(a, b Quota) int { return cmp.Or(a.Slots-b.Slots, int(a.Queue)-int(b.Queue)) })
	for i := range quotas {
		quotas[i].Slots = min(quotas[i].Slots, most/(len(quotas)-i))
		most -= quotas[i].Slots
	}
	return quotas
}
