package cron

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// oneByOne finds the slots of a range with Next.
func oneByOne(e *Expression, from, to time.Time, zone *time.Location) (slots []time.Time) {
	slot, ok := e.Next(from.Add(-1), zone)
	for ok && slot.At.Before(to) {
		slots = append(slots, slot.At)
		slot, ok = e.Next(slot.At, zone)
	}
	return slots
}

func TestBetweenFindsWhatNextFinds(t *testing.T) {
	t.Parallel()
	changes := []string{
		"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", // Berlin
		"2026-11-01T06:00:00Z", "2026-03-08T07:00:00Z", // New York
		"2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z", // Lord Howe, by half an hour
		"2011-12-30T10:00:00Z", "2026-09-06T04:00:00Z", // Apia, by a day; Santiago, at midnight
		"2028-12-31T12:00:00Z", "2026-06-15T12:00:00Z",
	}
	zones := []string{
		"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Santiago",
		"Asia/Kathmandu",
	}
	rapid.Check(t, func(r *rapid.T) {
		e, err := Parse(drawExpression(r).text)
		if err != nil {
			return // it can never fire
		}
		zone := mustZone(t, rapid.SampledFrom(zones).Draw(r, "zone"))
		change := parseTime(r, rapid.SampledFrom(changes).Draw(r, "change"))
		from := change.Add(time.Duration(rapid.Int64Range(-30e6, 6e6).Draw(r, "from, in ms")) * time.Millisecond)
		to := from.Add(time.Duration(rapid.IntRange(0, 15*3600).Draw(r, "span, in s")) * time.Second)
		if e.SubMinute() { // there are many slots, and Next is slow
			to = from.Add(to.Sub(from) / 20)
		}
		want := oneByOne(e, from, to, zone)
		if got := slices.Collect(e.Between(from, to, zone)); !slices.Equal(got, want) {
			r.Fatalf("%q in %s from %s to %s: %v, want %v", e, zone, from, to, got, want)
		}
	})
}

func TestBetweenReachesFarAndEnds(t *testing.T) {
	t.Parallel()
	zone := mustZone(t, "Europe/Berlin")
	n := 0
	var last time.Time
	for at := range MustParse("0 3 29 2 mon").Between(benchSlot, benchSlot.AddDate(10000, 0, 0), zone) {
		if n++; n == 1000 {
			break
		}
		last = at
	}
	if n != 1000 || last.Before(benchSlot) {
		t.Errorf("%d slots, the last at %s", n, last)
	}
	n = 0
	for at := range MustParse("0 0 1 1 *").Between(time.Date(9990, 1, 1, 0, 0, 0, 1, time.UTC),
		time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), time.UTC) {
		n, last = n+1, at
	}
	if n != 9 || last.Year() != 9999 {
		t.Errorf("%d slots, the last at %s", n, last)
	}
	for range MustParse("* * * * *").Between(benchSlot, benchSlot, zone) {
		t.Error("a slot in no time")
	}
}

func BenchmarkBetween(b *testing.B) {
	for _, expr := range []string{"* * * * *", "*/15 * * * *", "0 3 * * mon-fri"} {
		b.Run(expr, func(b *testing.B) {
			e, zone, n := MustParse(expr), mustZone(b, "America/New_York"), 0
			for b.Loop() {
				for range e.Between(benchSlot, benchSlot.AddDate(0, 0, 7), zone) {
					n++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/slot")
		})
	}
}
