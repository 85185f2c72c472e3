package scheduler

import (
	"math/rand/v2"
	"slices"
	"sync"

	"punctual/scheduler/domain"
)

// workerSlots counts what each queue of this replica may still take on. A replica claims only as much as it has free
// slots for, so no claimed run waits in memory while another replica idles.
type workerSlots struct {
	mu       sync.Mutex
	queues   []queueSlots // sorted by number
	released chan struct{}
}

type queueSlots struct {
	queue    int16
	name     string
	size     int
	inFlight [domain.WorkKinds]int  // requests that occupy a slot
	lent     int                    // further requests in flight: they took so long that their slots were lent to others
	wanted   [domain.WorkKinds]bool // more is due than was claimed
	tenants  map[int32]int
}

func newWorkerSlots(sizes map[string]int, numbers map[string]int16) *workerSlots {
	w := &workerSlots{released: make(chan struct{}, 1)}
	for name, size := range sizes {
		w.queues = append(w.queues, queueSlots{queue: numbers[name], name: name, size: size, tenants: map[int32]int{}})
	}
	slices.SortFunc(w.queues, func(a, b queueSlots) int { return int(a.queue) - int(b.queue) })
	return w
}

// quotas returns how many runs of a kind of work each queue can take now, at most most in all; see deal.
func (w *workerSlots) quotas(of domain.Work, most int, waiting []Contender) []Quota {
	w.mu.Lock()
	defer w.mu.Unlock()
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

// found records in which queues more of a kind of work is due than was claimed. Those are the queues in more. They
// also include, as far as can be told, the queues that were not looked into and had no slot for the work.
func (w *workerSlots) found(of domain.Work, looked, more []int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		q := &w.queues[i]
		q.wanted[of] = slices.Contains(more, q.queue) || !slices.Contains(looked, q.queue) && q.room(of) == 0
	}
}

// foundNone records that nothing of a kind of work was due in some queues.
func (w *workerSlots) foundNone(of domain.Work, queues []int16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.queues {
		if q := &w.queues[i]; slices.Contains(queues, q.queue) {
			q.wanted[of] = false
		}
	}
}

// starved reports whether a kind of work waits in some queue without a slot there.
func (w *workerSlots) starved(of domain.Work) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.queues, func(q queueSlots) bool { return q.starved(of) })
}

// take occupies a slot. There may be more runs than slots when a claim brought several catch-up runs of one job.
func (w *workerSlots) take(queue int16, tenant int32, of domain.Work) { w.change(queue, tenant, of, 1) }

// release gives a slot back and wakes a loop that waits for one. lent says that the slot had been lent to others.
func (w *workerSlots) release(queue int16, tenant int32, of domain.Work, lent bool) {
	w.change(queue, tenant, of, -1)
	if lent {
		w.lend(queue, of, -1)
	}
	w.wake()
}

// lend lends the slots of some requests in flight to others; a negative number takes slots back.
func (w *workerSlots) lend(queue int16, of domain.Work, by int) {
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
func (w *workerSlots) wake() {
	select {
	case w.released <- struct{}{}:
	default: // it has been woken already
	}
}

// sizes returns how many worker slots each queue has, by its number.
func (w *workerSlots) sizes() map[int16]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sizes := make(map[int16]int, len(w.queues))
	for _, q := range w.queues {
		sizes[q.queue] = q.size
	}
	return sizes
}

func (w *workerSlots) change(queue int16, tenant int32, of domain.Work, by int) {
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

// held is how many slots of a queue a tenant's runs occupy.
func (w *workerSlots) held(queue int16, tenant int32) int {
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
func (w *workerSlots) ofTenant(tenant int32) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		n += q.tenants[tenant]
	}
	return n
}

// all is how many worker slots the replica has.
func (w *workerSlots) all() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		n += q.size
	}
	return n
}

// numbers returns the numbers of all queues.
func (w *workerSlots) numbers() []int16 {
	w.mu.Lock()
	defer w.mu.Unlock()
	numbers := make([]int16, len(w.queues))
	for i, q := range w.queues {
		numbers[i] = q.queue
	}
	return numbers
}

// open returns the numbers of the queues to look into for a kind of work. others says that queues without a slot for
// it were left out: what is due there must not delay the rest. A single queue is never left out.
func (w *workerSlots) open(of domain.Work) (numbers []int16, others bool) {
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

// each calls visit with every queue's name, size and runs in flight.
func (w *workerSlots) each(visit func(name string, size, inFlight int)) {
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
