package admit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestShare(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	tests := []struct {
		name       string
		quotas     []Quota
		contenders []Contender
		held       map[int32]int
		want       []Quota
	}{
		{"nobody waits", []Quota{{Queue: 1, Slots: 10}}, nil, nil, []Quota{{Queue: 1, Slots: 10}}},
		{"one waits", []Quota{{Queue: 1, Slots: 10}}, []Contender{{1, 7, 1, at(1)}}, nil, []Quota{{Queue: 1, Slots: 10}}},
		{
			"two of the same weight",
			[]Quota{{Queue: 1, Slots: 10}},
			[]Contender{{1, 7, 1, at(1)}, {1, 8, 1, at(2)}},
			nil,
			[]Quota{{1, 7, 5}, {1, 8, 5}},
		},
		{
			"an odd slot goes to whoever has waited longest",
			[]Quota{{Queue: 1, Slots: 3}},
			[]Contender{{1, 7, 1, at(2)}, {1, 8, 1, at(1)}},
			nil,
			[]Quota{{1, 7, 1}, {1, 8, 2}},
		},
		{
			"by weight",
			[]Quota{{Queue: 1, Slots: 12}},
			[]Contender{{1, 7, 3, at(1)}, {1, 8, 1, at(2)}},
			nil,
			[]Quota{{1, 7, 9}, {1, 8, 3}},
		},
		{
			"what is held counts",
			[]Quota{{Queue: 1, Slots: 10}},
			[]Contender{{1, 7, 1, at(1)}, {1, 8, 1, at(2)}},
			map[int32]int{7: 6},
			[]Quota{{1, 7, 2}, {1, 8, 8}},
		},
		{
			"who holds most gets nothing",
			[]Quota{{Queue: 1, Slots: 10}},
			[]Contender{{1, 7, 1, at(1)}, {1, 8, 1, at(2)}},
			map[int32]int{7: 490},
			[]Quota{{1, 8, 10}},
		},
		{
			"fewer slots than tenants",
			[]Quota{{Queue: 1, Slots: 2}},
			[]Contender{{1, 7, 1, at(3)}, {1, 8, 1, at(1)}, {1, 9, 1, at(2)}},
			nil,
			[]Quota{{1, 8, 1}, {1, 9, 1}},
		},
		{
			"each queue by itself",
			[]Quota{{Queue: 1, Slots: 4}, {Queue: 2, Slots: 4}, {Queue: 3, Slots: 4}},
			[]Contender{{1, 7, 1, at(1)}, {1, 8, 1, at(1)}, {2, 7, 1, at(1)}},
			nil,
			[]Quota{{2, 0, 4}, {3, 0, 4}, {1, 7, 2}, {1, 8, 2}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			oneByOne := func(int16, int) int { return 1 }
			got := ByTurns(test.quotas, test.contenders, oneByOne, func(c Contender) Claimant {
				return Claimant{Contender: c, Holds: test.held[c.Tenant]}
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestTurnsAreLongWhereManyTenantsWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                        string
		tenants, size, atOnce, want int
	}{
		{"few tenants", 12, 500, 8, 1},
		{"a hundred tenants, whose slots fit", 100, 500, 8, 8},
		{"a thousand tenants", 1000, 500, 8, 8},
		{"a thousand tenants with little due", 1000, 500, 2, 2},
		{"nothing was found last time", 1000, 500, 0, 1},
		{"a small queue", 100, 50, 8, 4},
		{"a queue with fewer slots than tenants in a claim", 100, 10, 8, 1},
	} {
		if got := TurnOf(c.tenants, c.size, c.atOnce); got != c.want {
			t.Errorf("%s: a turn has %d slots, want %d", c.name, got, c.want)
		}
	}
}

func TestShareAround(t *testing.T) {
	quotas := []Quota{{Queue: 1, Slots: 10}, {Queue: 2, Slots: 4}}
	contenders := []Contender{
		{Queue: 1, Tenant: 7, Weight: 1},
		{Queue: 2, Tenant: 7, Weight: 1},
		{Queue: 1, Tenant: 8, Weight: 1},
		{Queue: 1, Tenant: 9, Weight: 1},
	}
	room := map[int32]int{7: 3, 8: 100, 9: 0}
	got := Around(
		quotas, contenders,
		func(int16, int32) int { return 0 },
		func(tenant int32) int { return room[tenant] },
	)
	if diff := cmp.Diff([]Quota{{1, 7, 3}, {1, 8, 7}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
