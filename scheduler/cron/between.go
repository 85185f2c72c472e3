package cron

import (
	"iter"
	"math/bits"
	"time"
)

// Between yields the instants of the slots from one instant, included, to another, not included. They are the slots
// that repeated calls of [Expression.Next] find, found much faster. Away from changes of the clock, every combination
// of a day, an hour, a minute and a second that match is a slot, so there is nothing to search for. Near a change,
// Between asks Next.
func (e *Expression) Between(from, to time.Time, zone *time.Location) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		t, end := max(ceilSecond(from), earliest), min(ceilSecond(to), latest+1)
		for t < end {
			p := periodAt(t, zone)
			if t < e.plainFrom(&p) {
				slot, ok := e.Next(instant(t-1), zone)
				if !ok || slot.At.Unix() >= end || !yield(slot.At) {
					return
				}
				t = slot.At.Unix() + 1
				continue
			}
			found := func(wall int64) bool { return yield(instant(wall - p.offset)) }
			if !e.eachWall(t+p.offset, min(p.end, end)+p.offset, found) {
				return
			}
			t = p.end
		}
	}
}

// plainFrom is the instant of a period from which on the change at its start has no effect: no slot was moved to it or
// after it, and no wall-clock time occurs there for the second time.
func (e *Expression) plainFrom(p *period) int64 {
	switch {
	case e.interval:
		return p.start
	case p.offset < p.previous:
		return p.start + p.previous - p.offset
	}
	return p.start + p.gap()
}

// eachWall calls do for each matching wall-clock time in a range, in order, until it returns false.
func (e *Expression) eachWall(from, to int64, do func(wall int64) bool) bool {
	for today := floorDay(from); ; today++ {
		day, ok := e.calendar.onOrAfter(today)
		if !ok || day*secondsPerDay >= to {
			return true
		}
		today = day
		for hours := e.hours; hours != 0; hours &= hours - 1 {
			hour := day*secondsPerDay + int64(bits.TrailingZeros64(hours))*60*60
			if hour+60*60 <= from {
				continue
			}
			if hour >= to {
				return true
			}
			if !e.eachInHour(hour, from, to, do) {
				return false
			}
		}
	}
}

// eachInHour is eachWall for one matching hour.
func (e *Expression) eachInHour(hour, from, to int64, do func(wall int64) bool) bool {
	for minutes := e.minutes; minutes != 0; minutes &= minutes - 1 {
		minute := hour + int64(bits.TrailingZeros64(minutes))*60
		for seconds := e.seconds; seconds != 0; seconds &= seconds - 1 {
			wall := minute + int64(bits.TrailingZeros64(seconds))
			if wall >= to {
				return true
			}
			if wall >= from && !do(wall) {
				return false
			}
		}
	}
	return true
}

// ceilSecond is the first whole second at or after an instant.
func ceilSecond(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}
