package cron

import (
	"testing"
	"time"
)

func TestNotesAreForPeople(t *testing.T) {
	for _, test := range []struct{ zone, expr, after, want string }{
		{"UTC", "30 2 * * *", "2026-03-07T00:00:00Z", ""},
		{"America/New_York", "30 2 * * *", "2026-03-08T00:00:00-05:00", "02:30 does not exist on this day; moved to 03:30"},
		{
			"America/New_York",
			"30 2,3 * * *", "2026-03-08T00:00:00-05:00", "02:30 does not exist on this day; merged with 03:30",
		},
		{"America/New_York", "30 1 * * *", "2026-11-01T00:00:00-04:00", "01:30 occurs twice on this day; this is the first"},
		{
			"America/New_York",
			"5 30 2 * * *", "2026-03-08T00:00:00-05:00", "02:30:05 does not exist on this day; moved to 03:30:05",
		},
		{"America/Havana", "0 0 * * *", "2026-03-07T12:00:00-05:00", "00:00 does not exist on this day; moved to 01:00"},
		{
			"Pacific/Apia",
			"0 3 30 12 *", "2011-12-28T12:00:00-10:00", "2011-12-30 03:00 does not exist; moved to 2011-12-31 03:00",
		},
		{"America/New_York", "*/30 * * * *", "2026-11-01T01:00:00-04:00", ""},
	} {
		slot, ok := MustParse(test.expr).Next(parseTime(t, test.after), mustZone(t, test.zone))
		if got := slot.Note.String(); !ok || got != test.want {
			t.Errorf("%s %q: note %q, want %q", test.zone, test.expr, got, test.want)
		}
		if ordinary := slot.Note == (Note{}); ordinary != (test.want == "") {
			t.Errorf("%s %q: note %+v", test.zone, test.expr, slot.Note)
		}
	}
}

func TestMemoAnswersLikeNext(t *testing.T) {
	var memo Memo
	for range 2 {
		for _, expr := range []string{"30 2 * * *", "*/15 * * * *", "0 30 2 * * *", "30 2 * * mon"} {
			for name := range changes {
				for _, after := range []string{"2026-03-08T00:00:00-05:00", "2026-11-01T00:00:00-04:00"} {
					e, zone, at := MustParse(expr), mustZone(t, name), parseTime(t, after)
					want, wantOK := e.Next(at, zone)
					if got, ok := memo.Next(e, at, zone); got != want || ok != wantOK {
						t.Errorf("%q in %s after %s: %v, %t, want %v, %t", expr, name, after, got, ok, want, wantOK)
					}
				}
			}
		}
	}
	if len(memo.answers) != 3*2*len(changes) { // the first and third expression are the same
		t.Errorf("%d answers remembered", len(memo.answers))
	}
}

// Fractions of a second count: Next is strictly after the instant, Prev at or before it.
func TestFractionsOfASecond(t *testing.T) {
	e, noon := MustParse("* * * * * *"), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, base := range []time.Time{noon, time.Date(1931, 1, 1, 12, 0, 0, 0, time.UTC)} {
		half := base.Add(time.Second / 2)
		if next, _ := e.Next(half, time.UTC); !next.At.Equal(base.Add(time.Second)) {
			t.Errorf("Next(%s) = %s", half, next.At)
		}
		if prev, _ := e.Prev(half, time.UTC); !prev.At.Equal(base) {
			t.Errorf("Prev(%s) = %s", half, prev.At)
		}
	}
}
