package admit

import (
	"log/slog"
	"time"

	"punctual/scheduler/breaker"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

// Admission is what lets runs in: the worker slots of this replica, its share of tenants' limits, and the hosts that
// hold runs back.
type Admission struct {
	Slots  *Slots
	Limits *Limits
	Holds  *Holds
}

// New returns an Admission with these worker slots. Changed is called when something is newly held back, or no longer
// is.
func New(slots *Slots, log *slog.Logger, changed func()) Admission {
	return Admission{Slots: slots, Limits: newLimits(slots), Holds: &Holds{
		Breakers: breaker.New(log), Hangs: breaker.NewHangs(log), sizes: slots.Sizes, Changed: changed,
	}}
}

// Permit is what a claimed run has of this replica: a worker slot, one of its tenant's starts and, while its request is
// out, a place at its host. End gives back all but the slot, and Release the slot.
type Permit struct {
	of       *Admission
	tenant   int32
	queue    int16
	work     domain.Work
	since    time.Time // when the run was dispatched
	admitted bool      // by its host
	flight   Flight    // once admitted
	lent     bool      // its slot was lent to other runs meanwhile
}

// Enter gives a claimed run a worker slot, whether one is free or not: its claim has seen to that.
func (a *Admission) Enter(run domain.Assignment, now time.Time) *Permit {
	p := &Permit{of: a, tenant: run.Job.Tenant, queue: run.Lane / 4, work: workOf(run), since: now}
	a.Slots.Take(p.queue, p.tenant, p.work)
	return p
}

// Admit asks whether the run's host may be sent its request now. If not, it returns what the run has to wait for.
func (p *Permit) Admit(a domain.Assignment, now time.Time) (wait *breaker.Wait) {
	// By the job's URL: placeholders would make each path another one.
	p.flight, wait = p.of.Holds.Admit(a, a.Job.URL(), now)
	p.admitted = wait == nil
	return wait
}

// End tells the host's breaker how the request ended. It returns the tenant's start if nothing was sent.
func (p *Permit) End(r wire.Result, sent bool) {
	if p.admitted {
		p.lent = p.of.Holds.Done(p.flight, r)
	}
	if !sent {
		p.of.Limits.sentNothing(p.tenant, p.since)
	}
}

// Release gives the worker slot back.
func (p *Permit) Release() { p.of.Slots.Release(p.queue, p.tenant, p.work, p.lent) }

// Lend lends the worker slots of requests that take very long to other runs. It returns of how many it did.
func (a *Admission) Lend() int {
	lent := a.Holds.Hangs.Long()
	for _, l := range lent {
		a.Slots.lend(l.Queue, domain.Work(l.Work), 1)
	}
	if len(lent) > 0 {
		a.Slots.wake()
	}
	return len(lent)
}
