package jobspec

import "time"

// Pattern is all that tells the slots of one timetable from those of another. Recurring timetables with equal patterns
// as of an instant have the same slots from that instant on, and the same jitter. So many jobs share the work of
// finding slots.
type Pattern struct {
	kind   Kind
	cron   string // canonical; empty: no cron expression
	zone   *time.Location
	every  time.Duration
	phase  time.Duration // from the instant to the first slot of every, or rather to where it would be
	starts time.Time     // zero: not after the instant
	ends   time.Time     // zero: no bound
	jitter time.Duration
}

// Pattern returns the pattern of a timetable as of an instant. The bound starts_at does not matter if it has passed by
// then. The slots of one-shots are not in their patterns.
func (t *Timetable) Pattern(from time.Time) Pattern {
	p := Pattern{kind: t.kind, zone: t.zone, every: t.every, ends: t.ends, jitter: t.jitter}
	if t.starts.After(from) {
		p.starts = t.starts
	}
	if t.kind == KindEvery {
		phase := int64(t.origin.Sub(from)) % int64(t.every)
		p.phase = time.Duration((phase + int64(t.every)) % int64(t.every))
	} else if t.expr != nil {
		p.cron = t.expr.Canonical()
	}
	return p
}

// Kind returns the kind of the schedule.
func (t *Timetable) Kind() Kind { return t.kind }

// Zone returns the zone of the schedule.
func (t *Timetable) Zone() *time.Location { return t.zone }

// OneShot reports whether the timetable has exactly one slot.
func (t *Timetable) OneShot() bool { return t.kind.OneShot() }

// Jitter returns the longest delay of a slot; 0: none.
func (t *Timetable) Jitter() time.Duration { return t.jitter }

// Period returns the time between any two slots of an interval that never ends; 0 for all other timetables.
func (t *Timetable) Period() time.Duration {
	if t.kind != KindEvery || !t.ends.IsZero() {
		return 0
	}
	return t.every
}
