package cron

import (
	"math"
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
		// The bound is meant to catch seconds of work. A machine that stands still for once does not do so five times.
		took := time.Duration(math.MaxInt64)
		for n := 0; n < 5 && took > 2*time.Second; n++ {
			began := time.Now()
			usable(t, expr, time.Unix(unix%8_000_000_000, 0), zone)
			took = min(took, time.Since(began))
		}
		if took > 2*time.Second {
			t.Fatalf("%.80q took %s each time", expr, took)
		}
	})
}

// usable checks that an expression is refused with an error that names its fields, or has slots after an instant.
func usable(t *testing.T, expr string, at time.Time, zone *time.Location) {
	t.Helper()
	e, err := Parse(expr)
	if err != nil {
		badFields(t, err)
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
}
