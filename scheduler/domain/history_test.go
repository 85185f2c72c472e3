package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// past is a history whose events happen on one day, so that instants can be written as clock times.
type past struct {
	t *testing.T
	History
}

// version adds a version. Its digest depends on the schedule alone, unless change sets another.
func (p past) version(from string, state JobState, s Schedule, change ...func(*Version)) past {
	v := Version{
		Number: int32(len(p.Versions) + 1), From: instant(p.t, from), State: state, Schedule: s, Digest: fmt.Sprint(s),
	}
	for _, f := range change {
		f(&v)
	}
	p.Versions = append(p.Versions[:len(p.Versions):len(p.Versions)], v)
	return p
}

func (p past) next(at string) past { p.Next = instant(p.t, at); return p }

func jittered(span time.Duration) func(*Version) {
	return func(v *Version) { v.Jitter = DurationOf(span) }
}

func noted(v *Version) { v.Note = "why" }

// changed makes the version's digest differ, as an edit beyond the schedule does.
func changed(v *Version) { v.Digest += fmt.Sprint(v.Number) }

func periodic(text string) Schedule { return Schedule{Every: mustDuration(text)} }

func delayed(text string) Schedule { return Schedule{Delay: mustDuration(text)} }

func once(t *testing.T, at string) Schedule { return Schedule{At: InstantOf(instant(t, at))} }

func TestSlotsFollowFromTheHistoryAlone(t *testing.T) {
	const from, to = "08:00:00", "14:00:00"
	bounded := periodic("1h")
	bounded.StartsAt, bounded.EndsAt = InstantOf(instant(t, "10:30:00")), InstantOf(instant(t, "12:45:00"))
	for _, test := range []struct {
		name string
		past func(past) past
		want []string // clock time, version, and the duty unless the slot is owed
	}{
		{
			"a job has the slots after it was written",
			func(p past) past { return p.version("11:30:00", "active", periodic("1h")) },
			[]string{"12:00:00 v1", "13:00:00 v1", "14:00:00 v1"},
		},
		{
			"not the one at the very instant",
			func(p past) past { return p.version("12:00:00", "active", periodic("1h")) },
			[]string{"13:00:00 v1", "14:00:00 v1"},
		},
		{
			"those from its next slot on are still to come",
			func(p past) past { return p.version("11:30:00", "active", periodic("1h")).next("13:00:00") },
			[]string{"12:00:00 v1", "13:00:00 v1 waiting", "14:00:00 v1 waiting"},
		},
		{
			"starts and ends bound them",
			func(p past) past { return p.version("08:00:00", "active", bounded) },
			[]string{"10:30:00 v1", "11:30:00 v1", "12:30:00 v1"},
		},
		{"another schedule begins where the old one ends", func(p past) past {
			return p.version("10:30:00", "active", periodic("1h")).version("12:00:00", "active", periodic("40m")).
				next("14:40:00")
		}, []string{"11:00:00 v1", "12:00:00 v1", "12:40:00 v2", "13:20:00 v2", "14:00:00 v2"}},
		{"the same schedule in other words goes on", func(p past) past {
			return p.version("11:30:00", "active", periodic("1h")).version("12:30:00", "active", periodic("60m")).
				next("15:00:00")
		}, []string{"12:00:00 v1", "13:00:00 v2", "14:00:00 v2"}},
		{"slots in a pause are owed once it is over", func(p past) past {
			return p.version("10:30:00", "active", periodic("1h")).version("11:30:00", "paused", periodic("1h")).
				version("13:30:00", "active", periodic("1h")).next("14:00:00")
		}, []string{"11:00:00 v1", "12:00:00 v2", "13:00:00 v2", "14:00:00 v3 waiting"}},
		{"and not before", func(p past) past {
			return p.version("10:30:00", "active", periodic("1h")).version("11:30:00", "paused", periodic("1h")).next("12:00:00")
		}, []string{"11:00:00 v1", "12:00:00 v2 waiting", "13:00:00 v2 waiting", "14:00:00 v2 waiting"}},
		{"a deleted job has none after", func(p past) past {
			return p.version("10:30:00", "active", periodic("1h")).version("12:30:00", "deleted", periodic("1h"))
		}, []string{"11:00:00 v1", "12:00:00 v1"}},
		{"jitter may hold back the last slot of a deleted job", func(p past) past {
			return p.version("10:30:00", "active", periodic("1h"), jittered(time.Minute)).
				version("12:00:30", "deleted", periodic("1h"), jittered(time.Minute))
		}, []string{"11:00:00 v1", "12:00:00 v1 unsure"}},
		{"but not that of an edited one", func(p past) past {
			return p.version("10:30:00", "active", periodic("1h"), jittered(time.Minute)).
				version("12:00:30", "active", periodic("3h")).next("15:00:00")
		}, []string{"11:00:00 v1", "12:00:00 v1"}},
		{"a paused job that is moved settles what was due", func(p past) past {
			return p.version("10:30:00", "active", periodic("1h"), jittered(time.Minute)).
				version("10:40:00", "paused", periodic("1h"), jittered(time.Minute)).
				version("12:00:30", "paused", periodic("3h")).next("15:00:00")
		}, []string{"11:00:00 v2", "12:00:00 v2 unsure"}},
		{
			"one shot",
			func(p past) past { return p.version("10:30:00", "active", once(p.t, "11:15:00")) },
			[]string{"11:15:00 v1"},
		},
		{
			"one shot of the past keeps its instant",
			func(p past) past { return p.version("10:30:00", "active", once(p.t, "09:15:00")) },
			[]string{"09:15:00 v1"},
		},
		{"and is to come until it is claimed", func(p past) past {
			return p.version("10:30:00", "active", once(p.t, "09:15:00")).next("09:15:00")
		}, []string{"09:15:00 v1 waiting"}},
		{
			"one shot that is written at its very instant",
			func(p past) past { return p.version("10:30:00", "active", once(p.t, "10:30:00")) },
			[]string{"10:30:00 v1"},
		},
		{"one shots of the past are told in order, each once", func(p past) past {
			return p.version("09:30:00", "active", periodic("1h")).version("11:30:00", "active", once(p.t, "10:15:00")).
				version("12:00:00", "active", once(p.t, "09:15:00")).version("12:15:00", "active", once(p.t, "10:15:00")).
				version("12:30:00", "active", once(p.t, "11:00:00"))
		}, []string{"09:15:00 v3", "10:00:00 v1", "10:15:00 v2", "11:00:00 v1"}},
		{"one shot of the past that was deleted", func(p past) past {
			return p.version("10:30:00", "active", once(p.t, "09:15:00")).version("10:30:01", "deleted", once(p.t, "09:15:00"))
		}, []string{"09:15:00 v1"}},
		{"one shot that was moved before its time", func(p past) past {
			return p.version("10:30:00", "active", once(p.t, "11:15:00")).version("11:00:00", "active", once(p.t, "12:15:00"))
		}, []string{"12:15:00 v2"}},
		{"one shot that was moved after its time", func(p past) past {
			return p.version("10:30:00", "active", once(p.t, "11:15:00")).version("12:00:00", "active", once(p.t, "12:15:00"))
		}, []string{"11:15:00 v1", "12:15:00 v2"}},
		{"a paused one waits", func(p past) past {
			return p.version("10:30:00", "active", once(p.t, "11:15:00")).version("11:00:00", "paused", once(p.t, "11:15:00")).
				next("11:15:00")
		}, []string{"11:15:00 v2 waiting"}},
		{"one shot that was deleted before its time", func(p past) past {
			return p.version("10:30:00", "active", once(p.t, "11:15:00")).version("11:00:00", "deleted", once(p.t, "11:15:00"))
		}, nil},
		{"a delay", func(p past) past { return p.version("10:30:00", "active", delayed("1h")) }, []string{"11:30:00 v1"}},
		{"a delay that is armed again before its time", func(p past) past {
			return p.version("10:30:00", "active", delayed("1h")).version("11:00:00", "active", delayed("1h"), changed)
		}, []string{"12:00:00 v2"}},
		{"a delay that is armed again after its time", func(p past) past {
			return p.version("10:30:00", "active", delayed("1h")).version("12:00:00", "active", delayed("1h"), changed)
		}, []string{"11:30:00 v1", "13:00:00 v2"}},
		{"a completed delay that is described anew is not armed", func(p past) past {
			return p.version("10:30:00", "active", delayed("1h")).version("12:00:00", "completed", delayed("1h"), changed)
		}, []string{"11:30:00 v1"}},
		{"a pause does not arm it", func(p past) past {
			return p.version("10:30:00", "active", delayed("1h")).version("11:00:00", "paused", delayed("1h"), noted).
				version("11:10:00", "active", delayed("1h"), noted)
		}, []string{"11:30:00 v3"}},
		{"nor does one without a note", func(p past) past {
			return p.version("10:30:00", "active", delayed("1h")).version("11:00:00", "paused", delayed("1h"))
		}, []string{"11:30:00 v2"}},
		{"a change that pauses it arms it", func(p past) past {
			return p.version("10:30:00", "active", delayed("1h")).version("11:00:00", "paused", delayed("1h"), changed)
		}, []string{"12:00:00 v2"}},
		{"a resume that fires it completes it", func(p past) past {
			return p.version("10:30:00", "active", delayed("1h")).version("11:00:00", "paused", delayed("1h"), noted).
				version("12:00:00", "completed", delayed("1h"))
		}, []string{"11:30:00 v2"}},
		{
			"a job that is only triggered has none",
			func(p past) past { return p.version("10:30:00", "active", Schedule{}) },
			nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := test.past(past{t: t, History: History{Job: uuid.UUID{1}}})
			got := p.slots(from, to, func(slot ExpectedSlot) string {
				return fmt.Sprintf("%s v%d%s", slot.At.Format(time.TimeOnly), slot.Version,
					[...]string{"", " waiting", " unsure"}[slot.Duty])
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			p.consistent()
			var before []string
			for _, slot := range got {
				if clock, _, _ := strings.Cut(slot, " "); clock >= "11:00:00" {
					before = append(before, clock)
				}
			}
			p.Trim(instant(t, "11:00:00"))
			trimmed := p.slots("11:00:00", to, func(slot ExpectedSlot) string { return slot.At.Format(time.TimeOnly) })
			if diff := cmp.Diff(before, trimmed); diff != "" {
				t.Errorf("trimmed: %s", diff)
			}
		})
	}
}

// slots writes the slots from one instant to another.
func (p past) slots(from, to string, write func(ExpectedSlot) string) (slots []string) {
	p.t.Helper()
	for slot, err := range p.Slots(instant(p.t, from), instant(p.t, to)) {
		if err != nil {
			p.t.Fatal(err)
		}
		slots = append(slots, write(slot))
	}
	return slots
}

// consistent checks that Find, Before and After agree with Slots.
func (p past) consistent() {
	p.t.Helper()
	var before time.Time
	for slot, err := range p.Slots(instant(p.t, "00:00:00"), instant(p.t, "23:00:00")) {
		if err != nil {
			p.t.Fatal(err)
		}
		if found, ok, err := p.Find(slot.At); !ok || err != nil || found != slot {
			p.t.Errorf("Find(%v) = %v, %t, %v", slot.At, found, ok, err)
		}
		if _, ok, _ := p.Find(slot.At.Add(1)); ok {
			p.t.Errorf("there is a slot just after %v", slot.At)
		}
		got, ok := p.Before(slot.At)
		if ok != !before.IsZero() || ok && !got.Equal(before) {
			p.t.Errorf("before %v: %v, want %v", slot.At, got, before)
		}
		if !before.IsZero() {
			if got, ok := p.After(before); !ok || !got.Equal(slot.At) {
				p.t.Errorf("after %v: %v, want %v", before, got, slot.At)
			}
		}
		before = slot.At
	}
}

func TestSlotsAcrossDaylightSavingAreThoseOfTheTimetable(t *testing.T) {
	p := past{t: t}.version("2026-03-27T00:00:00Z", "active", Schedule{Cron: "30 2 * * *", Timezone: "Europe/Berlin"})
	got := p.slots("2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z", func(slot ExpectedSlot) string {
		return slot.At.Format(time.RFC3339)
	})
	want := []string{"2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAHistoryThatCannotBeReadIsAnError(t *testing.T) {
	p := past{t: t}.version("00:00:00", "active", Schedule{Cron: "rubbish"})
	for _, err := range p.Slots(instant(t, "01:00:00"), instant(t, "02:00:00")) {
		if err == nil {
			t.Error("no error")
		}
		return
	}
	t.Error("nothing was yielded")
}
