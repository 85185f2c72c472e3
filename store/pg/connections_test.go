package pg

import "testing"

func TestConnectionsAreDivided(t *testing.T) {
	for most, want := range map[int32]sizes{
		LeastConns: {heartbeats: 2, runs: 4, chores: 1, callers: 3},
		11:         {heartbeats: 2, runs: 4, chores: 2, callers: 3},
		16:         {heartbeats: 2, runs: 7, chores: 2, callers: 5},
		24:         {heartbeats: 2, runs: 8, chores: 4, callers: 10},
		1000:       {heartbeats: 2, runs: 8, chores: 4, callers: 986},
	} {
		if got := divide(most); got != want {
			t.Errorf("%d: %v, want %v", most, got, want)
		}
	}
}
