package cron

import (
	"strings"
	"testing"
	"time"
)

func TestIntervalMeansEveryHour(t *testing.T) {
	for expr, want := range map[string]bool{
		"* * * * *":          true,
		"*/15 * * * *":       true,
		"30 0-23 1 * *":      true,
		"0 */1 * * *":        true,
		"0 0/1 * * *":        true,
		"0 12-23,0-11 * * *": true,
		"0 */2,1/2 * * *":    true,
		"@hourly":            true,
		"0 0-22 * * *":       false,
		"*/15 9-17 * * *":    false,
		"0 */2 * * *":        false,
		"0 3 * * *":          false,
		"@daily":             false,
	} {
		if got := MustParse(expr).interval; got != want {
			t.Errorf("%q: interval is %t", expr, got)
		}
	}
}

func TestSubMinute(t *testing.T) {
	for expr, want := range map[string]bool{
		"* * * * *":       false,
		"30 * * * * *":    false,
		"*/60 * * * * *":  false,
		"*/30 * * * * *":  true,
		"0,1 0 0 1 1 *":   true,
		"* * * * * *":     true,
		"5-5 * * * * *":   false,
		"@hourly":         false,
		"59/1 0 0 * * *":  false,
		"58/1 0 0 * * *":  true,
		"0,0,0 0 0 * * *": false,
	} {
		if got := MustParse(expr).SubMinute(); got != want {
			t.Errorf("%q: SubMinute() = %t", expr, got)
		}
	}
}

// The canonical text is numeric and short. It is the same for all ways of writing an expression.
func TestCanonicalText(t *testing.T) {
	for expr, want := range map[string]string{
		"* * * * *":                           "0 * * * * *",
		"  0-59\t*/1 ? 1-12 0-6 ":             "0 * * * * *",
		"0,15,30,45 9-17 * * mon-FRI":         "0 0-45/15 9-17 * * 1-5",
		"*/15 9-17 * JAN-dec 1,2,3,4,5":       "0 0-45/15 9-17 * * 1-5",
		"5,3,4,4,40-42,50 00 * * *":           "0 3-5,40-42,50 0 * * *",
		"0 0 * * 5-7":                         "0 0 0 * * 0,5-6",
		"0 0 13 * fri":                        "0 0 0 13 * 5",
		"0 0 1-31 * 5":                        "0 0 0 * * *",
		"0 0 5 * *,1":                         "0 0 0 5 * *",
		"0 0 */2 * 1":                         "0 0 0 */31,3-31/2 * 1",
		"0 0 13 * */2":                        "0 0 0 13 * */7,2-6/2",
		"0 0 L,15W,1 * sunL,tue#2,7#1":        "0 0 0 1,L,15W * 0#1,0L,2#2",
		"0 0 l-2,LW,L-30,L * *":               "0 0 0 L,L-2,L-30,LW * *",
		"@midnight":                           "0 0 0 * * *",
		"@weekly":                             "0 0 0 * * 0",
		"0,1,2,3 0 0 * * 0,1,2,3,4,5,6,7,*/3": "0-3 0 0 * * *",
	} {
		got := MustParse(expr).text
		if len(strings.Fields(got)) != 6 {
			t.Errorf("%q became %q", expr, got)
		}
		if expr == "0 0 L,15W,1 * sunL,tue#2,7#1" { // the order of items for one weekday does not matter
			got = strings.Replace(got, "0L,0#1", "0#1,0L", 1)
		}
		if got != want {
			t.Errorf("%q became %q, want %q", expr, got, want)
		}
	}
}

func TestStringIsAsWritten(t *testing.T) {
	const expr = " */5  * * * Mon "
	if got := MustParse(expr).String(); got != expr {
		t.Errorf("got %q", got)
	}
}

// A write of a job asks for its expression in several rooms.
func TestAnExpressionIsParsedOnce(t *testing.T) {
	text := "1 2 3 4 mon"
	if first, again := MustParse(text), MustParse(strings.Clone(text)); first != again {
		t.Error("it was parsed again")
	}
}

func TestMustParsePanicsOnAnError(t *testing.T) {
	defer func() {
		if r, ok := recover().(string); !ok || !strings.Contains(r, "minute") {
			t.Errorf("panicked with %v", r)
		}
	}()
	MustParse("70 * * * *")
}

// Calendars end: RFC 3339 cannot write a time after the year 9999, so there is no slot.
func TestTheEndsOfTime(t *testing.T) {
	e := MustParse("0 0 1 1 *")
	if slot, ok := e.Next(time.Date(9998, 6, 1, 0, 0, 0, 0, time.UTC), time.UTC); !ok || slot.At.Year() != 9999 {
		t.Errorf("after 9998: %v, %t", slot, ok)
	}
	for _, at := range []time.Time{
		time.Date(9999, 6, 1, 0, 0, 0, 0, time.UTC),
		time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(1<<60, 0),
		time.Unix(1<<63-1, 0),
	} {
		for _, name := range []string{"UTC", "America/New_York", "Africa/Casablanca"} {
			if slot, ok := e.Next(at, mustZone(t, name)); ok {
				t.Errorf("Next(%d) in %s = %v", at.Unix(), name, slot)
			}
			if _, ok := e.Prev(at, mustZone(t, name)); !ok {
				t.Errorf("Prev(%d) in %s = none", at.Unix(), name)
			}
		}
	}
	for _, at := range []time.Time{{}, time.Unix(-1<<60, 0)} {
		for _, name := range []string{"UTC", "America/New_York"} {
			if slot, ok := e.Prev(at, mustZone(t, name)); ok && slot.At.After(at) {
				t.Errorf("Prev(%d) in %s = %v", at.Unix(), name, slot)
			}
			if _, ok := e.Next(at, mustZone(t, name)); !ok {
				t.Errorf("Next(%d) in %s = never", at.Unix(), name)
			}
		}
	}
}

// The rarest days come well within the bound of the search.
func TestTheRarestDaysAreFound(t *testing.T) {
	for _, expr := range []string{"0 0 29 2 */7", "0 0 * 2 6#5", "* * * 2 3#5", "0 0 29W 2 *", "0 0 */28 2 4#5", "0 0 L-28 2 *"} {
		e, err := Parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		at, zone := time.Date(1800, 1, 1, 0, 0, 0, 0, time.UTC), mustZone(t, "Europe/Berlin")
		for at.Year() < 2300 {
			slot, ok := e.Next(at, zone)
			if !ok {
				t.Fatalf("%q after %s: never", expr, at)
			}
			at = slot.At.AddDate(0, 0, 3)
		}
	}
}
