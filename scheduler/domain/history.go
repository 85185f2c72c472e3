package domain

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// Version is one entry of a job's history, as far as it matters for slots.
type Version struct {
	Number   int32
	From     time.Time // it holds from then until the next version does
	State    JobState
	Schedule jobspec.Schedule
	Jitter   jobspec.Duration
	Note     string // why, if somebody said so; only pauses and resumes have one
	Digest   string // equal when the definition's text is equal; compared only between versions with a delay
}

// History is all versions of a job since it was created, and its next slot. It answers which slots the job had to
// account for, from the definitions alone: it looks at no run.
type History struct {
	Job      uuid.UUID
	Versions []Version // in order
	Next     time.Time // the next slot, which nothing accounts for yet; zero when none is left
	// DefaultJitter is the deployment's default jitter. It decides only which slots were not due yet when a pause or the
	// end of the job came.
	DefaultJitter time.Duration
}

// Duty says what must exist for a slot.
type Duty int

// The duties.
const (
	// Owed is a slot that has become exactly one run or lies in exactly one recorded skip.
	Owed Duty = iota
	// Waiting is a slot that nothing accounts for yet: it is still to be claimed, or the job is paused.
	Waiting
	// Unsure is a slot that may be accounted for or not, and both are right: the history does not tell whether jitter
	// still delayed it when the job ended or the paused job was moved.
	Unsure
)

// ExpectedSlot is a slot that the history explains.
type ExpectedSlot struct {
	At      time.Time
	Version int32 // the version in force when its time came
	Duty    Duty
}

// span is a time during which one schedule held: from the write that placed its first slot to the write that moved
// the next slot or ended the job.
type span struct {
	first, end int // indexes of versions, end not included
	from       time.Time
	to         time.Time // zero: it still holds
}

// until is the end of the span, or the limit if that comes first.
func (s span) until(limit time.Time) time.Time {
	if !s.to.IsZero() && s.to.Before(limit) {
		return s.to
	}
	return limit
}

// Slots yields, in order, the slots from one instant to another, both included. It keeps none of them in memory,
// except those of one-shots that were written after their time.
func (h History) Slots(from, to time.Time) iter.Seq2[ExpectedSlot, error] {
	return func(yield func(ExpectedSlot, error) bool) {
		passed, err := h.passed(from, to)
		if err != nil {
			yield(ExpectedSlot{}, err)
			return
		}
		for slot, err := range h.followed(from, to) {
			for err == nil && len(passed) > 0 && !passed[0].At.After(slot.At) {
				// At the very same instant it is one slot, because the run has one id. What fired it first counts.
				if passed[0].At.Before(slot.At) && !yield(passed[0], nil) {
					return
				}
				passed = passed[1:]
			}
			if !yield(slot, err) {
				return
			}
		}
		for _, slot := range passed {
			if !yield(slot, nil) {
				return
			}
		}
	}
}

// passed returns, in order, the slots of one-shots that lay in the past when they were written.
func (h History) passed(from, to time.Time) (slots []ExpectedSlot, err error) {
	for _, s := range h.spans() {
		at := h.Versions[s.first].Schedule.Instant()
		if h.Versions[s.first].Schedule.Kind() != jobspec.KindAt || at.After(s.from) {
			continue
		}
		timetable, err := h.timetable(s)
		if err != nil {
			return nil, err
		}
		slot, _ := timetable.First(s.from)
		if slot.At.After(s.from) || slot.At.Before(from) || slot.At.After(to) {
			continue
		}
		slots = append(slots, ExpectedSlot{
			At: slot.At.UTC(), Version: h.Versions[s.first].Number, Duty: h.duty(s, timetable, slot.At),
		})
	}
	slices.SortStableFunc(slots, func(a, b ExpectedSlot) int { return a.At.Compare(b.At) })
	return slices.CompactFunc(slots, func(a, b ExpectedSlot) bool { return a.At.Equal(b.At) }), nil
}

// followed yields the slots that came after the write that placed them.
func (h History) followed(from, to time.Time) iter.Seq2[ExpectedSlot, error] {
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
			for at := range h.instants(s, timetable, from, s.until(to)) {
				if !yield(ExpectedSlot{At: at, Version: h.versionOf(s, at), Duty: h.duty(s, timetable, at)}, nil) {
					return
				}
			}
		}
	}
}

// instants yields the slots of a span within bounds, both included, except one that had passed before the span began.
func (h History) instants(s span, t *jobspec.Timetable, from, until time.Time) iter.Seq[time.Time] {
	if t.Kind().Recurring() {
		return t.Between(jobspec.Later(s.from.Add(1), from), until.Add(1))
	}
	return func(yield func(time.Time) bool) {
		slot, ok := t.First(s.from)
		passed := t.Kind() == jobspec.KindAt && !slot.At.After(s.from)
		if ok && !passed && !slot.At.Before(from) && !slot.At.After(until) {
			yield(slot.At.UTC())
		}
	}
}

// duty says what must exist for a slot of a span.
func (h History) duty(s span, t *jobspec.Timetable, slot time.Time) Duty {
	if s.to.IsZero() {
		if h.Next.IsZero() || slot.Before(h.Next) {
			return Owed
		}
		return Waiting
	}
	// A move settles what has passed. The end of the job, or the move of a paused one, settles what was due.
	moved := h.Versions[s.end].State != JobDeleted && h.Versions[s.end-1].State != JobPaused
	if !moved && t.Jitter() > 0 && slot.Add(t.Jitter()).After(s.to) {
		return Unsure
	}
	return Owed
}

// spans divides the history at each write that placed the next slot anew.
func (h History) spans() []span {
	var spans []span
	for i, v := range h.Versions {
		if i > 0 && v.State != JobDeleted && !h.placed(i) {
			continue
		}
		if i > 0 {
			before := &spans[len(spans)-1]
			before.end, before.to = i, v.From
		}
		if v.State == JobDeleted {
			break
		}
		spans = append(spans, span{first: i, end: len(h.Versions), from: v.From})
	}
	return spans
}

// placed reports whether version i placed the next slot anew. A change to any part of a job arms its delay again,
// unless it has completed. A pause or a resume leaves the definition as it is, word for word.
func (h History) placed(i int) bool {
	before, v := h.Versions[i-1], h.Versions[i]
	if !jobspec.SameSchedule(before.Schedule, v.Schedule) {
		return true
	}
	return v.Schedule.Kind() == jobspec.KindDelay && v.State != JobCompleted && before.Digest != v.Digest
}

func (h History) timetable(s span) (*jobspec.Timetable, error) {
	return h.timetableOf(h.Versions[s.end-1]) // jitter may change within a span; its value at the end counts
}

func (h History) timetableOf(v Version) (*jobspec.Timetable, error) {
	d := jobspec.Definition{Schedule: v.Schedule, Jitter: v.Jitter}
	t, err := jobspec.NewTimetable(h.Job, d.WithDefaults(), h.DefaultJitter)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", v.Number, err)
	}
	return t, nil
}

// versionOf returns the version in force when a slot's time came. A version written at that very instant came after it.
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

// latestSecond is the last second of the year 9999, the last year that RFC 3339 can write.
const latestSecond = 253402300799

// Before returns the last slot before an instant; false when there is none.
func (h History) Before(at time.Time) (time.Time, bool) {
	var last time.Time
	if passed, err := h.passed(time.Time{}, at.Add(-1)); err == nil && len(passed) > 0 {
		last = passed[len(passed)-1].At
	}
	followed, _ := h.followedBefore(at)
	last = jobspec.Later(last, followed)
	return last, !last.IsZero()
}

// followedBefore is Before among the slots that came after the write that placed them.
func (h History) followedBefore(at time.Time) (time.Time, bool) {
	for _, s := range slices.Backward(h.spans()) {
		if !s.from.Before(at) {
			continue
		}
		t, err := h.timetable(s)
		if err != nil {
			return time.Time{}, false
		}
		last := s.until(at.Add(-1))
		if t.Kind().Recurring() {
			if slot, ok := t.Prev(last); ok && slot.At.After(s.from) {
				return slot.At.UTC(), true
			}
			continue
		}
		for slot := range h.instants(s, t, s.from, last) {
			return slot, true
		}
	}
	return time.Time{}, false
}

// Due returns when a slot is due, by the version in force at the time of the slot. One-shots are due at their slot,
// even those that were written after their time.
func (h History) Due(slot time.Time) time.Time {
	v, ok := h.At(slot)
	if _, passed := h.WrittenAfter(slot); !ok || passed {
		return slot
	}
	t, err := h.timetableOf(v)
	if err != nil {
		return slot
	}
	return t.Due(slot, nil)
}

// Timetables returns the timetables of all different schedules that the job has had, newest first. It leaves out
// schedules that cannot be read.
func (h History) Timetables() []*jobspec.Timetable {
	var all []*jobspec.Timetable
	for i, v := range slices.Backward(h.Versions) {
		if i+1 < len(h.Versions) && jobspec.SameSchedule(v.Schedule, h.Versions[i+1].Schedule) {
			continue
		}
		if t, err := jobspec.NewTimetable(h.Job, jobspec.Definition{Schedule: v.Schedule}.WithDefaults(), 0); err == nil {
			all = append(all, t)
		}
	}
	return all
}

// OneShot reports whether the schedule in force at an instant has only one slot, or the slot is that of a one-shot
// that was written after its time.
func (h History) OneShot(at time.Time) bool {
	if _, passed := h.WrittenAfter(at); passed {
		return true
	}
	v, ok := h.At(at)
	return ok && v.Schedule.Kind().OneShot()
}

// WrittenAfter returns when the one-shot of a slot was written, if that was after the slot's time.
func (h History) WrittenAfter(slot time.Time) (time.Time, bool) {
	passed, err := h.passed(slot, slot)
	if err != nil || len(passed) == 0 {
		return time.Time{}, false
	}
	for _, v := range h.Versions {
		if v.Number == passed[0].Version {
			return v.From, true
		}
	}
	return time.Time{}, false
}

// Trim forgets the versions that have no slot at or after an instant. It bounds what is kept of a job that is
// rewritten all the time.
func (h *History) Trim(before time.Time) {
	for _, s := range slices.Backward(h.spans()) {
		if s.from.Before(before) {
			h.Versions = slices.Clone(h.Versions[s.first:])
			return
		}
	}
}
