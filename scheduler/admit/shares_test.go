package admit

import (
	"math/rand/v2"
	"testing"

	"punctual/scheduler/domain"
)

// crowd is a queue with work that comes and goes. It is claimed as the tick loop does it: each kind in turn takes what
// there is room for, and what is left is wanted.
type crowd struct {
	t       *testing.T
	seed    uint64
	rand    *rand.Rand
	slots   *Slots
	size    int
	waiting perKind
}

func (c *crowd) queue() *queueSlots { return &c.slots.queues[0] }

// claim claims a kind of work: by one claim, or by two side by side, of which the second counts on what the first has
// not promised to itself.
func (c *crowd) claim(of domain.Work) (started int) {
	var asked []Quota
	for range 1 + c.rand.IntN(2) {
		quotas := c.slots.Quotas(of, BatchSize, nil)
		c.slots.Promise(of, quotas, 1)
		asked = append(asked, quotas...)
	}
	var looked, more []int16
	for _, quota := range asked {
		looked = []int16{1}
		n := min(quota.Slots, c.waiting[of])
		c.slots.Promise(of, []Quota{quota}, -1)
		for range n {
			c.slots.Take(1, 1, of)
		}
		if n == quota.Slots {
			more = []int16{1}
		}
		c.waiting[of] -= n
		started += n
	}
	c.slots.Found(of, looked, more)
	c.bounded(of, started)
	return started
}

// tick looks what there is, and claims all kinds, in any order, until nothing more starts.
func (c *crowd) tick() {
	for started := 1; started > 0; {
		started = 0
		for of, n := range c.waiting {
			if n == 0 {
				c.slots.FoundNone(domain.Work(of), []int16{1})
			}
		}
		for _, of := range c.rand.Perm(int(domain.WorkKinds)) {
			if c.waiting[of] > 0 {
				started += c.claim(domain.Work(of))
			}
		}
	}
	c.settled()
}

// bounded checks what holds after any claim.
func (c *crowd) bounded(of domain.Work, started int) {
	extra := reserve(domain.WorkReady, c.size) + reserve(domain.WorkOrdered, c.size)
	if -c.queue().free() > extra {
		c.fail("more runs are in flight than slots and %d", extra)
	}
	kept := c.size - reserve(domain.WorkDue, c.size)
	if late := c.queue().inFlight[domain.WorkLate]; of == domain.WorkLate && started > 0 && late > kept {
		c.fail("late work has the reserve of what is due")
	}
}

// settled checks what holds once a tick has claimed: nothing waits, except for slots that are kept for others.
func (c *crowd) settled() {
	q, in, waits := c.queue(), c.queue().inFlight, func(of domain.Work) bool { return c.waiting[of] > 0 }
	unused := func(of domain.Work) int { return max(0, reserve(of, c.size)-in[of]) }
	due, late, ready := unused(domain.WorkDue), unused(domain.WorkLate), unused(domain.WorkReady)
	keptFrom := perKind{
		domain.WorkDue: 0, domain.WorkLate: due, domain.WorkReady: due + late, domain.WorkOrdered: due + late + ready,
	}
	for of, kept := range keptFrom {
		if waits(domain.Work(of)) && q.free() > kept {
			c.fail("work of kind %d waits though slots are free", of)
		}
	}
	if waits(domain.WorkDue) && q.room(domain.WorkLate) > 0 {
		c.fail("a slot that is due waits until it is late")
	}
	for of := range domain.WorkKinds {
		// Slots that are due may have taken what late ones would have: both are the same work.
		beside := 0
		if of == domain.WorkLate {
			beside = max(0, in[domain.WorkDue]-reserve(domain.WorkDue, c.size))
		}
		if waits(of) && in[of]+beside < reserve(of, c.size) {
			c.fail("the first runs of kind %d wait", of)
		}
	}
}

func (c *crowd) fail(format string, arguments ...any) {
	c.t.Helper()
	c.t.Errorf("seed %d, %d slots, in flight %v, waiting %v, wanted %v:", c.seed, c.size, c.queue().inFlight, c.waiting,
		c.queue().wanted)
	c.t.Fatalf(format, arguments...)
}

// end ends some runs of a kind.
func (c *crowd) end(of domain.Work, n int) {
	for range min(n, c.queue().inFlight[of]) {
		c.slots.Release(1, 1, of, false)
	}
}

// crowds calls test with queues of 4 to 500 slots, most of them small.
func crowds(t *testing.T, histories uint64, test func(c *crowd)) {
	t.Helper()
	for seed := range histories {
		c := &crowd{t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 0))}
		c.size = 4 + c.rand.IntN(20)
		if seed%3 == 0 {
			c.size = 4 + c.rand.IntN(497)
		}
		c.slots = occupied([]int{c.size})
		test(c)
	}
}

// Work of all kinds comes and goes. Unneeded reserves keep nothing waiting.
//
//prove:limits
func TestNothingWaitsForReservesThatNobodyNeeds(t *testing.T) {
	t.Parallel()
	crowds(t, 600, func(c *crowd) {
		for range 60 {
			of := domain.Work(c.rand.IntN(int(domain.WorkKinds)))
			most := 1 + c.rand.IntN(2*c.size)
			switch c.rand.IntN(3) {
			case 0:
				c.waiting[of] += 1 + c.rand.IntN(most)
			case 1:
				c.end(of, 1+c.rand.IntN(most))
			default:
				c.waiting[of] = min(c.waiting[of], c.rand.IntN(3)) // others have claimed the rest
			}
			c.tick()
		}
	})
}

// While all kinds have work, each has its share, regardless of earlier runs.
//
//prove:limits
func TestEachKindComesToItsShare(t *testing.T) {
	t.Parallel()
	crowds(t, 60, func(c *crowd) {
		before := domain.Work(c.rand.IntN(int(domain.WorkKinds)))
		c.waiting[before] = c.rand.IntN(2 * c.size)
		c.tick()
		c.waiting = perKind{1e6, 1e6, 1e6, 1e6}
		c.tick()
		for range 40 * c.size { // runs end in any order, often several at once
			of := c.rand.IntN(c.size)
			for kind, n := range c.queue().inFlight {
				if of -= n; of < 0 {
					c.end(domain.Work(kind), 1)
					break
				}
			}
			if c.rand.IntN(8) == 0 {
				c.tick()
			}
		}
		c.tick()
		for of, n := range c.queue().inFlight {
			if n < shareOf(domain.Work(of), c.size) && c.size >= 8 {
				c.fail("kind %d has %d slots, and its share is %d", of, n, shareOf(domain.Work(of), c.size))
			}
		}
	})
}
