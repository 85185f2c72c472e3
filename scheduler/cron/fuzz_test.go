package cron

import (
	"strings"
	"testing"
	"time"
)

// FuzzParse checks that Parse answers any text at once, and that every expression it accepts can be used.
func FuzzParse(f *testing.F) {
	for _, row := range rows(f, "bad.txt", 3) {
		f.Add(row[0], int64(1_772_000_000))
	}
	for _, row := range rows(f, "slots.txt", 4) {
		f.Add(row[1], parseTime(f, row[2]).Unix())
	}
	f.Add(strings.Repeat("*/1,", 60)+"* * * * *", int64(-1<<40))
	f.Add("1,3,6,10,15,21,28,36,45,55 1,3,6,10,15,21,28,36,45,55 1,3,6,10,15,21 1W,3W,6W,L 1,4,9 1#5,2L", int64(1<<40))
	zone := mustZone(f, "America/New_York")
	f.Fuzz(func(t *testing.T, expr string, unix int64) {
		// The bound is generous because the race detector and busy machines are slow. It is meant to catch seconds.
		began := time.Now()
		e, err := Parse(expr)
		if err != nil {
			badFields(t, err)
			atOnce(t, began, expr)
			return
		}
		again, err := Parse(e.String())
		if err != nil || again.text != e.text {
			t.Fatalf("%q parses once, but not twice: %v", expr, err)
		}
		if fields := strings.Fields(e.text); len(fields) != 6 || len(e.text) > 700 {
			t.Fatalf("%q became %q", expr, e.text)
		}
		if again, err := Parse(e.text); err != nil || again.calendar != e.calendar || again.interval != e.interval {
			t.Fatalf("%q became %q, which means something else: %v", expr, e.text, err)
		}
		at := time.Unix(unix%8_000_000_000, 0)
		for range 3 {
			next, ok := e.Next(at, zone)
			if !ok || !next.At.After(at) {
				t.Fatalf("%q: Next(%s) = %+v, %t", expr, at, next, ok)
			}
			if prev, ok := e.Prev(next.At, zone); !ok || prev != next {
				t.Fatalf("%q: Next(%s) = %+v, but Prev of that = %+v", expr, at, next, prev)
			}
			at = next.At
		}
		atOnce(t, began, expr)
	})
}

func atOnce(t *testing.T, began time.Time, expr string) {
	t.Helper()
	if took := time.Since(began); took > 2*time.Second {
		t.Fatalf("%.80q took %s", expr, took)
	}
}
