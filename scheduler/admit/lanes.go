package admit

import (
	"math"
	"slices"

	"punctual/scheduler/domain"
)

// ForHeld returns the lanes from which runs that wait for their hosts may be claimed, and the most runs that a queue
// can take. queue 0 stands for all queues. all is false when lanes without a free worker slot were left out: more runs
// may wait there.
func (w *Slots) ForHeld(queue int16) (lanes []int16, most int, all bool) {
	queues := 1
	if queue == 0 {
		queues = len(w.Numbers())
	}
	all = true
	for _, of := range []domain.Work{domain.WorkReady, domain.WorkOrdered} {
		free := w.Quotas(of, math.MaxInt, nil)
		if queue != 0 {
			free = slices.DeleteFunc(free, func(q Quota) bool { return q.Queue != queue })
		}
		for _, q := range free {
			lanes = append(lanes, of.Lanes(q.Queue)...)
			most = max(most, q.Slots)
		}
		all = all && len(free) == queues
	}
	return lanes, most, all
}
