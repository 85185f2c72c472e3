package domain

import (
	"testing"
	"time"
)

func TestMostSlotsHaveToBeSkippedForAnHour(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name                   string
		slots, skipped, newest int
		ago                    time.Duration // of the oldest skip
		steady, over           bool
	}{
		{"two of three", 3, 2, 2, time.Hour, true, false},
		{"all", 60, 60, 3, 65 * time.Minute, true, false},
		{"fewer than two of three", 61, 40, 2, 65 * time.Minute, false, true},
		{"two slots", 2, 2, 2, 3 * time.Hour, false, true},
		{"for less than an hour", 50, 45, 3, 59 * time.Minute, false, false},
		{"most, but the newest ran", 60, 55, 0, 65 * time.Minute, true, true},
		{"none", 60, 0, 0, 0, false, true},
	} {
		oldest := new(now.Add(-test.ago))
		if test.skipped == 0 {
			oldest = nil
		}
		o := Overlapping{Slots: test.slots, Skipped: test.skipped, Newest: test.newest, Oldest: oldest}
		if o.Steady(now) != test.steady || o.Over() != test.over {
			t.Errorf("%s: steady %t, over %t", test.name, o.Steady(now), o.Over())
		}
	}
}
