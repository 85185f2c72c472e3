package jobspec

import (
	"testing"
	"time"
)

func TestClosest(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 30, 0, time.UTC)
	for _, c := range []struct {
		name, schedule string
		enough         time.Duration
		gap            time.Duration // 0: the schedule has no two slots
		at             string
	}{
		{"every", `"every":"90s"`, time.Hour, 90 * time.Second, "2026-03-01T00:01:30Z"},
		{"each second", `"cron":"* * * * * *"`, time.Minute, time.Second, "2026-03-01T00:00:31Z"},
		{"unequal gaps", `"cron":"0,50 * * * *"`, time.Hour, 10 * time.Minute, "2026-03-01T00:50:00Z"},
		{"the end of a month", `"cron":"0 0 1,31 * *"`, 48 * time.Hour, 24 * time.Hour, "2026-03-31T00:00:00Z"},
		{"far enough by what it is, however often", `"cron":"* * * * *"`, time.Minute, time.Minute, "2026-03-01T00:01:00Z"},
		// On the October day when Lord Howe's clocks go forward by half an hour, 02:00 does not exist.
		// So 02:05 runs at 02:35, five minutes before 02:40.
		{
			"a change of the clocks", `"cron":"5,40 2 * * *","timezone":"Australia/Lord_Howe"`,
			35 * time.Minute, 5 * time.Minute, "2026-10-03T15:35:00Z",
		},
		{"one slot before its end", `"cron":"0 0 * * *","ends_at":"2026-03-02T12:00:00Z"`, time.Hour, 0, ""},
		{"a one-shot", `"delay":"1s"`, time.Hour, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			gap, at, ok := scheduled(t, c.schedule).Closest(now, c.enough)
			if ok != (c.gap > 0) || ok && (gap != c.gap || at.UTC().Format(time.RFC3339) != c.at) {
				t.Errorf("%s at %s, %t; want %s at %s", gap, at.UTC().Format(time.RFC3339), ok, c.gap, c.at)
			}
		})
	}
}

func BenchmarkClosest(b *testing.B) {
	table := scheduled(b, `"cron":"7,37 3-5 * * mon-fri","timezone":"America/Los_Angeles"`)
	for b.Loop() {
		table.Closest(time.Now(), time.Hour)
	}
}
