package cron

import "time"

// gapSteps bounds the search for a gap. Two steps pass at least the length that is asked for: 400 days at 26 hours.
const gapSteps = 750

// GapOver returns the first gap between two slots after an instant that is longer than a length, and the slot before
// it. ok is false if none is found within gapSteps.
func (e *Expression) GapOver(length time.Duration, after time.Time, zone *time.Location) (
	last time.Time, gap time.Duration, ok bool,
) {
	slot, ok := e.Next(after, zone)
	for range gapSteps {
		if !ok {
			break
		}
		latest, _ := e.Prev(slot.At.Add(length), zone) // it exists: at least the slot itself
		if latest.At.After(slot.At) {
			slot = latest
			continue
		}
		next, more := e.Next(slot.At, zone)
		if !more {
			break
		}
		return slot.At, next.At.Sub(slot.At), true
	}
	return time.Time{}, 0, false
}
