package domain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// past is a history whose events happen on one day, so that instants can be written as clock times.
type past struct {
	t *testing.T
	History
}

// version adds a version. Its digest depends on the schedule alone, unless change sets another.
func (p past) version(from string, state JobState, s jobspec.Schedule, change ...func(*Version)) past {
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

func jittered(v *Version) { v.Jitter = jobspec.DurationOf(time.Minute) }

func noted(v *Version) { v.Note = "why" }

// changed makes the version's digest differ, as an edit beyond the schedule does.
func changed(v *Version) { v.Digest += fmt.Sprint(v.Number) }

func periodic(text string) jobspec.Schedule { return jobspec.Schedule{Every: lasting(text)} }

func delayed(text string) jobspec.Schedule { return jobspec.Schedule{Delay: lasting(text)} }

func once(t *testing.T, at string) jobspec.Schedule {
	return jobspec.Schedule{At: jobspec.InstantOf(instant(t, at))}
}

func TestSlotsFollowFromTheHistoryAlone(t *testing.T) {
	const from, to = "08:00", "14:00"
	clock := func(at time.Time) string { return strings.TrimSuffix(at.Format(time.TimeOnly), ":00") }
	job := past{t: t, History: History{Job: uuid.UUID{1}}}
	eachHour, delay := periodic("1h"), delayed("1h")
	bounded := eachHour
	bounded.StartsAt, bounded.EndsAt = jobspec.InstantOf(instant(t, "10:30")), jobspec.InstantOf(instant(t, "12:45"))
	for _, test := range []struct {
		name string
		want string // clock time, version, and the duty unless the slot is owed
		past past
	}{
		{
			"a job has the slots after it was written", "12:00 v1, 13:00 v1, 14:00 v1",
			job.version("11:30", "active", eachHour),
		},
		{"not the one at the very instant", "13:00 v1, 14:00 v1", job.version("12:00", "active", eachHour)},
		{
			"those from its next slot on are still to come", "12:00 v1, 13:00 v1 waiting, 14:00 v1 waiting",
			job.version("11:30", "active", eachHour).next("13:00"),
		},
		{"starts and ends bound them", "10:30 v1, 11:30 v1, 12:30 v1", job.version("08:00", "active", bounded)},
		{
			"another schedule begins where the old one ends", "11:00 v1, 12:00 v1, 12:40 v2, 13:20 v2, 14:00 v2",
			job.version("10:30", "active", eachHour).version("12:00", "active", periodic("40m")).next("14:40"),
		},
		{
			"the same schedule in other words goes on", "12:00 v1, 13:00 v2, 14:00 v2",
			job.version("11:30", "active", eachHour).version("12:30", "active", periodic("60m")).next("15:00"),
		},
		{
			"slots in a pause are owed once it is over", "11:00 v1, 12:00 v2, 13:00 v2, 14:00 v3 waiting",
			job.version("10:30", "active", eachHour).version("11:30", "paused", eachHour).
				version("13:30", "active", eachHour).next("14:00"),
		},
		{
			"and not before", "11:00 v1, 12:00 v2 waiting, 13:00 v2 waiting, 14:00 v2 waiting",
			job.version("10:30", "active", eachHour).version("11:30", "paused", eachHour).next("12:00"),
		},
		{
			"a deleted job has none after", "11:00 v1, 12:00 v1",
			job.version("10:30", "active", eachHour).version("12:30", "deleted", eachHour),
		},
		{
			"jitter may hold back the last slot of a deleted job", "11:00 v1, 12:00 v1 unsure",
			job.version("10:30", "active", eachHour, jittered).version("12:00:30", "deleted", eachHour, jittered),
		},
		{
			"but not that of an edited one", "11:00 v1, 12:00 v1",
			job.version("10:30", "active", eachHour, jittered).
				version("12:00:30", "active", periodic("3h")).next("15:00"),
		},
		{
			"a paused job that is moved settles what was due", "11:00 v2, 12:00 v2 unsure",
			job.version("10:30", "active", eachHour, jittered).
				version("10:40", "paused", eachHour, jittered).
				version("12:00:30", "paused", periodic("3h")).next("15:00"),
		},
		{"one shot", "11:15 v1", job.version("10:30", "active", once(t, "11:15"))},
		{"one shot of the past keeps its instant", "09:15 v1", job.version("10:30", "active", once(t, "09:15"))},
		{
			"and is to come until it is claimed", "09:15 v1 waiting",
			job.version("10:30", "active", once(t, "09:15")).next("09:15"),
		},
		{"one shot that is written at its very instant", "10:30 v1", job.version("10:30", "active", once(t, "10:30"))},
		{
			"one shots of the past are told in order, each once", "09:15 v3, 10:00 v1, 10:15 v2, 11:00 v1",
			job.version("09:30", "active", eachHour).version("11:30", "active", once(t, "10:15")).
				version("12:00", "active", once(t, "09:15")).version("12:15", "active", once(t, "10:15")).
				version("12:30", "active", once(t, "11:00")),
		},
		{
			"one shot of the past that was deleted", "09:15 v1",
			job.version("10:30", "active", once(t, "09:15")).version("10:30:01", "deleted", once(t, "09:15")),
		},
		{
			"one shot that was moved before its time", "12:15 v2",
			job.version("10:30", "active", once(t, "11:15")).version("11:00", "active", once(t, "12:15")),
		},
		{
			"one shot that was moved after its time", "11:15 v1, 12:15 v2",
			job.version("10:30", "active", once(t, "11:15")).version("12:00", "active", once(t, "12:15")),
		},
		{
			"a paused one waits", "11:15 v2 waiting",
			job.version("10:30", "active", once(t, "11:15")).version("11:00", "paused", once(t, "11:15")).next("11:15"),
		},
		{
			"one shot that was deleted before its time", "",
			job.version("10:30", "active", once(t, "11:15")).version("11:00", "deleted", once(t, "11:15")),
		},
		{"a delay", "11:30 v1", job.version("10:30", "active", delay)},
		{
			"a delay that is armed again before its time", "12:00 v2",
			job.version("10:30", "active", delay).version("11:00", "active", delay, changed),
		},
		{
			"a delay that is armed again after its time", "11:30 v1, 13:00 v2",
			job.version("10:30", "active", delay).version("12:00", "active", delay, changed),
		},
		{
			"a completed delay that is described anew is not armed", "11:30 v1",
			job.version("10:30", "active", delay).version("12:00", "completed", delay, changed),
		},
		{
			"a pause does not arm it", "11:30 v3",
			job.version("10:30", "active", delay).version("11:00", "paused", delay, noted).
				version("11:10", "active", delay, noted),
		},
		{
			"nor does one without a note", "11:30 v2",
			job.version("10:30", "active", delay).version("11:00", "paused", delay),
		},
		{
			"a change that pauses it arms it", "12:00 v2",
			job.version("10:30", "active", delay).version("11:00", "paused", delay, changed),
		},
		{
			"a resume that fires it completes it", "11:30 v2",
			job.version("10:30", "active", delay).version("11:00", "paused", delay, noted).version("12:00", "completed", delay),
		},
		{"a job that is only triggered has none", "", job.version("10:30", "active", jobspec.Schedule{})},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := test.past
			p.t = t
			got := p.slots(from, to, func(slot ExpectedSlot) string {
				return fmt.Sprintf("%s v%d%s", clock(slot.At), slot.Version, [...]string{"", " waiting", " unsure"}[slot.Duty])
			})
			if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
				t.Error(diff)
			}
			p.consistent()
			var before []string
			for _, slot := range got {
				if at, _, _ := strings.Cut(slot, " "); at >= "11:00" {
					before = append(before, at)
				}
			}
			p.Trim(instant(t, "11:00"))
			trimmed := p.slots("11:00", to, func(slot ExpectedSlot) string { return clock(slot.At) })
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
		must(p.t, err)
		slots = append(slots, write(slot))
	}
	return slots
}

// consistent checks that Find, Before and After agree with Slots.
func (p past) consistent() {
	p.t.Helper()
	var before time.Time
	for slot, err := range p.Slots(instant(p.t, "00:00"), instant(p.t, "23:00")) {
		must(p.t, err)
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
	p := past{t: t}.version("2026-03-27T00:00:00Z", "active", jobspec.Schedule{Cron: "30 2 * * *", Timezone: "Europe/Berlin"})
	got := p.slots("2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z", func(slot ExpectedSlot) string {
		return slot.At.Format(time.RFC3339)
	})
	want := []string{"2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAHistoryThatCannotBeReadIsAnError(t *testing.T) {
	p := past{t: t}.version("00:00", "active", jobspec.Schedule{Cron: "rubbish"})
	for _, err := range p.Slots(instant(t, "01:00"), instant(t, "02:00")) {
		if err == nil {
			t.Error("no error")
		}
		return
	}
	t.Error("nothing was yielded")
}
