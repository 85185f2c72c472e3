package jobspec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"punctual/scheduler/cron"
)

// Of numbers alone a unit or a field may be missing.
func TestNothingIsProposedForNumbersAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringMatching(`[ \t]?[0-9]{1,6}([ \t]{1,2}[0-9]{1,4}){0,7}[ \t]?`).Draw(r, "text")
		if meant, ok := durationMeant(text); ok {
			r.Errorf("%q: %s", text, meant)
		}
		if meant := (Schedule{}).Meant(text); meant != "" {
			r.Errorf("%q: %s", text, meant)
		}
		said := NotADuration(text)
		for _, p := range (Schedule{Cron: text}).Validate() {
			said += p.Message
		}
		if strings.Contains(said, "use \"") || strings.Contains(said, "use {") {
			r.Errorf("%q: %s", text, said)
		}
	})
}

// A proposed duration is the sum of what stands in the text, read by a reader of its own, whatever letter is changed.
func TestAProposedDurationIsTheWrittenOne(t *testing.T) {
	t.Parallel()
	names := []string{
		"s", "sec", "seconds", "m", "min", "Minutes", "h", "hrs", "hour", "d", "days", "w", "week", "M", "ms", "month", "",
	}
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.SampledFrom([]string{"", "", "every ", "@every ", "PT", "P"}).Draw(r, "prefix")
		for range rapid.IntRange(1, 3).Draw(r, "parts") {
			text += strconv.Itoa(rapid.IntRange(0, 100000).Draw(r, "n")) +
				rapid.SampledFrom([]string{"", " "}).Draw(r, "space") + rapid.SampledFrom(names).Draw(r, "unit") +
				rapid.SampledFrom([]string{"", " ", ", ", " and "}).Draw(r, "separator")
		}
		text = mutated(r, text)
		meant, ok := durationMeant(text)
		if !ok {
			return
		}
		got, err := time.ParseDuration(meant)
		if want, readable := readDuration(text); err != nil || !readable || got != want {
			r.Fatalf("%q became %s, want %s (%t)", text, meant, want, readable)
		}
	})
}

var durationPart = regexp.MustCompile(`^[\s,]*(?:and\s+)?([0-9]+)\s*([A-Za-z]+)`)

// readDuration reads "1 hour, 5 min" and PT1H5M. Every number needs a unit, and M is a month but for ISO's T.
func readDuration(text string) (sum time.Duration, ok bool) {
	text = strings.TrimSpace(text)
	for _, prefix := range []string{"every", "@every"} {
		if len(text) > len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
			text = strings.TrimSpace(text[len(prefix):])
		}
	}
	iso := text != "" && (text[0] == 'P' || text[0] == 'p')
	if iso {
		date, clock, _ := strings.Cut(strings.ToUpper(text[1:]), "T")
		if strings.Contains(date, "M") {
			return 0, false
		}
		text = strings.ToLower(date + clock)
	}
	for text = strings.TrimRight(text, " ,\t\n"); text != ""; {
		part := durationPart.FindStringSubmatch(text)
		if iso && part == nil || part == nil {
			return 0, false
		}
		unit := part[2]
		if iso || len(unit) == 1 && strings.Contains("smhdwSHDW", unit) {
			unit = strings.ToLower(part[2][:1]) // in ISO the next part follows at once
		}
		length := map[string]time.Duration{
			"ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9, "w": 604800e9,
		}[unit]
		for _, long := range []string{"second", "minute", "hour", "day", "week"} {
			lower := strings.ToLower(unit)
			short := strings.TrimSuffix(lower, "s") // secs
			if len(unit) > 1 && strings.HasPrefix(long+"s", lower) || len(short) > 1 && strings.HasPrefix(long, short) {
				length = map[byte]time.Duration{'s': 1e9, 'm': 60e9, 'h': 3600e9, 'd': 86400e9, 'w': 604800e9}[long[0]]
			}
		}
		if strings.EqualFold(unit, "ms") {
			length = 1e6
		}
		if length == 0 {
			if length = map[string]time.Duration{"hr": 3600e9, "hrs": 3600e9}[strings.ToLower(unit)]; length == 0 {
				return 0, false
			}
		}
		n, _ := strconv.Atoi(part[1])
		sum += time.Duration(n) * length
		text = text[len(part[0])-len(part[2])+len(unit):]
	}
	return sum, true
}

// mutated changes a letter of a text, or none.
func mutated(r *rapid.T, text string) string {
	at := rapid.IntRange(0, len(text)-1).Draw(r, "at")
	letter := rapid.SampledFrom([]string{"", " ", "1", "7", "*", "?", "-", ",", "/", "L", "#", "M", "s", "x"}).Draw(r, "letter")
	switch rapid.IntRange(0, 3).Draw(r, "change") {
	case 0:
		return text[:at] + letter + text[at:]
	case 1:
		return text[:at] + letter + text[at+1:]
	}
	return text
}

// An expression that is proposed for one with a year has the days and times of the one that was written.
func TestAProposedExpressionHasTheWrittenSlots(t *testing.T) {
	t.Parallel()
	number := func(lo, hi int) *rapid.Generator[string] {
		return rapid.Custom(func(r *rapid.T) string {
			a := rapid.IntRange(lo, hi).Draw(r, "a")
			switch rapid.IntRange(0, 3).Draw(r, "form") {
			case 0:
				return fmt.Sprintf("%d-%d", a, rapid.IntRange(a, hi).Draw(r, "b"))
			case 1:
				return fmt.Sprintf("%d/%d", a, rapid.IntRange(1, 5).Draw(r, "step"))
			case 2:
				return "*"
			}
			return strconv.Itoa(a)
		})
	}
	weekday := rapid.OneOf(number(1, 7), rapid.SampledFrom([]string{"MON", "TUE-FRI", "2#1", "6L", "SAT,1", "7", "1,3", "L"}))
	rapid.Check(t, func(r *rapid.T) {
		fields := []string{
			number(0, 59).Draw(r, "second"), number(0, 59).Draw(r, "minute"), number(0, 23).Draw(r, "hour"), "?",
			number(1, 12).Draw(r, "month"), weekday.Draw(r, "weekday"), rapid.SampledFrom([]string{"*", "*", "2027"}).Draw(r, "year"),
		}
		if rapid.Bool().Draw(r, "by day") {
			fields[3], fields[5] = number(1, 31).Draw(r, "day"), "?"
		}
		if rapid.Bool().Draw(r, "six") {
			fields = fields[1:]
		}
		text := strings.Join(fields, " ")
		if len(fields) == 6 && rapid.Bool().Draw(r, "bracketed") {
			text = "cron(" + text + ")"
		}
		text = mutated(r, text)
		meant, ok := scheduleMeant(text, "")
		if _, err := cron.Parse(text); !ok || err == nil || meant.Kind() != KindCron {
			return
		}
		form := theirExpression(text)
		sameSlots(r, map[int]string{6: "aws", 7: "quartz"}[len(strings.Fields(form))], form, meant.Cron)
	})
}

// A calendar event of systemd has the weekdays and the time that it names.
func TestAProposedCalendarEventHasTheWrittenSlots(t *testing.T) {
	t.Parallel()
	days := []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}
	rapid.Check(t, func(r *rapid.T) {
		from, to := rapid.IntRange(0, 6).Draw(r, "from"), rapid.IntRange(0, 6).Draw(r, "to")
		h, m := rapid.IntRange(0, 23).Draw(r, "hour"), rapid.IntRange(0, 59).Draw(r, "minute")
		text := fmt.Sprintf("%s..%s %02d:%02d", days[from], days[to], h, m)
		if from == to {
			text = fmt.Sprintf("every %s at %d:%02d", strings.ToLower(days[from])+map[int]string{
				0: "day", 1: "day", 2: "sday", 3: "nesday", 4: "rsday", 5: "day", 6: "urday",
			}[from], h, m)
		}
		meant, ok := scheduleMeant(text, "")
		if !ok {
			if from <= to || to == 0 {
				r.Fatalf("%q means nothing", text)
			}
			return
		}
		e, day := cron.MustParse(meant.Cron), time.Date(2027, 1, 3, 0, 0, 0, 0, time.UTC) // a Sunday
		for weekday := range 7 {
			var want []time.Time
			if (weekday-from+7)%7 <= (to-from+7)%7 {
				want = []time.Time{day.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute)}
			}
			if got := slices.Collect(e.Between(day, day.AddDate(0, 0, 1), time.UTC)); !slices.Equal(got, want) {
				r.Fatalf("%q became %q: %v, want %v", text, meant.Cron, got, want)
			}
			day = day.AddDate(0, 0, 1)
		}
	})
}

// A date of systemd and its weekday must both match, and ~2 is the last day but one.
func TestAProposedDateHasTheWrittenDays(t *testing.T) {
	t.Parallel()
	days := []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}
	rapid.Check(t, func(r *rapid.T) {
		weekday, day := rapid.IntRange(-1, 6).Draw(r, "weekday"), rapid.IntRange(1, 28).Draw(r, "day")
		last, fromEnd := day+rapid.SampledFrom([]int{0, 1, 6}).Draw(r, "more"), rapid.Bool().Draw(r, "from the end")
		text := fmt.Sprintf("*-*-%d..%d 9:30", day, last)
		if fromEnd {
			day %= 10
			last, text = day, fmt.Sprintf("*-*~%02d 9:30", day)
		}
		if weekday >= 0 {
			text = days[weekday] + " " + text
		}
		meant, ok := scheduleMeant(text, "")
		if !ok {
			return
		}
		e := cron.MustParse(meant.Cron)
		for date := time.Date(2027, 1, 1, 9, 30, 0, 0, time.UTC); date.Year() == 2027; date = date.AddDate(0, 0, 1) {
			n := date.Day()
			if fromEnd {
				n = time.Date(2027, date.Month()+1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, -date.Day()).Day()
			}
			want := n >= day && n <= last && (weekday < 0 || int(date.Weekday()) == weekday)
			if slot, ok := e.Next(date.Add(-1), time.UTC); (ok && slot.At.Equal(date)) != want {
				r.Fatalf("%q became %q, which fires on %s: %t", text, meant.Cron, date.Format("Mon 2 Jan"), !want)
			}
		}
	})
}

// A step is proposed as a period if it is longer than its field, and then it is as long as it says.
func TestAProposedPeriodIsAsLongAsTheStep(t *testing.T) {
	t.Parallel()
	for form, unit := range map[string]time.Duration{
		"*/%d * * * * *": time.Second, "*/%d * * * *": time.Minute, "0 0/%d * * * ?": time.Minute, "0 */%d * * *": time.Hour,
		"0 0 */%d * * *": time.Hour,
	} {
		field := map[time.Duration]int{time.Second: 60, time.Minute: 60, time.Hour: 24}[unit]
		for n := 0; n < 10_000; n += 1 + n/200 { // each of the first hundreds, then fewer
			text := fmt.Sprintf(form, n)
			meant, ok := scheduleMeant(text, "")
			if n <= field && ok && meant.Kind() != KindCron {
				t.Fatalf("%q became %+v", text, meant)
			}
			long := time.Duration(n) * unit
			if n > field && long <= 366*24*time.Hour && (!ok || meant.Every.Value() != long) {
				t.Fatalf("%q became %+v, %t", text, meant, ok)
			}
		}
	}
}
