package cron

import (
	"slices"
	"time"

	"pgregory.net/rapid"
)

// oracle answers what [Expression.Next] answers, in the simplest way: it walks through real time and looks at the
// clock on the wall. It shares no code with the package: neither the parser (draw_test.go draws an expression together
// with its meaning), nor gronx, nor ZoneBounds.
type oracle struct {
	interval bool
	minutes  func(wall time.Time) bool // checks every field but the second
	seconds  func(second int) bool

	// A rule that is left out on purpose, to show that the comparison notices it.
	broken string
}

// slots returns all slots in [from, to). It walks minute by minute from 26 hours before to 26 hours after, because no
// clock was ever changed by more. It is exact for zones whose offsets and changes are whole minutes.
func (o *oracle) slots(from, to time.Time, zone *time.Location) []Slot {
	type found struct{ ordinary, moved, repeated bool }
	at := map[int64]*found{}
	note := func(unix int64) *found {
		if at[unix] == nil {
			at[unix] = &found{}
		}
		return at[unix]
	}
	first := map[int64]int64{} // wall minute -> real time when it was first seen
	const aside = 26 * 60 * 60
	start := from.Truncate(time.Minute).Unix() - aside
	previous := wallMinute(start-60, zone)
	for t := start; t < to.Unix()+aside; t += 60 {
		wall := wallMinute(t, zone)
		gap := wall - (previous + 60)
		for missing := previous + 60; missing < wall && !o.interval && o.broken != "gaps are lost"; missing += 60 {
			moved := t + (missing + gap - wall) // its wall-clock time plus the gap, on the clock that holds from t on
			if o.broken == "gaps jump to their end" {
				moved = t
			}
			for _, s := range o.matches(missing) {
				note(moved + s).moved = true
			}
		}
		previous = max(previous, wall)
		seconds := o.matches(wall)
		if len(seconds) == 0 {
			continue
		}
		seen, again := first[wall]
		if !again {
			first[wall] = t
		}
		for _, s := range seconds {
			switch {
			case o.interval && o.broken != "intervals are fixed", !again, o.broken == "repeats run twice":
				note(t + s).ordinary = true
			default:
				note(seen + s).repeated = true
			}
		}
	}
	var slots []Slot
	for unix, f := range at {
		if unix < from.Unix() || unix >= to.Unix() {
			continue
		}
		slot := Slot{At: time.Unix(unix, 0).UTC()}
		switch {
		case f.moved && f.ordinary:
			slot.Note.Kind = Merged
		case f.moved:
			slot.Note.Kind = Moved
		case f.repeated:
			slot.Note.Kind = Repeated
		}
		slots = append(slots, slot)
	}
	slices.SortFunc(slots, func(a, b Slot) int { return a.At.Compare(b.At) })
	return slots
}

// matches returns the seconds of a wall-clock minute at which the expression fires.
func (o *oracle) matches(wallMinute int64) (seconds []int64) {
	if !o.minutes(time.Unix(wallMinute, 0).UTC()) {
		return nil
	}
	for s := range 60 {
		if o.seconds(s) {
			seconds = append(seconds, int64(s))
		}
	}
	return seconds
}

// wallMinute returns what the clock on the wall shows at a full minute, in Unix seconds, as if it showed UTC.
func wallMinute(unix int64, zone *time.Location) int64 {
	_, ahead := time.Unix(unix, 0).In(zone).Zone()
	return unix + int64(ahead)
}

// walk collects the slots that Next returns in [from, to). Their notes are reduced to their kinds.
func walk(t rapid.TB, e *Expression, from, to time.Time, zone *time.Location) (slots []Slot) {
	for at := from.Add(-time.Second); ; {
		slot, ok := e.Next(at, zone)
		if !ok || !slot.At.Before(to) {
			return slots
		}
		if !slot.At.After(at) {
			t.Fatalf("Next(%s) = %s, which is not after it", at, slot.At)
		}
		at = slot.At
		slots = append(slots, Slot{At: slot.At, Note: Note{Kind: slot.Note.Kind}})
	}
}

// walkBack collects the slots that Prev returns in [from, to), in ascending order.
func walkBack(t rapid.TB, e *Expression, from, to time.Time, zone *time.Location) (slots []Slot) {
	for at := to.Add(-time.Second); ; {
		slot, ok := e.Prev(at, zone)
		if !ok || slot.At.Before(from) {
			slices.Reverse(slots)
			return slots
		}
		if slot.At.After(at) {
			t.Fatalf("Prev(%s) = %s, which is after it", at, slot.At)
		}
		at = slot.At.Add(-time.Second)
		slots = append(slots, Slot{At: slot.At, Note: Note{Kind: slot.Note.Kind}})
	}
}
