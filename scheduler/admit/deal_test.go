package admit

import (
	"slices"
	"testing"

	"punctual/scheduler/domain"
)

// queuesOfAHundred returns the worker slots of queues that have 100 slots each.
func queuesOfAHundred(queues int) *Slots { return occupied(slices.Repeat([]int{100}, queues)) }

// A replica serves 150 queues. Each gets its turn in the claims.
//
//prove:limits
func TestNoQueueIsLeftOutForGood(t *testing.T) {
	t.Parallel()
	for _, queues := range []int{2, 99, 100, 101, 150, 1000} {
		for name, waiting := range map[string][]Contender{
			"nobody is known to wait": nil, "somebody is": {{Queue: 1}, {Queue: 2}},
		} {
			w, offered := queuesOfAHundred(queues), map[int16]bool{}
			for tries := 0; len(offered) < queues; tries++ {
				if tries == 10_000 {
					t.Fatalf("%s: %d of %d queues are never offered anything", name, queues-len(offered), queues)
				}
				quotas := w.Quotas(domain.WorkDue, BatchSize, waiting)
				for _, q := range quotas {
					offered[q.Queue] = true
				}
				if sum := Total(quotas); sum != BatchSize {
					t.Fatalf("%s: of %d queues %d runs are asked for, want %d", name, queues, sum, BatchSize)
				}
			}
		}
	}
}

func TestAQueueInWhichSomebodyWaitsHasHalfOfAClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		queues  int
		waiting []Contender
		want    int // slots for queue 1
	}{
		{1, []Contender{{Queue: 1}}, BatchSize},
		{2, []Contender{{Queue: 1}}, BatchSize / 2},
		{100, []Contender{{Queue: 1}}, BatchSize / 2},
		{500, []Contender{{Queue: 1}, {Queue: 1, Tenant: 2}}, BatchSize / 2},
		{500, []Contender{{Queue: 1}, {Queue: 2}}, BatchSize / 4},
		{2, []Contender{{Queue: 1}, {Queue: 2}}, BatchSize / 2},
	} {
		got := 0
		for _, q := range queuesOfAHundred(c.queues).Quotas(domain.WorkDue, BatchSize, c.waiting) {
			if q.Queue == 1 {
				got = q.Slots
			}
		}
		if got != c.want {
			t.Errorf("of %d queues, with %d contenders, the first is offered %d, want %d", c.queues, len(c.waiting), got, c.want)
		}
	}
}
