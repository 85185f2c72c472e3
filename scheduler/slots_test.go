package scheduler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// occupied returns worker slots of queues 1, 2, … with the given sizes, of which some are taken.
func occupied(sizes, inFlight, older []int) *workerSlots {
	names := []string{"a", "b", "c", "d"}
	bySize, numbers := map[string]int{}, map[string]int16{}
	for i, size := range sizes {
		bySize[names[i]], numbers[names[i]] = size, int16(i+1)
	}
	w := newWorkerSlots(bySize, numbers)
	for i, n := range inFlight {
		for j := range n {
			w.take(int16(i+1), 1, older != nil && j < older[i])
		}
	}
	return w
}

func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		name                   string
		sizes, inFlight, older []int
		want, wantOlder        map[int16]int
	}{
		{name: "one queue gets a batch", sizes: []int{500}, want: map[int16]int{1: 100}, wantOlder: map[int16]int{1: 100}},
		{name: "a small queue gets what it has", sizes: []int{7}, want: map[int16]int{1: 7}, wantOlder: map[int16]int{1: 3}},
		{name: "a queue of one may hold backlog", sizes: []int{1}, want: map[int16]int{1: 1}, wantOlder: map[int16]int{1: 1}},
		{name: "what is in flight is not free", sizes: []int{50}, inFlight: []int{48}, want: map[int16]int{1: 2}, wantOlder: map[int16]int{1: 2}},
		{name: "a full queue gets nothing", sizes: []int{50}, inFlight: []int{50}},
		{name: "an overfull one neither", sizes: []int{50}, inFlight: []int{60}},
		{name: "two queues share a batch", sizes: []int{500, 500}, want: map[int16]int{1: 50, 2: 50}, wantOlder: map[int16]int{1: 50, 2: 50}},
		{name: "what a small queue leaves goes to the large", sizes: []int{500, 10}, want: map[int16]int{1: 90, 2: 10}, wantOlder: map[int16]int{1: 95, 2: 5}},
		{name: "a full queue leaves all to the other", sizes: []int{500, 10}, inFlight: []int{0, 10}, want: map[int16]int{1: 100}, wantOlder: map[int16]int{1: 100}},
		{name: "four share", sizes: []int{500, 500, 30, 10}, want: map[int16]int{1: 30, 2: 30, 3: 30, 4: 10}, wantOlder: map[int16]int{1: 40, 2: 40, 3: 15, 4: 5}},
		{name: "backlog holds half of the slots at most", sizes: []int{20}, inFlight: []int{10}, older: []int{10}, want: map[int16]int{1: 10}},
		{name: "backlog in flight counts towards its half", sizes: []int{20}, inFlight: []int{8}, older: []int{4}, want: map[int16]int{1: 12}, wantOlder: map[int16]int{1: 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := occupied(c.sizes, c.inFlight, c.older)
			for _, of := range []struct {
				which string
				got   []Quota
				want  map[int16]int
			}{{"quotas", w.quotas(BatchSize, nil), c.want}, {"of backlog", w.olderQuotas(BatchSize, nil), c.wantOlder}} {
				got, sum := map[int16]int{}, 0
				for _, q := range of.got {
					got[q.Queue] = q.Slots
					sum += q.Slots
				}
				if of.want == nil {
					of.want = map[int16]int{}
				}
				if diff := cmp.Diff(of.want, got); diff != "" {
					t.Errorf("%s, -want +got:\n%s", of.which, diff)
				}
				if sum > BatchSize {
					t.Errorf("%s: %d, more than a batch", of.which, sum)
				}
			}
		})
	}
}

func TestReleasedSlotsWakeAndAreFreeAgain(t *testing.T) {
	t.Parallel()
	w := occupied([]int{2}, []int{2}, []int{1})
	w.release(1, 1, true, false)
	w.release(1, 1, false, false)
	select {
	case <-w.released:
	default:
		t.Error("nobody is told")
	}
	if diff := cmp.Diff([]Quota{{Queue: 1, Slots: 2}}, w.quotas(BatchSize, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]Quota{{Queue: 1, Slots: 1}}, w.olderQuotas(BatchSize, nil)); diff != "" {
		t.Errorf("of backlog, -want +got:\n%s", diff)
	}
}
