package jobspec

import (
	"fmt"
	"hash/fnv"
	"iter"
	"math/bits"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/cron"
)

// SameSchedule reports whether two schedules have the same slots, however they are written.
func SameSchedule(a, b Schedule) bool {
	x, y := Definition{Schedule: a}.WithDefaults().Schedule, Definition{Schedule: b}.WithDefaults().Schedule
	return x.Cron == y.Cron && x.Timezone == y.Timezone &&
		x.Every.Value() == y.Every.Value() && x.Delay.Value() == y.Delay.Value() && x.Kind() == y.Kind() &&
		x.At.Local().Equal(y.At.Local()) && x.Instant().Equal(y.Instant()) &&
		x.StartsAt.Value().Equal(y.StartsAt.Value()) && x.EndsAt.Value().Equal(y.EndsAt.Value())
}

// MaxCount is how far skipped slots are counted. Counting on would hold locks for too long.
const MaxCount = 1000

// Timetable says which slots a job has and when each is due. It is pure: every instant in it comes from the
// definition or is passed in.
type Timetable struct {
	kind   Kind
	expr   *cron.Expression
	zone   *time.Location
	every  time.Duration
	origin time.Time // what every is aligned to
	starts time.Time // zero: no bound
	ends   time.Time // zero: no bound
	at     Slot
	delay  time.Duration
	jitter time.Duration // longest delay; 0: none
	hash   uint64        // of the job's id: how far into the jitter its slots are due
}

// Slot is one nominal fire time in UTC. Note tells when daylight saving moved it or chose between two times.
type Slot struct {
	At   time.Time
	Note string
}

// NewTimetable compiles the schedule of a definition whose defaults are filled in. defaultJitter applies to cron
// slots a minute or more apart when the definition sets no jitter.
func NewTimetable(job uuid.UUID, d Definition, defaultJitter time.Duration) (*Timetable, error) {
	s := d.Schedule
	t := &Timetable{
		kind: s.Kind(), starts: s.StartsAt.Value(), ends: s.EndsAt.Value(),
		every: s.Every.Value(), origin: ceil(s.StartsAt.Value(), time.Second),
		at: Slot{At: s.Instant()}, delay: s.Delay.Value(), hash: HashOf(job),
	}
	if s.StartsAt.IsZero() {
		t.origin = time.Unix(0, 0).UTC()
	}
	if t.kind.Recurring() {
		t.jitter = d.Jitter.Value()
	}
	if t.kind == KindAt && s.Timezone != "" {
		var slot cron.Slot
		slot, t.zone = s.localSlot()
		t.at.Note = slot.Note.String()
	}
	if t.kind != KindCron {
		return t, nil
	}
	var err error
	if t.expr, err = cron.Parse(s.Cron); err != nil {
		return nil, fmt.Errorf("schedule.cron: %w", err)
	}
	if t.zone, err = cron.LoadZone(s.Timezone); err != nil {
		return nil, fmt.Errorf("schedule.timezone: %w", err)
	}
	if d.Jitter.IsZero() && !t.expr.SubMinute() {
		t.jitter = defaultJitter
	}
	return t, nil
}

// CodeCronMismatch is the code of what CrossCheck returns.
const CodeCronMismatch = "cron_mismatch"

// CrossCheck refuses a cron schedule whose times are in doubt, because two calculations of them differ. Whoever writes
// a definition asks for it; what is stored has passed.
func (t *Timetable) CrossCheck() error {
	if t.expr == nil {
		return nil
	}
	if err := t.expr.CrossCheck(); err != nil {
		return &Refusal{Code: CodeCronMismatch, Around: true, Reason: fmt.Sprintf(
			"the times of schedule.cron %q are in doubt, by a fault of Punctual; please report it: %v", t.expr, err)}
	}
	return nil
}

// First returns the first slot of a definition written at now. For a one-shot that is its instant, even when it has
// passed: it is then due at once, and late. A recurring job starts with its first slot after now. Slots of one-shots
// are whole milliseconds, rounded up so that none is early.
func (t *Timetable) First(now time.Time) (Slot, bool) {
	switch t.kind {
	case KindAt:
		return Slot{At: ceil(t.at.At, time.Millisecond), Note: t.at.Note}, true
	case KindDelay:
		return Slot{At: ceil(now.Add(t.delay), time.Millisecond)}, true
	}
	return t.Next(now, nil)
}

// Next returns the first slot strictly after the given instant; false when there is none. A one-shot has no slot
// after its only one, so for it the answer is always false. memo may be nil.
func (t *Timetable) Next(after time.Time, memo *cron.Memo) (Slot, bool) {
	if !t.kind.Recurring() {
		return Slot{}, false
	}
	after = Later(after, t.starts.Add(-1))
	var slot Slot
	if t.kind == KindEvery {
		// An int64 of nanoseconds spans 292 years each way; validation keeps definitions well within that.
		periods := floorDiv(int64(after.Sub(t.origin)), int64(t.every)) + 1
		slot.At = t.origin.Add(time.Duration(periods) * t.every)
	} else {
		found, ok := memo.Next(t.expr, after, t.zone)
		if !ok {
			return Slot{}, false
		}
		slot = Slot{At: found.At, Note: found.Note.String()}
	}
	if !t.ends.IsZero() && slot.At.After(t.ends) {
		return Slot{}, false
	}
	return slot, true
}

// Between yields, in order, the slots from one instant, included, to another, not included. One-shots have none.
func (t *Timetable) Between(from, to time.Time) iter.Seq[time.Time] {
	if t.kind == KindCron {
		return t.expr.Between(Later(from, t.starts), t.until(to), t.zone)
	}
	return func(yield func(time.Time) bool) {
		slot, ok := t.Next(from.Add(-1), nil)
		for ok && slot.At.Before(to) && yield(slot.At.UTC()) {
			slot, ok = t.Next(slot.At, nil)
		}
	}
}

// until returns the end of a range that is cut at ends_at, which may be a slot.
func (t *Timetable) until(to time.Time) time.Time {
	if !t.ends.IsZero() && !to.Before(t.ends) {
		return t.ends.Add(1)
	}
	return to
}

// Has reports whether a recurring schedule has a slot at an instant.
func (t *Timetable) Has(at time.Time) bool {
	slot, ok := t.Next(at.Add(-1), nil)
	return ok && slot.At.Equal(at)
}

// Prev returns the newest slot at or before the given instant; false when there is none.
func (t *Timetable) Prev(before time.Time) (Slot, bool) {
	if !t.kind.Recurring() {
		return Slot{}, false
	}
	if !t.ends.IsZero() && before.After(t.ends) {
		before = t.ends
	}
	var slot Slot
	if t.kind == KindEvery {
		periods := floorDiv(int64(before.Sub(t.origin)), int64(t.every))
		slot.At = t.origin.Add(time.Duration(periods) * t.every)
	} else {
		found, ok := t.expr.Prev(before, t.zone)
		if !ok {
			return Slot{}, false
		}
		slot = Slot{At: found.At, Note: found.Note.String()}
	}
	if slot.At.Before(t.starts) {
		return Slot{}, false
	}
	return slot, true
}

// Due returns when a slot is due: the slot plus an offset. The offset is the job's own fraction of the jitter, or of
// half the gap to the next slot where that is shorter. So jobs spread evenly over either, a job has the same offset
// in every slot whose gap is long enough, and no slot is due after the next one.
func (t *Timetable) Due(slot time.Time, memo *cron.Memo) time.Time {
	if t.jitter <= 0 {
		return slot
	}
	longest := t.jitter
	if longest > t.shortestGap()/2 {
		if next, ok := t.Next(slot, memo); ok {
			longest = Spread(t.jitter, next.At.Sub(slot))
		}
	}
	offset, _ := bits.Mul64(t.hash, uint64(longest)) // hash / 2^64 is the fraction
	// Whole microseconds, because that is what Postgres stores.
	return slot.Add(time.Duration(offset).Truncate(time.Microsecond))
}

// Spread returns how long the time is over which jobs with a jitter are due after a slot, by the gap to the next slot.
func Spread(jitter, gap time.Duration) time.Duration { return min(jitter, gap/2) }

// shortestGap returns a lower bound of the time between two slots. It saves looking for the next slot.
func (t *Timetable) shortestGap() time.Duration {
	switch {
	case t.kind == KindEvery:
		return t.every
	case t.expr.SubMinute():
		return time.Second
	}
	return time.Minute
}

// Count returns how many slots lie from first to last, both included; 0 when more than MaxCount.
func (t *Timetable) Count(first, last time.Time) int {
	n := 1
	for range t.Between(first.Add(1), last.Add(1)) {
		if n++; n > MaxCount {
			return 0
		}
	}
	return n
}

// HashOf returns a number that is spread evenly over all numbers, even for ids that differ in only a few bits.
func HashOf(id uuid.UUID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(id[:])
	// FNV leaves the high bits alike for ids that differ in their last bytes; these are the finishing steps of
	// MurmurHash3.
	v := h.Sum64()
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	v = (v ^ v>>33) * 0xc4ceb9fe1a85ec53
	return v ^ v>>33
}

func ceil(t time.Time, unit time.Duration) time.Time {
	down := t.Truncate(unit)
	if down.Equal(t) {
		return down
	}
	return down.Add(unit)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}
