package scheduler

import (
	"context"
	"time"
)

const (
	// peekEvery is how long the tenants that were found waiting are taken to be those that wait.
	peekEvery = 250 * time.Millisecond
	// peekShare is how many times as long as it took that is at least: with thousands of tenants the look
	// at them costs milliseconds.
	peekShare = 10
)

// Contender is a tenant with due work in a queue.
type Contender struct {
	Queue  int16
	Tenant int32
	Weight int       // its share of the queue's worker slots, as against other tenants' weights
	Oldest time.Time // when the oldest of that work was due
}

// fairness shares the slots of one kind of claim among tenants. As long as everything due fits in the
// slots it does nothing, and work is claimed in order of due time.
type fairness struct {
	peek       func(ctx context.Context, queues []int16) ([]Contender, error)
	crowded    bool // the last claim took as much as it could: there may be more
	contenders []Contender
	until      time.Time // when to look again who waits
}

// who returns the tenants that wait, while there is more due than a claim can take; else nil.
func (f *fairness) who(ctx context.Context, slots *workerSlots) ([]Contender, error) {
	if !f.crowded {
		return nil, nil
	}
	if began := time.Now(); began.After(f.until) {
		limited, cancel := context.WithTimeout(ctx, tickTimeout)
		defer cancel()
		waiting, err := f.peek(limited, slots.numbers())
		if err != nil {
			f.crowded = false // what is due does not wait for a look that fails
			return nil, err
		}
		f.contenders, f.until = waiting, began.Add(max(peekEvery, peekShare*time.Since(began)))
	}
	return f.contenders, nil
}

// inBatches splits quotas into claims of at most BatchSize each; in one claim all quotas name a tenant or none does.
func inBatches(quotas []Quota) (claims [][]Quota) {
	room := 0
	for i, q := range quotas {
		if i > 0 && (q.Tenant == 0) != (quotas[i-1].Tenant == 0) {
			room = 0
		}
		for q.Slots > 0 {
			if room == 0 {
				claims, room = append(claims, nil), BatchSize
			}
			part := q
			part.Slots = min(q.Slots, room)
			last := &claims[len(claims)-1]
			*last = append(*last, part)
			q.Slots -= part.Slots
			room -= part.Slots
		}
	}
	return claims
}

// share turns quotas of queues in which two tenants wait into quotas of tenants, after those that stay as they are:
// what becomes due in another queue before the next look is anybody's. The free slots of a queue
// go, one after the other, to the tenant that holds the fewest of its slots for its weight: where all have enough to
// do they come to hold slots in proportion to their weights, and one that has been away is served first. Among
// equals, whoever has waited longest.
func share(quotas []Quota, contenders []Contender, held func(queue int16, tenant int32) int) []Quota {
	var anybodys, shares []Quota
	for _, q := range quotas {
		var waiting []claimant
		for _, c := range contenders {
			if c.Queue == q.Queue {
				waiting = append(waiting, claimant{Contender: c, holds: held(q.Queue, c.Tenant), room: q.Slots})
			}
		}
		if len(waiting) < 2 {
			anybodys = append(anybodys, q)
			continue
		}
		shares = append(shares, among(waiting, q)...)
	}
	return append(anybodys, shares...)
}

// among shares out one queue's quota.
func among(waiting []claimant, q Quota) (shares []Quota) {
	for range q.Slots {
		next := -1
		for i, c := range waiting {
			if c.gets < c.room && (next < 0 || c.before(waiting[next])) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		waiting[next].holds++
		waiting[next].gets++
	}
	for _, c := range waiting {
		if c.gets > 0 {
			shares = append(shares, Quota{Queue: q.Queue, Tenant: c.Tenant, Slots: c.gets})
		}
	}
	return shares
}

// claimant is a contender while slots are shared out.
type claimant struct {
	Contender
	holds int // slots of the queue, with those it gets
	gets  int
	room  int // the most that it may get
}

// before orders by holds for the weight, then by age.
func (c claimant) before(d claimant) bool {
	if a, b := c.holds*d.Weight, d.holds*c.Weight; a != b {
		return a < b
	}
	return c.Oldest.Before(d.Oldest)
}
