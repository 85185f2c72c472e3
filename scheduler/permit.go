package scheduler

import (
	"time"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

// permit is what a claimed run has of this replica: a worker slot, one of its tenant's starts and, while its request is
// out, a place at its host. end gives back all but the slot, and release the slot.
type permit struct {
	slots    *workerSlots
	limits   *limits
	holds    *holds
	tenant   int32
	queue    int16
	work     domain.Work
	since    time.Time // when the run was dispatched
	admitted bool      // by its host
	flight   flight    // once admitted
	lent     bool      // its slot was lent to other runs meanwhile
}

// enter gives a claimed run a worker slot, whether one is free or not: its claim has seen to that.
func enter(slots *workerSlots, limits *limits, holds *holds, a domain.Assignment, now time.Time) *permit {
	p := &permit{
		slots: slots, limits: limits, holds: holds,
		tenant: a.Job.Tenant, queue: a.Lane / 4, work: workOf(a), since: now,
	}
	slots.take(p.queue, p.tenant, p.work)
	return p
}

// admit asks whether the run's host may be sent its request now. If not, it returns what the run has to wait for.
func (p *permit) admit(a domain.Assignment, now time.Time) (wait *breaker.Wait) {
	// By the job's URL: placeholders would make each path another one.
	p.flight, wait = p.holds.admit(a, a.Job.URL(), now)
	p.admitted = wait == nil
	return wait
}

// end tells the host's breaker how the request ended. It returns the tenant's start if nothing was sent.
func (p *permit) end(r wire.Result, sent bool) {
	if p.admitted {
		p.lent = p.holds.done(p.flight, r)
	}
	if !sent {
		p.limits.sentNothing(p.tenant, p.since)
	}
}

// release gives the worker slot back.
func (p *permit) release() { p.slots.release(p.queue, p.tenant, p.work, p.lent) }
