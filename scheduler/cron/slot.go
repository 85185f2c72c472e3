package cron

import (
	"fmt"
	"time"
)

// Slot is one fire time.
type Slot struct {
	At   time.Time // in UTC, a whole second
	Note Note
}

// Kind says how the clock change of a day affected a slot.
type Kind uint8

// The kinds of [Note].
const (
	Ordinary Kind = iota
	Moved         // the wall-clock time does not exist that day, and was moved forward by the length of the gap
	Merged        // Moved, and there is a slot at that time anyway: the two are one
	Repeated      // the wall-clock time occurs twice, and this is the first
)

// Note tells what a clock change did to a slot. The zero Note stands for nothing.
type Note struct {
	Kind Kind
	Wall time.Time     // the wall-clock time that the expression asks for, labelled as UTC; zero if Ordinary
	By   time.Duration // how far it was moved; zero unless Moved or Merged
}

// String describes the note for people: "02:30 does not exist on this day; moved to 03:30". It is empty for an
// ordinary slot.
func (n Note) String() string {
	if n.Kind == Ordinary {
		return ""
	}
	from, to, on := clock(n.Wall), clock(n.Wall.Add(n.By)), " on this day"
	if n.By >= 24*time.Hour { // Samoa had no 30 December 2011 at all
		from, to, on = n.Wall.Format(time.DateOnly+" ")+from, n.Wall.Add(n.By).Format(time.DateOnly+" ")+to, ""
	}
	switch n.Kind {
	case Moved:
		return fmt.Sprintf("%s does not exist%s; moved to %s", from, on, to)
	case Merged:
		return fmt.Sprintf("%s does not exist%s; merged with %s", from, on, to)
	default:
		return fmt.Sprintf("%s occurs twice%s; this is the first", from, on)
	}
}

func clock(t time.Time) string {
	if t.Second() != 0 {
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}
