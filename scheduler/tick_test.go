package scheduler

import (
	"testing"
	"time"
)

// What becomes due while a tick decides is neither claimed by this tick nor slept through: the loop would be late by up
// to a second.
func TestWhatBecomesDueDuringATickIsNotSleptThrough(t *testing.T) {
	t.Parallel()
	s := holding(newFakeStore(), occupied([]int{20}, perKind{}))
	loop := newTicker(s)
	const ticks = 20_000
	for i := range ticks {
		if i%100 == 0 {
			s.heart = newHeartbeat(s) // on a busy machine it would be too old for a claim in the end
		}
		s.clock.set(time.Now(), time.Now())
		soon := time.Duration(i%2000) * time.Nanosecond // as long as some steps of a tick take
		loop.upcoming = Upcoming{Schedule: s.clock.now().Add(soon)}
		loop.wantsLook, loop.lookAt = false, time.Now().Add(time.Hour)
		wait, _, err := loop.tick(t.Context())
		must(t, err)
		if wait > longestPause {
			t.Fatalf("tick %d of %d: the loop would sleep for %s, with a slot due in %s", i, ticks, wait, soon)
		}
	}
}
