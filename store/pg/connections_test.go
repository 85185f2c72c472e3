package pg

import "testing"

func TestConnectionsAreDivided(t *testing.T) {
	for most, want := range map[int32][3]int32{
		8: {Runs: 5, Chores: 1, Callers: 2}, 9: {Runs: 5, Chores: 1, Callers: 3},
		16: {Runs: 8, Chores: 2, Callers: 6},
		24: {Runs: 8, Chores: 4, Callers: 12}, 1000: {Runs: 8, Chores: 4, Callers: 988},
	} {
		if got := divide(most); got != want {
			t.Errorf("%d: %v, want %v", most, got, want)
		}
	}
}
