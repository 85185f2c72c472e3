package domain

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestClosest(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 30, 0, time.UTC)
	tests := []struct {
		name     string
		schedule Schedule
		enough   time.Duration
		gap      time.Duration // 0: the schedule has no two slots
		at       string
	}{
		{"every", Schedule{Every: DurationOf(90 * time.Second)}, time.Hour, 90 * time.Second, "2026-03-01T00:01:30Z"},
		{"each second", Schedule{Cron: "* * * * * *"}, time.Minute, time.Second, "2026-03-01T00:00:31Z"},
		{"unequal gaps", Schedule{Cron: "0,50 * * * *"}, time.Hour, 10 * time.Minute, "2026-03-01T00:50:00Z"},
		{"the end of a month", Schedule{Cron: "0 0 1,31 * *"}, 48 * time.Hour, 24 * time.Hour, "2026-03-31T00:00:00Z"},
		{
			"far enough by what it is, however often",
			Schedule{Cron: "* * * * *"},
			time.Minute, time.Minute, "2026-03-01T00:01:00Z",
		},
		// On the October day when Lord Howe's clocks go forward by half an hour, 02:00 does not exist.
		// So 02:05 runs at 02:35, five minutes before 02:40.
		{
			"a change of the clocks",
			Schedule{Cron: "5,40 2 * * *", Timezone: "Australia/Lord_Howe"},
			35 * time.Minute, 5 * time.Minute,
			"2026-10-03T15:35:00Z",
		},
		{
			"one slot before its end",
			Schedule{Cron: "0 0 * * *", EndsAt: InstantOf(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))},
			time.Hour, 0, "",
		},
		{"a one-shot", Schedule{Delay: DurationOf(time.Second)}, time.Hour, 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table, err := NewTimetable(uuid.New(), Definition{Schedule: test.schedule}.WithDefaults(), 0)
			if err != nil {
				t.Fatal(err)
			}
			gap, at, ok := table.Closest(now, test.enough)
			if ok != (test.gap > 0) || ok && (gap != test.gap || at.UTC().Format(time.RFC3339) != test.at) {
				t.Errorf("%s at %s, %t; want %s at %s", gap, at.UTC().Format(time.RFC3339), ok, test.gap, test.at)
			}
		})
	}
}

func BenchmarkClosest(b *testing.B) {
	table, err := NewTimetable(uuid.New(), Definition{
		Schedule: Schedule{Cron: "7,37 3-5 * * mon-fri", Timezone: "America/Los_Angeles"},
	}.WithDefaults(), 0)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		table.Closest(time.Now(), time.Hour)
	}
}
