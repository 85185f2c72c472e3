package cron

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// changes lists instants to test around, by zone: clock changes of every sort and a few ordinary days.
var changes = map[string][]string{
	"America/New_York": {
		"2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z", "2040-12-31T12:00:00Z", "2040-03-11T07:00:00Z",
		"2026-07-15T12:00:00Z",
	},
	"Europe/Berlin": {
		"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "1947-05-11T01:00:00Z", "2044-12-31T23:00:00Z",
	},
	"America/Santiago": {"2026-04-05T03:00:00Z", "2026-09-06T04:00:00Z", "2040-12-31T00:00:00Z"},
	"America/Havana":   {"2026-03-08T05:00:00Z", "2025-11-02T05:00:00Z", "2026-02-28T12:00:00Z"},
	"Australia/Lord_Howe": {
		"2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z", "1981-02-28T14:00:00Z", "2026-12-31T12:00:00Z",
	},
	"Pacific/Apia": {
		"2011-12-30T10:00:00Z", "2012-03-31T14:00:00Z", "2011-09-24T14:00:00Z", "2010-09-26T11:00:00Z",
	},
	"Africa/Casablanca": {
		"2026-02-15T02:00:00Z", "2026-03-22T02:00:00Z", "2018-10-28T02:00:00Z", "2025-02-23T02:00:00Z",
	},
	"Europe/Dublin": {"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "1971-10-31T02:00:00Z"},
	"America/St_Johns": {
		"2026-03-08T05:30:00Z", "2026-11-01T04:30:00Z", "2010-03-14T03:31:00Z", "2010-11-07T02:31:00Z",
		"1988-04-03T03:31:00Z",
	},
	"Asia/Kathmandu":    {"1985-12-31T18:30:00Z"},
	"Pacific/Kwajalein": {"1993-08-21T12:00:00Z"},
	"Europe/Lisbon":     {"1996-03-31T01:00:00Z", "1992-09-27T01:00:00Z"},
	"Antarctica/Troll":  {"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"},
	"UTC":               {"2026-02-28T12:00:00Z", "2028-12-31T12:00:00Z", "2100-02-28T12:00:00Z"},
}

// Clocks change in 13 zones. The slots are those of a walk over every instant.
//
//prove:clocks
func TestNextAndPrevAgreeWithAWalkThroughTime(t *testing.T) {
	for name, moments := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone := mustZone(t, name)
			rapid.Check(t, func(t *rapid.T) {
				d := drawExpression(t)
				around := parseTime(t, rapid.SampledFrom(moments).Draw(t, "around"))
				from := around.Add(-time.Duration(rapid.IntRange(0, 28*3600).Draw(t, "before")) * time.Second)
				to := around.Add(time.Duration(rapid.IntRange(1, 28*3600).Draw(t, "beyond")) * time.Second)
				e := parseDrawn(t, d)
				if e.interval != d.interval {
					t.Fatalf("%q: interval is %t", d.text, e.interval)
				}
				want := d.slots(from, to, zone)
				if len(want) > 100 { // 100 are enough; schedules that fire hourly or less often stay below
					to = want[100].At
					want = want[:100]
				}
				if diff := cmp.Diff(want, walk(t, e, from, to, zone)); diff != "" {
					t.Fatalf("%q in %s, %s to %s (gronx: %q)\n-walk +Next:\n%s", d.text, name, from, to, e.text, diff)
				}
				if diff := cmp.Diff(want, walkBack(t, e, from, to, zone)); diff != "" {
					t.Fatalf("%q in %s, %s to %s (gronx: %q)\n-walk +Prev:\n%s", d.text, name, from, to, e.text, diff)
				}
			})
		})
	}
}

// Over decades, an expression in UTC fires on exactly the days that a check of every single day finds.
func TestEveryDayOfManyYears(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ofDay := drawField(t, "day", 1, 31, nil, time.Time.Day)
		ofMonth := drawField(t, "month", 1, 12, monthNames, func(w time.Time) int { return int(w.Month()) })
		ofWeekday := drawField(t, "weekday", 0, 7, weekdayNames, func(w time.Time) int { return int(w.Weekday()) })
		text := fmt.Sprintf("17 5 %s %s %s", ofDay.text, ofMonth.text, ofWeekday.text)
		both := ofDay.text[0] == '*' || ofWeekday.text[0] == '*'
		from := time.Date(rapid.IntRange(1890, 2150).Draw(t, "year"), 1, 1, 5, 17, 0, 0, time.UTC)
		var want []Slot
		for at := from; at.Before(from.AddDate(50, 0, 0)) && len(want) < 60; at = at.AddDate(0, 0, 1) {
			if !ofMonth.match(at) {
				continue
			}
			if day, weekday := ofDay.match(at), ofWeekday.match(at); both && day && weekday || !both && (day || weekday) {
				want = append(want, Slot{At: at})
			}
		}
		e, err := Parse(text)
		if len(want) == 0 {
			if err == nil {
				t.Fatalf("%q never fires from %s on, but is accepted", text, from)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q fires at %s: %v", text, want[0].At, err)
		}
		to := want[len(want)-1].At.Add(time.Second)
		if diff := cmp.Diff(want, walk(t, e, from, to, time.UTC)); diff != "" {
			t.Fatalf("%q from %s (gronx: %q)\n-days +Next:\n%s", text, from, e.text, diff)
		}
		if diff := cmp.Diff(want, walkBack(t, e, from, to, time.UTC)); diff != "" {
			t.Fatalf("%q to %s (gronx: %q)\n-days +Prev:\n%s", text, to, e.text, diff)
		}
	})
}

// At any instant in any zone, Prev and Next enclose the instant and lead to each other.
func TestPrevUndoesNext(t *testing.T) {
	t.Parallel()
	names := Zones().names
	rapid.Check(t, func(t *rapid.T) {
		e := parseDrawn(t, drawExpression(t))
		zone := mustZone(t, rapid.SampledFrom(names).Draw(t, "zone"))
		at := time.Unix(rapid.Int64Range(-5_000_000_000, 6_000_000_000).Draw(t, "at"), 0).UTC()
		next, ok := e.Next(at, zone)
		if !ok || !next.At.After(at) || next.At.Nanosecond() != 0 || next.At.Location() != time.UTC {
			t.Fatalf("%q: Next(%s) = %+v, %t", e, at, next, ok)
		}
		if back, ok := e.Prev(next.At, zone); !ok || back != next {
			t.Fatalf("%q in %s: Prev(%s) = %+v, want the slot itself, %+v", e, zone, next.At, back, next)
		}
		if back, ok := e.Prev(next.At.Add(-time.Second), zone); ok {
			if back.At.After(at) {
				t.Fatalf("%q in %s: Next(%s) passed over %s", e, zone, at, back.At)
			}
			if again, ok := e.Next(back.At, zone); !ok || again != next {
				t.Fatalf("%q in %s: Next(%s) = %+v, want %+v", e, zone, back.At, again, next)
			}
			if itself, ok := e.Next(back.At.Add(-time.Second), zone); !ok || itself != back {
				t.Fatalf("%q in %s: Next just before %+v = %+v", e, zone, back, itself)
			}
		}
	})
}

// The comparison with the oracle must be able to fail: it does when the oracle leaves out any single rule.
func TestTheOracleNoticesABrokenRule(t *testing.T) {
	on := func(match func(w time.Time) bool) oracle {
		return oracle{minutes: match, seconds: func(s int) bool { return s == 0 }}
	}
	daily := func(h, m int) oracle {
		return on(func(w time.Time) bool { return w.Hour() == h && w.Minute() == m })
	}
	quarters := on(func(w time.Time) bool { return w.Minute()%15 == 0 })
	quarters.interval = true
	without := func(o oracle, rule string) oracle { o.broken = rule; return o }
	oddMondays := func(either bool) oracle {
		return on(func(w time.Time) bool {
			odd, monday := w.Day()%2 == 1, w.Weekday() == time.Monday
			return w.Hour() == 9 && w.Minute() == 0 && (odd && monday || either && (odd || monday))
		})
	}
	const spring, autumn = "2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"
	for _, test := range []struct {
		rule, expr, around string
		right, wrong       oracle
	}{
		{"a time in a gap is not lost", "30 2 * * *", spring, daily(2, 30), without(daily(2, 30), "gaps are lost")},
		{"it moves by the gap's length", "30 2 * * *", spring, daily(2, 30), without(daily(2, 30), "gaps jump to their end")},
		{"a repeated time runs once", "30 1 * * *", autumn, daily(1, 30), without(daily(1, 30), "repeats run twice")},
		{"an interval never pauses", "*/15 * * * *", autumn, quarters, without(quarters, "intervals are fixed")},
		{"a star restricts", "0 9 */2 * mon", spring, oddMondays(false), oddMondays(true)},
		{"two restricted day fields mean either", "0 9 1-31/2 * mon", spring, oddMondays(true), oddMondays(false)},
	} {
		t.Run(test.rule, func(t *testing.T) {
			zone := mustZone(t, "America/New_York")
			around := parseTime(t, test.around)
			from, to := around.Add(-48*time.Hour), around.Add(48*time.Hour)
			got := walk(t, MustParse(test.expr), from, to, zone)
			if diff := cmp.Diff(test.right.slots(from, to, zone), got); diff != "" {
				t.Fatalf("with the rule in place:\n%s", diff)
			}
			if cmp.Equal(test.wrong.slots(from, to, zone), got) {
				t.Fatal("nobody noticed")
			}
		})
	}
}

func parseDrawn(t *rapid.T, d drawn) *Expression {
	e, err := Parse(d.text)
	if err != nil {
		if syntax, is := errors.AsType[*SyntaxError](err); is && syntax.Field == "day of month" {
			t.SkipNow() // an impossible day; TestEveryDayOfManyYears covers those
		}
		t.Fatalf("Parse(%q): %v", d.text, err)
	}
	return e
}

func parseTime(t rapid.TB, s string) time.Time {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UTC()
}
