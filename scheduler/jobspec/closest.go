package jobspec

import "time"

// How far ahead Closest looks: at so many slots from now on, and at those around each change of the zone's offset in
// the next year and a bit, where fixed times may move towards each other.
const (
	closestSlots   = 150
	closestYear    = 400 * 24 * time.Hour
	closestAround  = 3 * time.Hour
	closestChanges = 8
	slotsAround    = 100
)

// Closest returns the shortest time between two slots, and the first of the two, as far as a bounded look ahead can
// tell. ok is false when there are no two slots. When no gap is shorter than enough, Closest may return any gap.
func (t *Timetable) Closest(now time.Time, enough time.Duration) (gap time.Duration, at time.Time, ok bool) {
	if !t.kind.Recurring() {
		return 0, at, false
	}
	first, ok := t.First(now)
	if !ok {
		return 0, at, false
	}
	if least := t.shortestGap(); t.kind == KindEvery || least >= enough {
		_, ok = t.Next(first.At, nil)
		return least, first.At, ok
	}
	ok = false
	look := func(from time.Time, most int, until time.Time) {
		slot, found := t.Next(from, nil)
		for range most {
			next, more := t.Next(slot.At, nil)
			if !found || !more || next.At.After(until) {
				return
			}
			if d := next.At.Sub(slot.At); !ok || d < gap {
				gap, at, ok = d, slot.At, true
			}
			slot = next
		}
	}
	look(first.At.Add(-1), closestSlots, first.At.Add(100*closestYear))
	for _, change := range t.changes(first.At) {
		look(change.Add(-closestAround), slotsAround, change.Add(closestAround))
	}
	return gap, at, ok
}

// changes returns when the zone's offset changes in the year after an instant.
func (t *Timetable) changes(from time.Time) (changes []time.Time) {
	until := from.Add(closestYear)
	for at := from; len(changes) < closestChanges; {
		_, end := at.In(t.zone).ZoneBounds()
		if end.IsZero() || end.After(until) {
			return changes
		}
		if !end.After(at) {
			end = at.Add(24 * time.Hour) // the zone's rule for future years can yield bounds in the past
		}
		changes, at = append(changes, end), end
	}
	return changes
}
