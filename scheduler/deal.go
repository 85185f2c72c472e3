package scheduler

import (
	"cmp"
	"slices"
)

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
	return append(evenly(asked, most-total(idle)), idle...)
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
