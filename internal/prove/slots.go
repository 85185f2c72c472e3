package prove

import (
	"slices"
	"time"

	"punctual/scheduler/jobspec"
)

// dueSlot is a slot of a definition.
type dueSlot struct {
	At time.Time
	// Optional means that the slot may or may not have a run. It falls on the instant of an edit, or its due time, which
	// jitter moves, lies after the end of the period that is checked.
	Optional bool
}

// span is a period in which a job had one schedule.
type span struct {
	from, to   time.Time // to is exclusive, unless open
	open       bool      // the schedule still holds at the end of the checked period
	definition jobspec.Definition
}

// dueSlots computes the slots of a job up to the given instant, in order. Pauses change nothing: slots during a pause
// are due too, and get recorded as skips.
func dueSlots(j Job, until time.Time, defaultJitter time.Duration) ([]dueSlot, error) {
	var slots []dueSlot
	for _, s := range spans(j, until) {
		found, err := s.slots(j, defaultJitter)
		if err != nil {
			return nil, err
		}
		slots = append(slots, found...)
	}
	if last := j.Versions[len(j.Versions)-1]; j.State == "paused" {
		for i := range slots { // recorded only when the job is resumed
			slots[i].Optional = slots[i].Optional || slots[i].At.After(last.From)
		}
	}
	return slots, nil
}

// spans merges consecutive versions with the same schedule. A deleted job has no more slots.
func spans(j Job, until time.Time) []span {
	var spans []span
	open := false // whether the previous version still holds
	for i, v := range j.Versions {
		edited := i > 0 && v.State == j.Versions[i-1].State
		same := open && sameSchedule(spans[len(spans)-1].definition, v.Definition)
		if same && edited && v.Definition.Schedule.Kind() == jobspec.KindDelay {
			same = false // every edit restarts a delay, and only an edit makes a version
		}
		if open && (!same || v.State == "deleted") {
			last := &spans[len(spans)-1]
			last.to, last.open = v.From, false
		}
		if v.State == "deleted" {
			open = false
			continue
		}
		if !same {
			spans = append(spans, span{from: v.From, to: until, open: true, definition: v.Definition})
		}
		open = true
	}
	return spans
}

// slotOfAny reports whether any version of a job has a recurring slot at an instant, whether or not that version held
// then.
func slotOfAny(j Job, at time.Time, defaultJitter time.Duration) bool {
	return slices.ContainsFunc(j.Versions, func(v Version) bool {
		if !v.Definition.Schedule.Kind().Recurring() {
			return false
		}
		slots, err := span{from: at.Add(-time.Second), to: at, open: true, definition: v.Definition}.slots(j, defaultJitter)
		return err == nil && slices.ContainsFunc(slots, func(s dueSlot) bool { return s.At.Equal(at) })
	})
}

func sameSchedule(a, b jobspec.Definition) bool {
	x, y := a.WithDefaults(), b.WithDefaults()
	return x.Schedule == y.Schedule && x.Jitter == y.Jitter
}

// slots computes the slots of a span.
func (s span) slots(j Job, defaultJitter time.Duration) ([]dueSlot, error) {
	schedule := s.definition.Schedule
	var at []time.Time
	switch schedule.Kind() {
	case jobspec.KindEvent, jobspec.KindNone:
		return nil, nil
	case jobspec.KindAt:
		at = []time.Time{roundUp(schedule.Instant(), time.Millisecond)} // even in the past
	case jobspec.KindDelay:
		at = []time.Time{roundUp(s.from.Add(schedule.Delay.Value()), time.Millisecond)}
	case jobspec.KindEvery:
		at = everySlots(schedule, s.from, s.to)
	case jobspec.KindCron:
		var err error
		if at, err = cronSlots(j, s); err != nil {
			return nil, err
		}
	}
	jitter := longestJitter(s.definition, defaultJitter)
	var slots []dueSlot
	for _, t := range at {
		if t.After(s.to) || (!s.open && t.Equal(s.to) && schedule.Kind().OneShot()) {
			continue
		}
		slots = append(slots, dueSlot{At: t.UTC(), Optional: !t.Add(jitter).Before(s.to)})
	}
	return slots, nil
}

// everySlots returns the multiples of the period since the epoch, or since starts_at, that lie after from.
func everySlots(s jobspec.Schedule, from, to time.Time) (at []time.Time) {
	period := s.Every.Value()
	slot := time.Unix(0, 0)
	if !s.StartsAt.IsZero() {
		slot = roundUp(s.StartsAt.Value(), time.Second)
	}
	if passed := from.Sub(slot); passed > 0 {
		slot = slot.Add(passed - passed%period)
	}
	for ; !slot.After(to); slot = slot.Add(period) {
		if slot.After(from) && (s.EndsAt.IsZero() || !slot.After(s.EndsAt.Value())) {
			at = append(at, slot)
		}
	}
	return at
}

// cronSlots tries every instant of the span. It uses the product's own timetable for expressions that plainCron cannot
// parse.
func cronSlots(j Job, s span) (at []time.Time, err error) {
	schedule := s.definition.Schedule
	in := func(t time.Time) bool {
		return t.After(s.from) && !t.After(s.to) &&
			(schedule.StartsAt.IsZero() || !t.Before(schedule.StartsAt.Value())) &&
			(schedule.EndsAt.IsZero() || !t.After(schedule.EndsAt.Value()))
	}
	if plain, ok := parsePlainCron(schedule); ok {
		for t := s.from.UTC().Truncate(plain.step); !t.After(s.to); t = t.Add(plain.step) {
			if plain.matches(t) && in(t) {
				at = append(at, t)
			}
		}
		return at, nil
	}
	timetable, err := jobspec.NewTimetable(j.ID, s.definition.WithDefaults(), 0)
	if err != nil {
		return nil, err
	}
	for t := s.from; ; {
		slot, ok := timetable.Next(t, nil)
		if !ok || slot.At.After(s.to) {
			return at, nil
		}
		at = append(at, slot.At)
		t = slot.At
	}
}

// longestJitter returns the longest time from a slot to the due time of its run.
func longestJitter(d jobspec.Definition, byDefault time.Duration) time.Duration {
	switch {
	case !d.Schedule.Kind().Recurring():
		return 0
	case !d.Jitter.IsZero():
		return d.Jitter.Value()
	case d.Schedule.Kind() == jobspec.KindCron:
		if plain, ok := parsePlainCron(d.Schedule); ok && plain.step == time.Second {
			return 0
		}
		return byDefault
	}
	return 0
}

func roundUp(t time.Time, unit time.Duration) time.Time {
	if down := t.Truncate(unit); down.Before(t) {
		return down.Add(unit)
	}
	return t
}
