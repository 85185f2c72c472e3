package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTranslations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dialect, theirs, ours string }{
		{"quartz", "0 30 9 ? * 2-6", "0 30 9 * * MON-FRI"},
		{"quartz", "0 0 12 ? * SUN,7", "0 0 12 * * SUN,SAT"},
		{"quartz", "0 0 9 ? * 2#1", "0 0 9 * * MON#1"},
		{"quartz", "0 0 9 ? * 6L *", "0 0 9 * * FRIL"},
		{"quartz", "0 0 9 ? * L", "0 0 9 * * SAT"},
		{"quartz", "0 0 9 LW * ?", "0 0 9 LW * *"},
		{"quartz", "0 0 22-2 * * ?", "0 0 22,23,0,1,2 * * *"},
		{"quartz", "0 /15 * * * ?", "0 */15 * * * *"},
		{"quartz", "0 0 9 ? NOV-FEB FRI-MON", "0 0 9 * 11,12,1,2 FRI,SAT,SUN,MON"},
		{"spring", "0 0 9 1-7 * MON", "0 0 9 * * MON#1"},
		{"spring", "0 0 9 8-14 * TUE,THU", "0 0 9 * * TUE#2,THU#2"},
		{"spring", "0 0 9 */2 * MON", "0 0 9 */2 * MON"},
		{"spring", "0 0 9 * * 1-5", "0 0 9 * * 1-5"},
		{"spring", "@daily", "@daily"},
		{"kubernetes", "0 0 */2 * 1", "0 0 1-31/2 * 1"},
		{"kubernetes", "0 0 13 * */3", "0 0 13 * 0-6/3"},
		{"kubernetes", "0 0 ? * 1", "0 0 * * 1"},
		{"kubernetes", "0 23 * * wed,sun", "0 23 * * WED,SUN"},
		{"kubernetes", "0 0 * * */7", "0 0 * * 0-6/7"},
		{"aws", "cron(0 10 * * ? *)", "0 10 * * *"},
		{"aws", "0 18 ? * MON-FRI *", "0 18 * * MON-FRI"},
		{"aws", "cron(0/10 * ? * 2-6 *)", "0/10 * * * MON-FRI"},
	} {
		ours, err := Translate(c.dialect, c.theirs)
		if err != nil || ours != c.ours {
			t.Errorf("%s %q: %q, %v; want %q", c.dialect, c.theirs, ours, err, c.ours)
		}
	}
	for _, c := range []struct{ dialect, theirs, says string }{
		{"quartz", "0 0 9 1 * 2", "one of them must be ?"},
		{"quartz", "0 0 9 ? * 0", "Sunday to Saturday"},
		{"quartz", "0 0 9 1 1 ? 2027", "starts_at and ends_at"},
		{"quartz", "0 9 * * *", "this dialect has 6"},
		{"quartz", "58 5 21 128-5 1 ?", "128 is outside 1-31"},
		{"quartz", "0 0 9 ? * * ?", "the year"},
		{"spring", "0 0 22-2 * * *", "ends before it starts"},
		{"kubernetes", "0 9 * * FRI-MON", "ends before it starts"},
		{"spring", "0 0 9 13 * FRI", "both day fields must match in Spring"},
		{"kubernetes", "0 0 L * *", "Kubernetes has no such day"},
		{"kubernetes", "0 0 * * 7", "Kubernetes has no such day"},
		{"aws", "cron(0 10 1 * 2 *)", "one of them must be ?"},
		{"aws", "cron(0 7 ? */3 ? *)", "only one of them may be ?"},
		{"celery", "* * * * *", "quartz, spring, kubernetes, aws"},
	} {
		if ours, err := Translate(c.dialect, c.theirs); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %q: %q, %v; want %q", c.dialect, c.theirs, ours, err, c.says)
		}
	}
}

// their draws an item of a day field, and returns what it selects in a system whose values run from least to most.
func their(t *rapid.T, least, most int, wraps bool) (item string, selects []int) {
	lo, hi, step := rapid.IntRange(least, most).Draw(t, "lo"), rapid.IntRange(least, most).Draw(t, "hi"), 1
	if !wraps && hi < lo {
		lo, hi = hi, lo
	}
	switch rapid.SampledFrom([]string{"n", "n-m", "*/s", "n/s", "n-m/s"}).Draw(t, "form") {
	case "n":
		return strconv.Itoa(lo), []int{lo}
	case "n-m":
		item = fmt.Sprintf("%d-%d", lo, hi)
	case "*/s":
		step = rapid.IntRange(2, most-least).Draw(t, "step")
		lo, hi, item = least, most, fmt.Sprintf("*/%d", step)
	case "n/s":
		step = rapid.IntRange(1, most-least).Draw(t, "step")
		hi, item = most, fmt.Sprintf("%d/%d", lo, step)
	default:
		step = rapid.IntRange(1, most-least).Draw(t, "step")
		item = fmt.Sprintf("%d-%d/%d", lo, hi, step)
	}
	if hi < lo {
		hi += most - least + 1
	}
	for n := lo; n <= hi; n += step {
		selects = append(selects, (n-least)%(most-least+1)+least)
	}
	return item, selects
}

// Each system's rule is written down here once more, as it documents it, and walked day by day.
func TestATranslationFiresOnTheSameDays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dialect := rapid.SampledFrom(Dialects).Draw(t, "dialect")
		first := map[string]int{"quartz": 1, "aws": 1}[dialect] // Sunday's number
		wraps := first == 1
		day, days := their(t, 1, 31, wraps)
		weekday, weekdays := their(t, first, first+6, wraps)
		either := rapid.SampledFrom([]string{"both", "day", "weekday"}).Draw(t, "restricted")
		if wraps && either == "both" {
			either = "day"
		}
		switch either {
		case "day":
			weekday, weekdays = "?", nil
		case "weekday":
			day, days = "?", nil
		}
		theirs := strings.Join([]string{"0 0", day, "*", weekday}, " ")
		switch dialect {
		case "quartz", "spring":
			theirs = "0 " + theirs
		case "aws":
			theirs += " *"
		}
		ours, err := Translate(dialect, theirs)
		if err != nil {
			if dialect == "spring" && strings.Contains(err.Error(), "both day fields") {
				return // it cannot be said
			}
			t.Fatalf("%s: %v", theirs, err)
		}
		e := MustParse(ours)
		for at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() == 2027; at = at.AddDate(0, 0, 1) {
			onDay := slices.Contains(days, at.Day())
			onWeekday := slices.Contains(weekdays, int(at.Weekday())+first)
			want := onDay || onWeekday
			if dialect == "spring" && either == "both" {
				want = onDay && onWeekday
			}
			slot, ok := e.Next(at.Add(-time.Second), time.UTC)
			if got := ok && slot.At.Equal(at); got != want {
				t.Fatalf("%s %q is %q, which fires on %s: %t, want %t", dialect, theirs, ours, at.Format("Mon 2 Jan"), got, want)
			}
		}
	})
}
