package scheduler

import (
	"context"
	"slices"
	"time"

	"punctual/scheduler/admit"

	"punctual/scheduler/domain"
)

const (
	// lookAround is the longest sleep of the tick loop while a tenant is held back.
	lookAround = 250 * time.Millisecond
	// aroundSoonest is the shortest time between two looks at the waiting tenants, and olderAroundSoonest between two
	// looks at the tenants with late slots.
	aroundSoonest      = 20 * time.Millisecond
	olderAroundSoonest = 250 * time.Millisecond
	// overlap is how far before the last look a claim of newly due work reaches back, because the two statements may
	// have taken unlike times to arrive. The next look finds what slips through.
	overlap = 50 * time.Millisecond
)

// heedLimits looks up which tenants are held back. Their backlog may be huge, and a claim in due order would scan all
// of it every tick. So while there are such tenants, the loop claims tenant by tenant, for the tenants that a look
// found waiting. For all other tenants it claims only what became due since that look.
func (t *ticker) heedLimits() {
	held := t.s.admission.Limits.HeldBack()
	if (len(held) > 0) != (len(t.held) > 0) {
		for of := range t.fair {
			t.fair[of].forget()
		}
		t.wantsLook, t.olderAt = true, time.Time{}
	}
	t.held = held
}

// freshen notes, at a look, of which kinds of work something has become due that the last look saw coming: this look
// ignores it. Work that other replicas write and that is due at once is found by the next look at the waiting tenants.
func (t *ticker) freshen(now time.Time) {
	for of, due := range t.foreseen(now) {
		t.fresh[of] = t.fresh[of] || due || t.written
	}
}

// claimAround claims one kind of work while tenants are held back.
func (t *ticker) claimAround(ctx context.Context, of domain.Work, sum *claimed) error {
	soonest := aroundSoonest
	if of == domain.WorkLate {
		soonest = olderAroundSoonest
	}
	fair := &t.fair[of]
	looked, err := fair.look(ctx, t.s.admission.Slots, soonest)
	if err != nil {
		return err
	}
	if looked {
		t.fresh[of] = false
		t.s.admission.Limits.Saw(of, fair.contenders)
	}
	if err := t.claimOfWaiters(ctx, of, sum); err != nil {
		return err
	}
	more := t.able(fair)
	anybodys := t.s.admission.Slots.Quotas(of, admit.BatchSize, nil)
	if len(anybodys) > 0 && t.fresh[of] && of != domain.WorkLate && !t.othersWait(fair) {
		// The last look did not see what has become due since. Of tenants that are not held back, it is claimed here. If
		// nothing has, no claim is made: at the end of each request it would be one more transaction that finds nothing.
		fresh := Claim{Except: t.held, Since: time.Since(fair.looked) + overlap}
		r := &round{claims: admit.InBatches(anybodys)}
		if err := t.claimAll(ctx, of, fresh, r, sum); err != nil {
			return err
		}
		t.fresh[of] = len(r.full) > 0
		more = append(more, r.full...)
	}
	t.s.admission.Slots.Found(of, t.s.admission.Slots.Numbers(), more)
	return nil
}

// claimOfWaiters claims what the waiting tenants may start. A tenant that had less due than that waits no more.
func (t *ticker) claimOfWaiters(ctx context.Context, of domain.Work, sum *claimed) error {
	fair := &t.fair[of]
	quotas := t.s.admission.Slots.Quotas(of, admit.BatchSize, fair.contenders)
	shares := admit.Around(quotas, fair.contenders, t.s.admission.Slots.Held, t.s.admission.Limits.Available)
	began := time.Now()
	r := &round{claims: admit.InBatches(shares)}
	if err := t.claimAll(ctx, of, Claim{}, r, sum); err != nil || len(r.full) > 0 {
		return err
	}
	fair.contenders = slices.DeleteFunc(fair.contenders, func(c admit.Contender) bool {
		return slices.ContainsFunc(shares, func(q admit.Quota) bool { return q.Queue == c.Queue && q.Tenant == c.Tenant })
	})
	for _, q := range shares {
		if !slices.ContainsFunc(fair.contenders, func(c admit.Contender) bool { return c.Tenant == q.Tenant }) {
			t.s.admission.Limits.GotAll(q.Tenant, of, began)
		}
	}
	return nil
}

// restAround returns how long to sleep after the claims of a tick while tenants are held back.
func (t *ticker) restAround(sum claimed, now time.Time) (wait time.Duration, wake <-chan struct{}) {
	more := slices.ContainsFunc(t.fair[:], func(f fairness) bool { return len(t.able(&f)) > 0 })
	if sum.settled > 0 && (sum.full || more) {
		return 0, nil
	}
	wait = min(t.untilFetch(t.untilNext(now)), t.s.admission.Limits.DrawIn(domain.About(lookAround)))
	return max(wait, shortestPause), t.s.admission.Slots.Released
}

// able returns the queues in which a tenant waits that may start something.
func (t *ticker) able(f *fairness) (queues []int16) {
	for _, c := range f.contenders {
		if t.s.admission.Limits.Available(c.Tenant) > 0 {
			queues = append(queues, c.Queue)
		}
	}
	return queues
}

// othersWait reports whether a tenant waits that is not held back.
func (t *ticker) othersWait(f *fairness) bool {
	return slices.ContainsFunc(f.contenders, func(c admit.Contender) bool {
		_, is := slices.BinarySearch(t.held, c.Tenant)
		return !is
	})
}
