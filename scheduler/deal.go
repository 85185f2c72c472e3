package scheduler

import (
	"cmp"
	"slices"
)

// deal cuts what queues have free down to so many runs in all, shared out evenly where they ask for more; where there are
// more queues than runs, the last get none. Where it is known who waits, the queues in which nobody does have half of it
// at most, in case that somebody has come meanwhile: a replica may serve hundreds of queues, and a claim that is cut up
// for all of them alike would bring a single run of the one that has something to do.
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
	for _, q := range idle {
		most -= q.Slots
	}
	return append(evenly(asked, most), idle...)
}

// evenly shares out so many runs. Smallest first: what it leaves of its share goes to the others.
func evenly(quotas []Quota, most int) []Quota {
	quotas = quotas[:min(len(quotas), most)]
	slices.SortFunc(quotas, func(a, b Quota) int { return cmp.Or(a.Slots-b.Slots, int(a.Queue)-int(b.Queue)) })
	for i := range quotas {
		quotas[i].Slots = min(quotas[i].Slots, most/(len(quotas)-i))
		most -= quotas[i].Slots
	}
	return quotas
}
