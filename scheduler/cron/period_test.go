package cron

import (
	"testing"
	"time"
)

// In every zone, the periods from 1850 to 2110 follow each other without holes. Each ends with a real change of the
// clock, and its offset is the one that package time shows.
func TestPeriodsTileAllTime(t *testing.T) {
	t.Parallel()
	from, to := instant(0).AddDate(-120, 0, 0).Unix(), instant(0).AddDate(140, 0, 0).Unix()
	for _, name := range Zones().names {
		zone := mustZone(t, name)
		p := periodAt(from, zone)
		for count := 0; p.end < to; count++ {
			next := periodAt(p.end, zone)
			if next.start != p.end || next.previous != p.offset || next.offset != p.following {
				t.Fatalf("%s: %+v is followed by %+v", name, p, next)
			}
			if p.offset == p.following {
				t.Fatalf("%s: %+v ends without a change", name, p)
			}
			for _, at := range []int64{next.start, next.start + (min(next.end, to)-next.start)/2, min(next.end, to) - 1} {
				if got := offsetAt(at, zone); got != next.offset {
					t.Fatalf("%s: %s has offset %d, not as in %+v", name, instant(at), got, next)
				}
				if q := periodAt(at, zone); q != next {
					t.Fatalf("%s: at %s the period is %+v, from its start it was %+v", name, instant(at), q, next)
				}
			}
			if count > 2000 {
				t.Fatalf("%s: no progress at %s", name, instant(p.end))
			}
			p = next
		}
	}
}

// No change is overlooked, hour by hour from 2036 to 2048, when zone files hold rules for the changes instead of
// records of them.
func TestPeriodsOverlookNoChange(t *testing.T) {
	t.Parallel()
	for name := range changes {
		zone := mustZone(t, name)
		from, to := parseTime(t, "2036-01-01T00:00:00Z").Unix(), parseTime(t, "2049-01-02T00:00:00Z").Unix()
		p := periodAt(from, zone)
		for at := from; at < to; at += 3600 {
			if at >= p.end {
				p = periodAt(at, zone)
			}
			if at < p.start || at >= p.end {
				t.Fatalf("%s: %s is not in %+v", name, instant(at), p)
			}
			if got := offsetAt(at, zone); got != p.offset {
				t.Fatalf("%s: %s has offset %d, not as in %+v", name, instant(at), got, p)
			}
		}
	}
}

// Next and Prev rely on this: the time that a change of the clock skips or repeats is over before the next change. It
// has been true in every zone since 1900. Should an update of the zone data break it, this test fails.
func TestNoPeriodIsShorterThanTheChangesAroundIt(t *testing.T) {
	t.Parallel()
	for _, name := range Zones().names {
		zone := mustZone(t, name)
		from := time.Date(1900, time.January, 1, 0, 0, 0, 0, time.UTC)
		count := 0
		for p := periodAt(from.Unix(), zone); p.end < forever && instant(p.end).Year() < 2100; p = periodAt(p.end, zone) {
			if count++; count > 2000 {
				t.Fatalf("%s: no progress at %s", name, instant(p.end))
			}
			if length := p.end - p.start; length < p.gap() || length < p.offset-p.following {
				t.Errorf("%s: %+v from %s", name, p, instant(p.start))
			}
		}
	}
}
