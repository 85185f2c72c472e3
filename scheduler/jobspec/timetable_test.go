package jobspec

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/cron"
)

func TestTimetableFirst(t *testing.T) {
	for _, c := range []struct{ name, schedule, now, want string }{
		{"cron: the first slot after now", `"cron":"0 * * * *"`, "03:00", "04:00"},
		{"cron: in its zone", `"cron":"0 3 * * *","timezone":"America/Los_Angeles"`, "03:00", "10:00"},
		{"every: aligned to the epoch", `"every":"90s"`, "03:00:01", "03:01:30"},
		{"every: strictly after now", `"every":"1h"`, "03:00", "04:00"},
		{"every: aligned to starts_at", `"every":"1h","starts_at":"2026-10-10T00:17:05Z"`, "03:00", "03:17:05"},
		{"every: starts_at is the first slot", `"every":"1h","starts_at":"2026-10-12T00:17:05Z"`, "03:00", "12T00:17:05"},
		{
			"every: starts_at is rounded up to a second",
			`"every":"1h","starts_at":"2026-10-12T00:17:04.001Z"`, "03:00", "12T00:17:05",
		},
		{"cron: starts_at may be a slot", `"cron":"0 * * * *","starts_at":"2026-10-12T07:00:00Z"`, "03:00", "12T07:00"},
		{
			"cron: no slot before starts_at",
			`"cron":"0 * * * *","starts_at":"2026-10-12T07:00:00.000001Z"`, "03:00", "12T08:00",
		},
		{"ends_at may be a slot", `"cron":"0 * * * *","ends_at":"2026-10-11T04:00:00Z"`, "03:00", "04:00"},
		{"none after ends_at", `"cron":"0 * * * *","ends_at":"2026-10-11T03:59:59.999Z"`, "03:00", ""},
		{"every: none after ends_at", `"every":"1h","ends_at":"2026-10-11T03:59:59.999Z"`, "03:00", ""},
		{"at: its instant", `"at":"2026-10-11T05:00:00+02:00"`, "02:00", "03:00"},
		{"at: in the past it keeps its instant", `"at":"2020-01-01T00:00:00Z"`, "03:00", "2020-01-01T00:00:00Z"},
		{"at: it is never rounded down", `"at":"2026-10-11T05:00:00.0000001Z"`, "03:00", "05:00:00.001"},
		{"at: whole milliseconds stay", `"at":"2026-10-11T05:00:00.123Z"`, "03:00", "05:00:00.123"},
		{"delay: from now", `"delay":"5m"`, "03:00:00.25", "03:05:00.25"},
		{"delay: rounded up to a millisecond", `"delay":"5m"`, "03:00:00.250001", "03:05:00.251"},
		{"delay: of nothing is now", `"delay":"0s"`, "03:00", "03:00"},
		{"none: never", ``, "03:00", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := scheduled(t, c.schedule)
			slot, ok := table.First(instant(t, c.now))
			if ok != (c.want != "") {
				t.Fatalf("First: %v, %t", slot, ok)
			}
			if ok && !slot.At.Equal(instant(t, c.want)) {
				t.Errorf("First is %s, want %s", slot.At, instant(t, c.want))
			}
			if slot.At.Location() != time.UTC {
				t.Errorf("First is in %s", slot.At.Location())
			}
		})
	}
}

func TestTimetableNextAndPrev(t *testing.T) {
	for _, c := range []struct{ name, schedule, at, next, prev string }{
		{"between two slots", `"cron":"0 * * * *"`, "03:30", "04:00", "03:00"},
		{"on a slot", `"cron":"0 * * * *"`, "03:00", "04:00", "03:00"},
		{"just before a slot", `"every":"1h"`, "02:59:59.999999", "03:00", "02:00"},
		{"every, on a slot", `"every":"1h"`, "03:00", "04:00", "03:00"},
		{"before starts_at", `"every":"1h","starts_at":"2026-10-11T05:30:00Z"`, "03:00", "05:30", ""},
		{"on starts_at", `"every":"1h","starts_at":"2026-10-11T05:30:00Z"`, "05:30", "06:30", "05:30"},
		{"cron before starts_at", `"cron":"0 * * * *","starts_at":"2026-10-11T05:30:00Z"`, "05:45", "06:00", ""},
		{"after ends_at", `"every":"1h","ends_at":"2026-10-11T05:30:00Z"`, "23:00", "", "05:00"},
		{"cron after ends_at", `"cron":"0 * * * *","ends_at":"2026-10-11T05:00:00Z"`, "23:00", "", "05:00"},
		{"a one-shot has neither", `"at":"2026-10-11T05:00:00Z"`, "03:00", "", ""},
		{"nor has a job that only triggers fire", ``, "03:00", "", ""},
		{
			"through a clock change",
			`"cron":"30 2 * * *","timezone":"Europe/Berlin"`, "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z",
			"2026-03-28T01:30:00Z",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := scheduled(t, c.schedule)
			at := instant(t, c.at)
			next, okNext := table.Next(at, nil)
			memoised, okMemo := table.Next(at, new(cron.Memo))
			prev, okPrev := table.Prev(at)
			if okNext != okMemo || next != memoised {
				t.Errorf("a memo changes Next from %v to %v", next, memoised)
			}
			if okNext != (c.next != "") || okNext && !next.At.Equal(instant(t, c.next)) {
				t.Errorf("Next is %v, %t; want %q", next, okNext, c.next)
			}
			if okPrev != (c.prev != "") || okPrev && !prev.At.Equal(instant(t, c.prev)) {
				t.Errorf("Prev is %v, %t; want %q", prev, okPrev, c.prev)
			}
		})
	}
}

func TestTimetableBetween(t *testing.T) {
	for _, c := range []struct{ name, schedule, from, to, want string }{
		{"the first is included, the last is not", `"cron":"0 * * * *"`, "03:00", "06:00", "03 04 05"},
		{"between slots", `"every":"1h"`, "02:00:00.000001", "05:00:00.000001", "03 04 05"},
		{
			"only those of the schedule's life",
			`"every":"1h","starts_at":"2026-10-11T04:00:00Z","ends_at":"2026-10-11T05:00:00Z"`, "03:00", "08:00", "04 05",
		},
		{"none when there is no slot", `"cron":"0 * * * *"`, "03:00:01", "03:59:59", ""},
		{"none of a one-shot", `"at":"2026-10-11T04:00:00Z"`, "03:00", "05:00", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var hours []string
			for at := range scheduled(t, c.schedule).Between(instant(t, c.from), instant(t, c.to)) {
				hours = append(hours, at.Format("15"))
			}
			if got := strings.Join(hours, " "); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestTimetableNotesClockChanges(t *testing.T) {
	t.Parallel()
	table := scheduled(t, `"cron":"30 2 * * *","timezone":"Europe/Berlin"`)
	next, _ := table.Next(instant(t, "2026-03-28T12:00:00Z"), nil)
	prev, _ := table.Prev(next.At)
	if next.Note == "" || prev != next {
		t.Errorf("Next %v, Prev %v: want one and the same with a note", next, prev)
	}
}

func TestJitterApplies(t *testing.T) {
	const deployment = 10 * time.Second
	for _, c := range []struct {
		name, definition string
		longest          time.Duration
	}{
		{"by default to cron slots a minute apart", `"schedule":{"cron":"* * * * *"}`, deployment},
		{"by default to six fields a minute apart", `"schedule":{"cron":"30 * * * * *"}`, deployment},
		{"not by default to cron slots seconds apart", `"schedule":{"cron":"*/30 * * * * *"}`, 0},
		{"not by default to every", `"schedule":{"every":"1h"}`, 0},
		{"to every that asks for it", `"schedule":{"every":"1h"},"jitter":"1m"`, time.Minute},
		{"in place of the default", `"schedule":{"cron":"0 * * * *"},"jitter":"1m"`, time.Minute},
		{"unless opted out of", `"schedule":{"cron":"0 * * * *"},"jitter":"0s"`, 0},
		{"not to one-shots", `"schedule":{"at":"2026-10-11T05:00:00Z"}`, 0},
		{"not to jobs without a schedule", `"schedule":{}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			slot, latest := instant(t, "05:00"), time.Duration(0)
			for i := range 200 {
				id := jobID
				binary.BigEndian.PutUint32(id[12:], uint32(i))
				table := timetable(t, id, "{"+c.definition+"}", deployment)
				offset := table.Due(slot, nil).Sub(slot)
				if offset < 0 || offset != 0 && offset >= c.longest {
					t.Fatalf("due %s after the slot, want [0, %s)", offset, c.longest)
				}
				latest = max(latest, offset)
			}
			if latest < c.longest*9/10 {
				t.Errorf("of 200 jobs none is due later than %s after its slot; jitter is %s", latest, c.longest)
			}
			d := definition(t, "{"+c.definition+"}")
			if shown := d.EffectiveJitter(deployment); shown.Value() != c.longest || shown.IsZero() {
				t.Errorf("shown as %q, want %s", shown, c.longest)
			}
		})
	}
}

func TestJitterSpreadsEvenly(t *testing.T) {
	t.Parallel()
	const jobs, bins = 10_000, 10
	var count [bins]int
	slot := instant(t, "05:00")
	for range jobs {
		id, err := uuid.NewV7()
		must(t, err)
		offset := timetable(t, id, `{"schedule":{"cron":"0 * * * *"},"jitter":"10s"}`, 0).Due(slot, nil).Sub(slot)
		count[offset*bins/(10*time.Second)]++
	}
	for i, n := range count {
		if n < jobs/bins*8/10 || n > jobs/bins*12/10 {
			t.Errorf("second %d: %d of %d jobs", i, n, jobs)
		}
	}
}

// With any jitter, 40 jobs of the same slot spread evenly over the jitter, or over half the gap. A χ² test of their
// due times in bins checks it. The ids are fixed, so that chance plays no part. Both ids as they are really made and
// ids that differ in only a few bits must spread.
func TestFortyJobsWithAnyJitterPassAChiSquareTest(t *testing.T) {
	t.Parallel()
	const jobs, bins = 40, 8
	const bound = 24.3 // χ² with 7 degrees of freedom exceeds it once in a thousand times
	ids := map[string]func(round, i int) uuid.UUID{
		"ids of UUIDv7": func(round, i int) uuid.UUID {
			id := uuid.NewSHA1(uuid.UUID{byte(round)}, []byte{byte(i)})
			binary.BigEndian.PutUint32(id[:], 0x0199c9a2)
			return id
		},
		"ids that count": func(round, i int) uuid.UUID {
			id := jobID
			binary.BigEndian.PutUint32(id[12:], uint32(round*jobs+i))
			return id
		},
	}
	for kind, id := range ids {
		for _, c := range []struct {
			schedule, jitter string
			span             time.Duration // the time over which they must spread
		}{
			{`"cron":"0 * * * *"`, "1s", time.Second},
			{`"cron":"0 * * * *"`, "10s", 10 * time.Second},
			{`"cron":"0 * * * *"`, "29m", 29 * time.Minute},
			{`"cron":"0 * * * *"`, "30m", 30 * time.Minute},
			{`"cron":"0 * * * *"`, "31m", 30 * time.Minute},
			{`"cron":"0 * * * *"`, "24h", 30 * time.Minute},
			{`"cron":"* * * * *"`, "10m", 30 * time.Second},
			{`"cron":"0 5,17 * * *"`, "24h", 6 * time.Hour},
			{`"every":"1h"`, "3h", 30 * time.Minute},
			{`"every":"1s"`, "1m", 500 * time.Millisecond},
		} {
			t.Run(kind+" "+c.schedule+" "+c.jitter, func(t *testing.T) {
				slot, sum := instant(t, "05:00"), 0.0
				const rounds = 8
				for round := range rounds {
					var count [bins]int
					for i := range jobs {
						table := timetable(t, id(round, i), `{"schedule":{`+c.schedule+`},"jitter":"`+c.jitter+`"}`, 0)
						offset := table.Due(slot, nil).Sub(slot)
						if offset < 0 || offset >= c.span {
							t.Fatalf("due %s after its slot, want [0, %s)", offset, c.span)
						}
						count[offset*bins/c.span]++
					}
					x := chiSquare(count[:])
					if sum += x; x > bound {
						t.Errorf("round %d: χ² is %.1f, more than %.1f: %v", round, x, bound, count)
					}
				}
				// The mean of χ² equals its degrees of freedom. A lower mean would mean jobs too regular for chance.
				if mean := sum / rounds; mean < bins-1-2.5 || mean > bins-1+2.5 {
					t.Errorf("the mean of χ² is %.1f, want about %d", mean, bins-1)
				}
			})
		}
	}
}

// chiSquare returns Pearson's statistic for counts that should all be the same.
func chiSquare(counts []int) (x float64) {
	total := 0
	for _, n := range counts {
		total += n
	}
	expected := float64(total) / float64(len(counts))
	for _, n := range counts {
		x += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	return x
}

// Gaps of different lengths lead to different offsets. Slots still become due in order, also across clock changes.
func TestDueIsInOrderWhereGapsDiffer(t *testing.T) {
	t.Parallel()
	for _, schedule := range []string{
		`"cron":"0 9,17 * * *"`, `"cron":"0,1,2,30 9-17 * * mon-fri"`, `"cron":"0 0 1,2 * *"`,
		`"cron":"30 1,2,3 * * *","timezone":"Europe/Berlin"`, `"cron":"0,20 * * * * *"`,
		`"cron":"*/20 0-3 * * *","timezone":"Australia/Lord_Howe"`,
	} {
		for i := range 4 {
			id := jobID
			id[15] = byte(i)
			table := timetable(t, id, `{"schedule":{`+schedule+`},"jitter":"24h"}`, 0)
			slot, _ := table.Next(instant(t, "2026-03-26T00:00:00Z"), nil)
			var before time.Time
			for range 100 {
				next, ok := table.Next(slot.At, nil)
				due := table.Due(slot.At, nil)
				if !ok || due.Before(slot.At) || !due.After(before) || due.After(slot.At.Add(next.At.Sub(slot.At)/2)) {
					t.Fatalf("%s of job %s: slot %s is due at %s, the slot before at %s, the next slot is %s", schedule, id, slot.At,
						due, before, next.At)
				}
				slot, before = next, due
			}
		}
	}
}
