package cron

import (
	"fmt"
	"time"
)

// Local returns the instant at which the clock of a zone shows a time, as the slot of a fixed expression that names it
// once: a time that does not exist moves forward, and one that occurs twice counts the first time. wall is the time as
// though the zone were UTC; its fraction of a second is kept.
func Local(wall time.Time, zone *time.Location) Slot {
	once := fmt.Sprintf("%d %d %d %d %d *", wall.Second(), wall.Minute(), wall.Hour(), wall.Day(), wall.Month())
	// No clock is two days from UTC, and the expression has one slot a year.
	slot, _ := MustParse(once).Next(wall.Add(-50*time.Hour), zone)
	slot.At = slot.At.Add(time.Duration(wall.Nanosecond()))
	return slot
}
