package cron

import (
	"testing"
	"time"
)

// A local time has the instant of the slot that an expression has which names it.
func TestLocalTimesAreSlots(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		zone, wall, want string
		note             Kind
	}{
		{"Europe/Berlin", "2027-01-01T09:00:00.25Z", "2027-01-01T08:00:00.25Z", 0},
		{"Europe/Berlin", "2026-03-29T02:30:00Z", "2026-03-29T01:30:00Z", Moved},
		{"Europe/Berlin", "2026-10-25T02:30:00Z", "2026-10-25T00:30:00Z", Repeated},
		{"Australia/Lord_Howe", "2026-10-04T02:15:00Z", "2026-10-03T15:45:00Z", Moved},
		{"Pacific/Apia", "2011-12-30T12:00:00Z", "2011-12-30T22:00:00Z", Moved},
		{"Pacific/Kiritimati", "2028-02-29T23:59:59Z", "2028-02-29T09:59:59Z", 0},
		{"Pacific/Pago_Pago", "2027-12-31T23:59:59Z", "2028-01-01T10:59:59Z", 0},
	} {
		slot := Local(parseTime(t, test.wall), mustZone(t, test.zone))
		if got := slot.At.Format(time.RFC3339Nano); got != test.want || slot.Note.Kind != test.note {
			t.Errorf("%s in %s is %s (%v), want %s", test.wall, test.zone, got, slot.Note, test.want)
		}
	}
}
