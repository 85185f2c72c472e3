package scheduler

import (
	"context"
	"time"
)

const (
	// peekEvery is the shortest time between two looks at the waiting tenants.
	peekEvery = 250 * time.Millisecond
	// peekShare makes that time at least so many times as long as a look took: with thousands of tenants a look takes
	// milliseconds.
	peekShare = 10
	// mostAtOnce is the most slots that a tenant gets before the next one's turn, where more tenants wait than fewTenants.
	// To look for one run of each of a hundred tenants costs four times as much as to look for eight runs of each of
	// thirteen.
	mostAtOnce = 8
	// fewTenants is how many tenants a claim may look into without costing much more than if it looked into one.
	fewTenants = BatchSize / mostAtOnce
)

// Contender is a tenant with due work in a queue.
type Contender struct {
	Queue  int16
	Tenant int32
	Weight int       // weight of its share of the queue's worker slots, relative to other tenants
	Oldest time.Time // when its oldest due work was due
}

// fairness shares the slots of one kind of work among tenants. While everything due fits in the slots it does
// nothing, and work is claimed in order of due time.
type fairness struct {
	peek       func(ctx context.Context, queues []int16) ([]Contender, error)
	crowded    bool // the last claim took all it could, so there may be more
	recent     bool // the last claim was of recent slots, so the next one is of the whole backlog
	contenders []Contender
	looked     time.Time    // when the last look at the waiting tenants began
	until      time.Time    // when to look again
	dealt      map[turn]int // slots that tenants got since the last look
	atOnce     int          // slots that a tenant has work for in its turn; at most mostAtOnce
}

// turn is a tenant that waits in a queue.
type turn struct {
	queue  int16
	tenant int32
}

// who returns the waiting tenants, while more is due than a claim can take; else nil.
func (f *fairness) who(ctx context.Context, slots *workerSlots) ([]Contender, error) {
	if !f.crowded {
		return nil, nil
	}
	if _, err := f.look(ctx, slots, peekEvery); err != nil {
		f.crowded = false // a failed look does not delay due work
		return nil, err
	}
	return f.contenders, nil
}

// look looks up the waiting tenants, unless it has done so a moment ago. It reports whether it has looked now.
func (f *fairness) look(ctx context.Context, slots *workerSlots, soonest time.Duration) (looked bool, err error) {
	began := time.Now()
	if !began.After(f.until) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	waiting, err := f.peek(ctx, slots.numbers())
	if err != nil {
		return false, err
	}
	f.contenders, f.looked, f.until = waiting, began, began.Add(max(soonest, peekShare*time.Since(began)))
	f.dealt = map[turn]int{}
	return true, nil
}

// forget has the next look made anew.
func (f *fairness) forget() { f.contenders, f.until = nil, time.Time{} }

// share shares out quotas among the waiting tenants.
func (f *fairness) share(quotas []Quota, waiting []Contender, slots *workerSlots) []Quota {
	turns := func(queue int16, tenants int) int { return turnOf(tenants, slots.sizes[queue], f.atOnce) }
	shares := share(quotas, waiting, turns, func(c Contender) claimant {
		return claimant{
			Contender: c, holds: slots.held(c.Queue, c.Tenant), dealt: f.dealt[turn{c.Queue, c.Tenant}],
		}
	})
	for _, q := range shares {
		if q.Tenant != 0 {
			f.dealt[turn{q.Queue, q.Tenant}] += q.Slots
		}
	}
	return shares
}

// turnOf returns how many slots a tenant gets before the next one's turn, by how many tenants wait for a queue, the
// queue's worker slots, and the slots that a tenant has work for. Among few tenants slots are dealt out one by one.
// Among more, a turn takes at most as much of the queue's slots as leaves turns to few others: in a small queue no
// tenant occupies all slots with slow requests.
func turnOf(tenants, size, atOnce int) int {
	if tenants <= fewTenants {
		return 1
	}
	return max(1, min(atOnce, size/fewTenants))
}

// learn takes how many runs a claim brought of those that were asked for. While tenants have as much due as they are
// given at once, they are given more.
func (f *fairness) learn(asked, got int) {
	switch {
	case got*10 >= asked*9:
		f.atOnce = min(max(1, f.atOnce)*2, mostAtOnce)
	case got*2 < asked:
		f.atOnce /= 2
	}
}

// inBatches splits quotas into claims of at most BatchSize each. In one claim all quotas name a tenant or none does.
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

// share splits the quota of each queue in which at least two tenants wait into quotas of tenants. The other quotas
// stay as they are and come first, because any tenant may take what becomes due there before the next look.
//
// The free slots of a queue are dealt out one by one, each to the tenant that holds the fewest of the queue's slots
// for its weight. So tenants with enough to do come to hold slots in proportion to their weights, and a tenant that
// has been away is served first. Among equals, such as tenants whose requests end at once, the one goes first that got
// the fewest slots since the last look, and then the one that has waited longest. Where many tenants wait, each gets
// several slots in its turn, as turns says for the queue and the number of tenants.
func share(
	quotas []Quota, contenders []Contender, turns func(queue int16, tenants int) int, as func(Contender) claimant,
) []Quota {
	var anybodys, shares []Quota
	for _, q := range quotas {
		var waiting []claimant
		for _, c := range contenders {
			if c.Queue == q.Queue {
				w := as(c)
				w.room = q.Slots
				waiting = append(waiting, w)
			}
		}
		if len(waiting) < 2 {
			anybodys = append(anybodys, q)
			continue
		}
		shares = append(shares, among(waiting, q, turns(q.Queue, len(waiting)))...)
	}
	return append(anybodys, shares...)
}

// among shares out one queue's quota among the waiting tenants, atOnce slots at a time.
func among(waiting []claimant, q Quota, atOnce int) (shares []Quota) {
	for left := q.Slots; left > 0; {
		next := -1
		for i, c := range waiting {
			if c.gets < c.room && (next < 0 || c.before(waiting[next])) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		n := min(atOnce, left, waiting[next].room-waiting[next].gets)
		waiting[next].holds += n
		waiting[next].gets += n
		left -= n
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
	holds int // slots of the queue that it holds, including what it gets
	dealt int // slots that it got since the last look
	gets  int
	room  int // the most that it may get
}

// before orders by held slots and then by dealt ones, both relative to weight, then by age.
func (c claimant) before(d claimant) bool {
	if a, b := c.holds*d.Weight, d.holds*c.Weight; a != b {
		return a < b
	}
	if a, b := c.dealt*d.Weight, d.dealt*c.Weight; a != b {
		return a < b
	}
	return c.Oldest.Before(d.Oldest)
}
