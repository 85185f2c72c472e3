package admit

import (
	"time"
)

const (
	// MostAtOnce is the most slots that a tenant gets before the next one's turn, where more tenants wait than fewTenants.
	// To look for one run of each of a hundred tenants costs four times as much as to look for eight runs of each of
	// thirteen.
	MostAtOnce = 8
	// fewTenants is how many tenants a claim may look into without costing much more than if it looked into one.
	fewTenants = BatchSize / MostAtOnce
)

// Contender is a tenant with due work in a queue.
type Contender struct {
	Queue  int16
	Tenant int32
	Weight int       // weight of its share of the queue's worker slots, relative to other tenants
	Oldest time.Time // when its oldest due work was due
}

// TurnOf returns how many slots a tenant gets before the next one's turn, by how many tenants wait for a queue, the
// queue's worker slots, and the slots that a tenant has work for. Among few tenants slots are dealt out one by one.
// Among more, a turn takes at most as much of the queue's slots as leaves turns to few others: in a small queue no
// tenant occupies all slots with slow requests.
func TurnOf(tenants, size, atOnce int) int {
	if tenants <= fewTenants {
		return 1
	}
	return max(1, min(atOnce, size/fewTenants))
}

// InBatches splits quotas into claims of at most BatchSize each. In one claim all quotas name a tenant or none does.
func InBatches(quotas []Quota) (claims [][]Quota) {
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

// ByTurns splits the quota of each queue in which at least two tenants wait into quotas of tenants. The other quotas
// stay as they are and come first, because any tenant may take what becomes due there before the next look.
//
// The free slots of a queue are dealt out one by one, each to the tenant that holds the fewest of the queue's slots
// for its weight. So tenants with enough to do come to hold slots in proportion to their weights, and a tenant that
// has been away is served first. Among equals, such as tenants whose requests end at once, the one goes first that got
// the fewest slots since the last look, and then the one that has waited longest. Where many tenants wait, each gets
// several slots in its turn, as turns says for the queue and the number of tenants.
func ByTurns(
	quotas []Quota, contenders []Contender, turns func(queue int16, tenants int) int, as func(Contender) Claimant,
) []Quota {
	var anybodys, shares []Quota
	for _, q := range quotas {
		var waiting []Claimant
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
func among(waiting []Claimant, q Quota, atOnce int) (shares []Quota) {
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
		waiting[next].Holds += n
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

// Claimant is a contender while slots are shared out.
type Claimant struct {
	Contender
	Holds int // slots of the queue that it holds, including what it gets
	Dealt int // slots that it got since the last look
	gets  int
	room  int // the most that it may get
}

// before orders by held slots and then by dealt ones, both relative to weight, then by age.
func (c Claimant) before(d Claimant) bool {
	if a, b := c.Holds*d.Weight, d.Holds*c.Weight; a != b {
		return a < b
	}
	if a, b := c.Dealt*d.Weight, d.Dealt*c.Weight; a != b {
		return a < b
	}
	return c.Oldest.Before(d.Oldest)
}

// Around shares out the quotas among the waiting tenants, each at most what it may start.
func Around(
	quotas []Quota, contenders []Contender,
	held func(queue int16, tenant int32) int, available func(tenant int32) int,
) (shares []Quota) {
	given := map[int32]int{}
	for _, q := range quotas {
		var waiting []Claimant
		for _, c := range contenders {
			if room := min(available(c.Tenant)-given[c.Tenant], q.Slots); c.Queue == q.Queue && room > 0 {
				waiting = append(waiting, Claimant{Contender: c, Holds: held(q.Queue, c.Tenant), room: room})
			}
		}
		for _, s := range among(waiting, q, 1) {
			shares = append(shares, s)
			given[s.Tenant] += s.Slots
		}
	}
	return shares
}
