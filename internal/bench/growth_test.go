package bench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.25: "0.25", 999: "999", 10_000: "10 k", 2_500_000: "2.5 M", 1e9: "1 G", 61.23456: "61.23",
	} {
		if got := short(v); got != want {
			t.Errorf("short(%v) is %q, want %q", v, got, want)
		}
	}
}

func TestPowersEndWithTheMost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		least, most, times int
		want               []int
	}{
		{1, 8, 2, []int{1, 2, 4, 8}},
		{10_000, 10_000_000, 100, []int{10_000, 1_000_000, 10_000_000}},
		{1, 1, 10, []int{1}},
		{50, 10, 2, []int{10}},
	} {
		if diff := cmp.Diff(test.want, powers(test.least, test.most, test.times)); diff != "" {
			t.Error(diff)
		}
	}
}
