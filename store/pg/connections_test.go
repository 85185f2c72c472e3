package pg

import "testing"

func TestConnectionsAreDivided(t *testing.T) {
	for most, want := range map[int32][parts]int32{
		LeastConns: {Heartbeats: 2, Runs: 4, Chores: 1, Callers: 3},
		11:         {Heartbeats: 2, Runs: 4, Chores: 2, Callers: 3},
		16:         {Heartbeats: 2, Runs: 7, Chores: 2, Callers: 5},
		24:         {Heartbeats: 2, Runs: 8, Chores: 4, Callers: 10},
		1000:       {Heartbeats: 2, Runs: 8, Chores: 4, Callers: 986},
	} {
		if got := divide(most); got != want {
			t.Errorf("%d: %v, want %v", most, got, want)
		}
	}
}
