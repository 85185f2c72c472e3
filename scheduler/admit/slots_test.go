package admit

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/scheduler/domain"
)

// perKind is a number for each kind of work: due now, ready, late, ordered.
type perKind = [domain.WorkKinds]int

// occupied returns the worker slots of queues 1, 2, … with the given sizes, some of them taken by runs.
func occupied(sizes []int, taken ...perKind) *Slots {
	bySize, numbers := map[string]int{}, map[string]int16{}
	for i, size := range sizes {
		name := fmt.Sprint("q", i)
		bySize[name], numbers[name] = size, int16(i+1)
	}
	w := NewSlots(bySize, numbers, 0)
	for i, runs := range taken {
		for of, n := range runs {
			for range n {
				w.Take(int16(i+1), 1, domain.Work(of))
			}
		}
	}
	return w
}

func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		taken []perKind
		want  map[int16]int // the quotas for slots that are due now
	}{
		{name: "one queue gets a batch", sizes: []int{500}, want: map[int16]int{1: 100}},
		{name: "a small queue gets what it has", sizes: []int{10}, want: map[int16]int{1: 10}},
		{name: "what is in flight is not free", sizes: []int{50}, taken: []perKind{{45}}, want: map[int16]int{1: 5}},
		{name: "a full queue gets nothing", sizes: []int{50}, taken: []perKind{{50}}, want: map[int16]int{}},
		{name: "an overfull one neither", sizes: []int{50}, taken: []perKind{{60}}, want: map[int16]int{}},
		{name: "two queues share a batch", sizes: []int{500, 500}, want: map[int16]int{1: 50, 2: 50}},
		{name: "what a small queue leaves goes to the large", sizes: []int{500, 10}, want: map[int16]int{1: 90, 2: 10}},
		{
			name:  "a full queue leaves all to the other",
			sizes: []int{500, 10}, taken: []perKind{{}, {10}}, want: map[int16]int{1: 100},
		},
		{name: "four share", sizes: []int{500, 500, 30, 10}, want: map[int16]int{1: 30, 2: 30, 3: 30, 4: 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			quotas, got := occupied(c.sizes, c.taken...).Quotas(domain.WorkDue, BatchSize, nil), map[int16]int{}
			for _, q := range quotas {
				got[q.Queue] = q.Slots
			}
			if diff := cmp.Diff(c.want, got); diff != "" || Total(quotas) > BatchSize {
				t.Errorf("%d in all; -want +got:\n%s", Total(quotas), diff)
			}
		})
	}
}

func TestRoomOfTheKindsOfWork(t *testing.T) {
	none, all := [domain.WorkKinds]bool{}, [domain.WorkKinds]bool{true, true, true, true}
	for _, c := range []struct {
		name   string
		size   int
		runs   perKind
		wanted [domain.WorkKinds]bool
		want   perKind
	}{
		{"an idle queue is anybody's but for the reserves of more urgent work", 64, perKind{}, none, perKind{64, 55, 56, 54}},
		{"each has its share when all are wanted", 64, perKind{}, all, perKind{24, 16, 16, 8}},
		{
			"whoever has more than its share gets none while others want theirs",
			64,
			perKind{40, 3, 3, 3},
			all,
			perKind{0, 13, 13, 5},
		},
		{"and what is free when they do not", 64, perKind{40, 3, 3, 3}, none, perKind{15, 15, 15, 15}},
		{"the first of a kind finds a slot", 64, perKind{0, 0, 0, 54}, none, perKind{10, 1, 2, 0}},
		{"also in a small queue", 10, perKind{0, 0, 0, 7}, none, perKind{3, 1, 2, 0}},
		{"and in one that due slots have filled", 10, perKind{10, 0, 0, 0}, none, perKind{0, 1, 0, 1}},
		{"and beside retries that fill it", 10, perKind{0, 8, 0, 1}, none, perKind{2, 0, 1, 0}},
		{
			"a released slot goes to who has less than its share",
			10,
			perKind{1, 1, 1, 6},
			[domain.WorkKinds]bool{true},
			perKind{1, 1, 1, 0},
		},
		{
			"late slots go on beside retries that hang",
			10,
			perKind{0, 5, 0, 0},
			[domain.WorkKinds]bool{false, true, true, false},
			perKind{3, 2, 4, 2},
		},
		{
			"what is wanted but cannot be taken is kept from nobody",
			10,
			perKind{5, 1, 0, 3},
			[domain.WorkKinds]bool{true, true, false, true},
			perKind{1, 0, 1, 0},
		},
		{"a queue of eight has a slot for each", 8, perKind{5, 0, 0, 0}, none, perKind{3, 2, 3, 1}},
		{"a smaller one only for what is due now", 7, perKind{}, none, perKind{7, 6, 6, 6}},
		{"of one: for nobody", 1, perKind{}, all, perKind{1, 1, 1, 1}},
		{"a full one has none", 10, perKind{4, 3, 2, 1}, all, perKind{}},
		{"an overfull one neither", 10, perKind{8, 2, 1, 1}, all, perKind{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := occupied([]int{c.size}, c.runs)
			w.queues[0].wanted = c.wanted
			var got perKind
			for of := range domain.WorkKinds {
				got[of] = w.queues[0].room(of)
			}
			if got != c.want {
				t.Errorf("room %v, want %v", got, c.want)
			}
		})
	}
}

func TestThereAreSlotsForAllSharesAndReserves(t *testing.T) {
	for size := 1; size <= 500; size++ {
		shared, kept := 0, 0
		for of := range domain.WorkKinds {
			shared += shareOf(of, size)
			kept += reserve(of, size)
		}
		if shared > max(size, 1) && size >= 8 || kept > (size+1)/2 {
			t.Fatalf("of %d slots %d are shared out and %d reserved", size, shared, kept)
		}
	}
}

func TestReleasedSlotsWakeAndAreFreeAgain(t *testing.T) {
	t.Parallel()
	w := occupied([]int{2}, perKind{1, 0, 1, 0})
	w.Release(1, 1, domain.WorkLate, false)
	w.Release(1, 1, domain.WorkDue, false)
	select {
	case <-w.Released:
	default:
		t.Error("nobody is told")
	}
	if diff := cmp.Diff([]Quota{{Queue: 1, Slots: 2}}, w.Quotas(domain.WorkDue, BatchSize, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestALentSlotIsFreeUntilItsRequestEnds(t *testing.T) {
	t.Parallel()
	w := occupied([]int{10}, perKind{0, 0, 0, 7}) // the others are kept for more urgent work
	w.lend(1, domain.WorkOrdered, 4)
	if n := w.queues[0].room(domain.WorkOrdered); n != 4 {
		t.Errorf("room for %d of 4 that were lent", n)
	}
	for i := range 7 {
		w.Release(1, 1, domain.WorkOrdered, i < 4)
	}
	if q := w.queues[0]; q.inFlight != (perKind{}) || q.lent != 0 {
		t.Errorf("%+v", q)
	}
}
