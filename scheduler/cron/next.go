package cron

import "time"

// maxPeriods bounds how many periods a search looks into. The search skips periods without a matching day. To be safe
// it allows for two days more than the calendar says, because a zone is never a whole day away from UTC. So it
// usually looks into two or three periods.
const maxPeriods = 100

// Next is the first slot strictly after after, by the wall clock of zone. It reports false if there is none up to the
// end of the year 9999.
func (e *Expression) Next(after time.Time, zone *time.Location) (Slot, bool) {
	t := max(after.Unix(), earliest-1)
	if t >= latest {
		return Slot{}, false
	}
	p := periodAt(t, zone)
	for range maxPeriods {
		if slot, ok := e.nextIn(&p, t); ok {
			return slot, true
		}
		t = p.end - 1
		day, ok := e.calendar.onOrAfter(floorDay(t) - 2)
		if !ok || t > latest {
			break
		}
		p = periodAt(max(p.end, (day-2)*secondsPerDay), zone)
	}
	return Slot{}, false
}

// Prev is the newest slot at or before before. It is exactly the slot that repeated calls of [Expression.Next] would
// reach last, found without walking. It reports false if there is none within about 41 years.
func (e *Expression) Prev(before time.Time, zone *time.Location) (Slot, bool) {
	t := min(before.Unix(), latest)
	if t < earliest {
		return Slot{}, false
	}
	for range maxPeriods {
		p := periodAt(t, zone)
		if slot, ok := e.prevIn(&p, t); ok {
			return slot, true
		}
		t = p.start - 1
		day, ok := e.calendar.onOrBefore(floorDay(t) + 2)
		if !ok || t < earliest {
			break
		}
		t = min(t, (day+3)*secondsPerDay)
	}
	return Slot{}, false
}

// nextIn is the first slot of the period after the instant after.
func (e *Expression) nextIn(p *period, after int64) (Slot, bool) {
	after = max(after, p.start-1)
	if e.interval {
		wall, ok := e.nextWall(after+p.offset, p.end+p.offset)
		return Slot{At: instant(wall - p.offset)}, ok
	}
	wall, ok := e.nextWall(max(after+p.offset, p.fresh()-1), p.end+p.offset)
	if after >= p.start+p.gap() {
		return p.ordinary(wall), ok
	}
	// Times that fell into the gap come out here, counted by the clock as it was before the change.
	missing, moved := e.nextWall(after+p.previous, p.start+p.offset)
	switch {
	case !moved:
		return p.ordinary(wall), ok
	case ok && wall-p.offset < missing-p.previous:
		return p.ordinary(wall), true
	default:
		return p.moved(missing, ok && wall-p.offset == missing-p.previous), true
	}
}

// prevIn is the last slot of the period at or before the instant before.
func (e *Expression) prevIn(p *period, before int64) (Slot, bool) {
	before = min(before, p.end-1)
	if e.interval {
		wall, ok := e.prevWall(before+p.offset, p.start+p.offset)
		return Slot{At: instant(wall - p.offset)}, ok
	}
	wall, ok := e.prevWall(before+p.offset, p.fresh())
	if p.gap() == 0 || ok && wall-p.offset >= p.start+p.gap() {
		return p.ordinary(wall), ok
	}
	missing, moved := e.prevWall(min(before+p.previous, p.start+p.offset-1), p.start+p.previous)
	switch {
	case !moved:
		return p.ordinary(wall), ok
	case ok && wall-p.offset > missing-p.previous:
		return p.ordinary(wall), true
	default:
		return p.moved(missing, ok && wall-p.offset == missing-p.previous), true
	}
}

// ordinary is the slot of a wall-clock time that exists in the period.
func (p *period) ordinary(wall int64) Slot {
	slot := Slot{At: instant(wall - p.offset)}
	if p.following < p.offset && wall >= p.end+p.following {
		slot.Note = Note{Kind: Repeated, Wall: instant(wall)}
	}
	return slot
}

// moved is the slot of a wall-clock time that the change at the start of the period skipped.
func (p *period) moved(wall int64, merged bool) Slot {
	note := Note{Kind: Moved, Wall: instant(wall), By: time.Duration(p.gap()) * time.Second}
	if merged {
		note.Kind = Merged
	}
	return Slot{At: instant(wall - p.previous), Note: note}
}

func instant(unix int64) time.Time { return time.Unix(unix, 0).UTC() }

// Memo remembers the answers of [Expression.Next], so that a thousand jobs due at midnight share one computation. It
// is meant to live as long as one batch, and is not safe for concurrent use. The zero Memo is ready; a nil one
// remembers nothing.
type Memo struct {
	answers map[question]answer
}

type question struct {
	text  string
	zone  *time.Location
	after int64
}

type answer struct {
	slot Slot
	ok   bool
}

// Next is [Expression.Next], computed once per expression, zone and second.
func (m *Memo) Next(e *Expression, after time.Time, zone *time.Location) (Slot, bool) {
	if m == nil {
		return e.Next(after, zone)
	}
	q := question{text: e.text, zone: zone, after: after.Unix()}
	a, ok := m.answers[q]
	if !ok {
		if m.answers == nil {
			m.answers = make(map[question]answer)
		}
		a.slot, a.ok = e.Next(after, zone)
		m.answers[q] = a
	}
	return a.slot, a.ok
}
