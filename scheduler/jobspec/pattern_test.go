package jobspec

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPatternsTellTimetablesApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, one, other string
		same             bool
	}{
		{"the same text", `"cron":"0 3 * * *"`, `"cron":"0 3 * * *"`, true},
		{"the same expression, written otherwise", `"cron":"0 3 * * *"`, `"cron":"0 0 03 ? * *","timezone":"UTC"`, true},
		{"other hours", `"cron":"0 3 * * *"`, `"cron":"0 4 * * *"`, false},
		{"other zones", `"cron":"0 3 * * *"`, `"cron":"0 3 * * *","timezone":"Asia/Tokyo"`, false},
		{"starts_at that has passed", `"cron":"0 3 * * *"`, `"cron":"0 3 * * *","starts_at":"2026-10-01T00:00:00Z"`, true},
		{"starts_at to come", `"cron":"0 3 * * *"`, `"cron":"0 3 * * *","starts_at":"2026-10-30T00:00:00Z"`, false},
		{"ends_at", `"cron":"0 3 * * *"`, `"cron":"0 3 * * *","ends_at":"2026-10-30T00:00:00Z"`, false},
		{"the same period", `"every":"90s"`, `"every":"1m30s"`, true},
		{"other periods", `"every":"90s"`, `"every":"91s"`, false},
		{"anchors whole periods apart", `"every":"1h"`, `"every":"1h","starts_at":"2026-10-01T05:00:00Z"`, true},
		{"other anchors", `"every":"1h"`, `"every":"1h","starts_at":"2026-10-01T05:00:01Z"`, false},
	} {
		now := instant(t, "03:00")
		one := scheduled(t, c.one).Pattern(now)
		if other := scheduled(t, c.other).Pattern(now); (one == other) != c.same {
			t.Errorf("%s: the patterns are %+v and %+v", c.name, one, other)
		}
	}
	now := instant(t, "03:00")
	if scheduled(t, `"every":"1h"`).Pattern(now) ==
		timetable(t, jobID, `{"schedule":{"every":"1h"},"jitter":"1m"}`, 0).Pattern(now) {
		t.Error("the jitter does not matter")
	}
}

func TestEqualPatternsHaveTheSameSlots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		from := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
		found := map[Pattern][]time.Time{}
		for range 20 {
			text := rapid.SampledFrom([]string{`"every":"7m"`, `"every":"1h"`, `"cron":"30 2,14 * * *","timezone":"Europe/Berlin"`}).
				Draw(r, "kind")
			if rapid.Bool().Draw(r, "starts") {
				text += fmt.Sprintf(`,"starts_at":%q`,
					from.Add(time.Duration(rapid.IntRange(-20, 10).Draw(r, "starts_at"))*time.Hour).Format(time.RFC3339))
			}
			if rapid.Bool().Draw(r, "ends") {
				text += fmt.Sprintf(`,"ends_at":%q`,
					from.Add(time.Duration(rapid.IntRange(20, 40).Draw(r, "ends_at"))*time.Hour).Format(time.RFC3339))
			}
			table := scheduled(t, text)
			pattern := table.Pattern(from)
			slots := slices.Collect(table.Between(from, from.Add(30*time.Hour)))
			var oneByOne []time.Time
			for slot, ok := table.Next(from.Add(-1), nil); ok && slot.At.Before(from.Add(30*time.Hour)); {
				oneByOne = append(oneByOne, slot.At)
				slot, ok = table.Next(slot.At, nil)
			}
			if !slices.Equal(slots, oneByOne) {
				r.Fatalf("%s: Between finds %v, and Next %v", text, slots, oneByOne)
			}
			if other, known := found[pattern]; known && !slices.Equal(slots, other) {
				r.Fatalf("%s has another slot than another timetable of the pattern %+v", text, pattern)
			}
			found[pattern] = slots
		}
	})
}
