package cron_test

import (
	"testing"
	"time"

	"punctual/scheduler/cron"
)

func TestAGapThatIsLongerThanALengthIsFound(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC) // a Wednesday
	for _, test := range []struct {
		expr   string
		length time.Duration
		gap    time.Duration // 0: none
	}{
		{"0 3 * * mon-fri", 26 * time.Hour, 72 * time.Hour},
		{"0 3 * * mon-fri", 72 * time.Hour, 73 * time.Hour}, // in October
		{"0 3 * * mon-fri", 73 * time.Hour, 0},
		{"0 3 * * *", 24 * time.Hour, 25 * time.Hour},
		{"0 3 * * *", 26 * time.Hour, 0},
		{"*/5 8-17 * * *", time.Hour, 14*time.Hour + 5*time.Minute},
		{"* * * * *", time.Minute, 0},
		{"* * * * *", 59 * time.Second, time.Minute},
		{"0 0 1 * *", 30 * 24 * time.Hour, 31*24*time.Hour - time.Hour}, // in March
		{"0 0 29 2 *", 24 * time.Hour, (3*365 + 366) * 24 * time.Hour},
	} {
		last, gap, ok := cron.MustParse(test.expr).GapOver(test.length, from, berlin)
		if gap != test.gap || ok != (gap > 0) {
			t.Errorf("%s and %s: a gap of %s after %s", test.expr, test.length, gap, last)
		}
	}
}

func BenchmarkGapOver(b *testing.B) {
	e, from := cron.MustParse("*/5 8-17 * * *"), time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)
	for b.Loop() {
		e.GapOver(26*time.Hour, from, time.UTC)
	}
}
