package scheduler

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Version is one entry of a job's history, as far as it bears on slots.
type Version struct {
	Number   int32
	From     time.Time // it holds from then until the next one does
	State    string    // active, paused, completed or deleted
	Schedule Schedule
	Jitter   Duration
	Note     string // why, where somebody said so; only pauses and resumes have one
	Digest   string // equal where the definition's text is; only compared between versions with a delay
}

// History is what a job has been since it was written, and the slot it stands at. It answers which slots
// the job had to account for, from the definitions alone: no run was looked at.
type History struct {
	Job      uuid.UUID
	Versions []Version // in order
	Next     time.Time // the next slot, accounted for by nothing yet; zero when none is left
	// DefaultJitter is the deployment's. It decides only which slots were not due yet when a pause or the
	// end of the job came.
	DefaultJitter time.Duration
}

// Duty says what must be there for a slot.
type Duty int

// The duties.
const (
	// Owed is a slot that has become exactly one run or lies in exactly one recorded skip.
	Owed Duty = iota
	// Waiting is one that is not accounted for yet: it is still to be claimed, or the job is paused.
	Waiting
	// Unsure is one that may have been accounted for or not, and both are right: the history does not tell
	// whether jitter still held it back when the job ended or a paused job was moved, or whether a write
	// of a paused job armed its delay again.
	Unsure
)

// ExpectedSlot is a slot that the history explains.
type ExpectedSlot struct {
	At      time.Time
	Version int32 // the one in force when its time came
	Duty    Duty
}

// span is a time during which one schedule held, from the write that placed its first slot to the one
// that moved the next slot or ended the job.
type span struct {
	first, end int   // versions, end not included
	rearmed    []int // versions that may have armed a delay again
	from       time.Time
	to         time.Time // zero: it still holds
}

// SameSchedule reports whether two schedules have the same slots, however they are written.
func SameSchedule(a, b Schedule) bool {
	x, y := Definition{Schedule: a}.WithDefaults().Schedule, Definition{Schedule: b}.WithDefaults().Schedule
	return x.Cron == y.Cron && x.Timezone == y.Timezone &&
		x.Every.Value() == y.Every.Value() && x.Delay.Value() == y.Delay.Value() && x.Kind() == y.Kind() &&
		x.At.Value().Equal(y.At.Value()) && x.StartsAt.Value().Equal(y.StartsAt.Value()) && x.EndsAt.Value().Equal(y.EndsAt.Value())
}

// Slots yields, in order, the slots from one instant to another, both included. It holds none of them.
func (h History) Slots(from, to time.Time) iter.Seq2[ExpectedSlot, error] {
	return func(yield func(ExpectedSlot, error) bool) {
		for _, s := range h.spans() {
			if s.from.After(to) {
				return
			}
			if !s.to.IsZero() && s.to.Before(from) {
				continue
			}
			timetable, err := h.timetable(s)
			if err != nil {
				yield(ExpectedSlot{}, err)
				return
			}
			until := to
			if !s.to.IsZero() && s.to.Before(to) {
				until = s.to
			}
			for at := range h.instants(s, timetable, from, until) {
				if !yield(ExpectedSlot{At: at, Version: h.versionOf(s, at), Duty: h.duty(s, timetable, at)}, nil) {
					return
				}
			}
		}
	}
}

// instants yields the slots of a span within bounds, both included.
func (h History) instants(s span, t *Timetable, from, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if !t.kind.Recurring() {
			if t.kind == KindNone {
				return
			}
			for _, i := range append([]int{s.first}, s.rearmed...) {
				slot, _ := t.First(h.Versions[i].From)
				if !slot.At.Before(from) && !slot.At.After(until) && !yield(slot.At.UTC()) {
					return
				}
			}
			return
		}
		after := s.from
		if from.After(after) {
			after = from.Add(-1)
		}
		for slot, ok := t.Next(after, nil); ok && !slot.At.After(until); slot, ok = t.Next(slot.At, nil) {
			if !yield(slot.At.UTC()) {
				return
			}
		}
	}
}

// duty says what must be there for a slot of a span.
func (h History) duty(s span, t *Timetable, slot time.Time) Duty {
	switch {
	case len(s.rearmed) > 0:
		return Unsure
	case s.to.IsZero():
		if h.Next.IsZero() || slot.Before(h.Next) {
			return Owed
		}
		return Waiting
	}
	// A move settles what has passed. The end of the job, or the move of a paused one, settles what was due.
	moved := h.Versions[s.end].State != "deleted" && h.Versions[s.end-1].State != "paused"
	if !moved && t.jitter > 0 && slot.Add(t.jitter).After(s.to) {
		return Unsure
	}
	return Owed
}

// spans divides the history where the next slot was placed anew.
func (h History) spans() []span {
	var spans []span
	var s *span
	for i, v := range h.Versions {
		if v.State == "deleted" {
			if s != nil {
				s.end, s.to = i, v.From
			}
			return spans
		}
		switch {
		case s == nil:
		case h.placed(s, i) == yes:
			s.end, s.to = i, v.From
		case h.placed(s, i) == perhaps:
			s.rearmed = append(s.rearmed, i)
			continue
		default:
			continue
		}
		spans = append(spans, span{first: i, end: len(h.Versions), from: v.From})
		s = &spans[len(spans)-1]
	}
	return spans
}

type answer int

const (
	no answer = iota
	yes
	perhaps
)

// placed tells whether version i placed the next slot anew. Every rewrite of a delay does, even one that
// changes nothing; a pause or a resume does not, and may look the same.
func (h History) placed(s *span, i int) answer {
	before, v := h.Versions[i-1], h.Versions[i]
	switch {
	case !SameSchedule(before.Schedule, v.Schedule):
		return yes
	case v.Schedule.Kind() != KindDelay, v.State == "completed":
		return no
	case before.Digest != v.Digest, before.State == v.State && v.State == "active", before.State == "completed":
		return yes
	case v.Note != "":
		return no
	}
	latest := s.first
	if n := len(s.rearmed); n > 0 {
		latest = s.rearmed[n-1]
	}
	if before.State != v.State && len(s.rearmed) == 0 && !h.Versions[latest].From.Add(v.Schedule.Delay.Value()).After(v.From) {
		return yes // a one-shot whose time has come can be neither paused nor resumed and still be to come
	}
	return perhaps
}

func (h History) timetable(s span) (*Timetable, error) {
	v := h.Versions[s.end-1] // jitter may change within a span; what counts is how it was at its end
	t, err := NewTimetable(h.Job, Definition{Schedule: v.Schedule, Jitter: v.Jitter}.WithDefaults(), h.DefaultJitter)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", v.Number, err)
	}
	return t, nil
}

// versionOf returns the version in force when a slot's time came; one written at that very instant came
// after it.
func (h History) versionOf(s span, slot time.Time) int32 {
	number := h.Versions[s.first].Number
	for _, v := range h.Versions[s.first:s.end] {
		if v.From.Before(slot) {
			number = v.Number
		}
	}
	return number
}

// At returns the version in force at an instant; false before the first.
func (h History) At(t time.Time) (Version, bool) {
	for _, v := range slices.Backward(h.Versions) {
		if !v.From.After(t) {
			return v, true
		}
	}
	return Version{}, false
}

// Find returns the slot at an instant; false when there is none.
func (h History) Find(at time.Time) (ExpectedSlot, bool, error) {
	for slot, err := range h.Slots(at, at) {
		return slot, err == nil, err
	}
	return ExpectedSlot{}, false, nil
}

// After returns the first slot after an instant; false when there is none.
func (h History) After(at time.Time) (time.Time, bool) {
	for slot, err := range h.Slots(at.Add(1), time.Unix(latestSecond, 0)) {
		return slot.At, err == nil
	}
	return time.Time{}, false
}

// latestSecond is the last one of the year 9999, the last that RFC 3339 can write.
const latestSecond = 253402300799

// Before returns the last slot before an instant; false when there is none.
func (h History) Before(at time.Time) (time.Time, bool) {
	for _, s := range slices.Backward(h.spans()) {
		if !s.from.Before(at) {
			continue
		}
		t, err := h.timetable(s)
		if err != nil {
			return time.Time{}, false
		}
		last := at.Add(-1)
		if !s.to.IsZero() && s.to.Before(last) {
			last = s.to
		}
		if t.kind.Recurring() {
			if slot, ok := t.Prev(last); ok && slot.At.After(s.from) {
				return slot.At.UTC(), true
			}
			continue
		}
		var found time.Time
		for slot := range h.instants(s, t, s.from, last) {
			found = slot
		}
		if !found.IsZero() {
			return found, true
		}
	}
	return time.Time{}, false
}

// Due returns when a slot is due, by the version in force at it.
func (h History) Due(slot time.Time) time.Time {
	v, ok := h.At(slot)
	if !ok {
		return slot
	}
	t, err := NewTimetable(h.Job, Definition{Schedule: v.Schedule, Jitter: v.Jitter}.WithDefaults(), h.DefaultJitter)
	if err != nil {
		return slot
	}
	return t.Due(slot, nil)
}

// Timetables returns those of all different schedules the job has had, newest first, without what cannot be read.
func (h History) Timetables() []*Timetable {
	var all []*Timetable
	for i, v := range slices.Backward(h.Versions) {
		if i+1 < len(h.Versions) && SameSchedule(v.Schedule, h.Versions[i+1].Schedule) {
			continue
		}
		if t, err := NewTimetable(h.Job, Definition{Schedule: v.Schedule}.WithDefaults(), 0); err == nil {
			all = append(all, t)
		}
	}
	return all
}

// OneShot reports whether the schedule in force at an instant has only one slot.
func (h History) OneShot(at time.Time) bool {
	v, ok := h.At(at)
	return ok && v.Schedule.Kind().OneShot()
}

// Trim forgets the versions that have no slot at or after an instant. It bounds what is kept of a job
// that is rewritten all the time.
func (h *History) Trim(before time.Time) {
	for _, s := range slices.Backward(h.spans()) {
		if s.from.Before(before) {
			h.Versions = slices.Clone(h.Versions[s.first:])
			return
		}
	}
}
