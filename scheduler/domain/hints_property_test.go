package domain

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
		if meant, ok := ScheduleMeant(text); ok {
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

// An expression that is proposed for one with a year has the days and times of the one that was written, read by a
// reader of its own that counts the days from Sunday, 1.
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
		meant, ok := scheduleMeant(text)
		if _, err := cron.Parse(text); !ok || err == nil || meant.Kind() != KindCron {
			return
		}
		sameSlots(r, text, meant.Cron)
	})
}

// sameSlots compares the slots of a proposal in 2027 and 2028 with those of a text, day by day.
func sameSlots(r *rapid.T, text, proposal string) {
	fields := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "cron("), ")"))
	if len(fields) == 6 {
		fields = append([]string{"0"}, fields...)
	}
	if len(fields) != 7 || fields[6] != "*" {
		r.Fatalf("%q became %q", text, proposal)
	}
	times := 1
	for i, most := range []int{59, 59, 23} {
		selected := 0
		for n := range most + 1 {
			if reads(r, fields[i], n, 0, most) {
				selected++
			}
		}
		times *= selected
	}
	e := cron.MustParse(proposal)
	for day := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2029; day = day.AddDate(0, 0, 13) {
		want := 0
		if readsDay(r, fields[3], day) && reads(r, fields[4], int(day.Month()), 1, 12) &&
			readsWeekday(r, fields[5], day) {
			want = times
		}
		got := 0
		for range e.Between(day, day.AddDate(0, 0, 1), time.UTC) {
			got++
		}
		if got != want {
			r.Fatalf("%q became %q: %d slots on %s, want %d", text, proposal, got, day.Format(time.DateOnly), want)
		}
	}
}

// reads reports whether a list of *, n, n-m and these with a step has a value.
func reads(r *rapid.T, list string, value, lowest, highest int) bool {
	for item := range strings.SplitSeq(list, ",") {
		body, stepText, stepped := strings.Cut(item, "/")
		from, to, ranged := strings.Cut(body, "-")
		lo, hi, step := lowest, highest, 1
		if body != "*" && body != "?" {
			lo = readsNumber(r, from)
			if hi = lo; ranged {
				hi = readsNumber(r, to)
			} else if stepped {
				hi = highest
			}
		}
		if stepped {
			step = readsNumber(r, stepText)
		}
		if value >= lo && value <= hi && (value-lo)%step == 0 {
			return true
		}
	}
	return false
}

func readsNumber(r *rapid.T, text string) int {
	if i := strings.Index("sun mon tue wed thu fri sat", text); len(text) == 3 && i >= 0 {
		return i/4 + 1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		r.Fatalf("a proposal was made for a text with %q", text)
	}
	return n
}

// readsDay is reads for days of the month, with L and L-3.
func readsDay(r *rapid.T, list string, day time.Time) bool {
	for item := range strings.SplitSeq(list, ",") {
		before, fromEnd := strings.CutPrefix(item, "l")
		if !fromEnd && reads(r, item, day.Day(), 1, 31) {
			return true
		}
		n := 0
		if before != "" && fromEnd {
			n = readsNumber(r, strings.TrimPrefix(before, "-"))
		}
		if last := time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day(); fromEnd && day.Day() == last-n {
			return true
		}
	}
	return false
}

// readsWeekday is reads for days of the week from 1, Sunday, with 6L and 2#1.
func readsWeekday(r *rapid.T, list string, day time.Time) bool {
	for item := range strings.SplitSeq(list, ",") {
		weekday, nth, numbered := strings.Cut(item, "#")
		last, isLast := strings.CutSuffix(item, "l")
		switch {
		case numbered && reads(r, weekday, int(day.Weekday())+1, 1, 7):
			if readsNumber(r, nth) == (day.Day()+6)/7 {
				return true
			}
		case isLast && reads(r, last, int(day.Weekday())+1, 1, 7):
			if day.AddDate(0, 0, 7).Month() != day.Month() {
				return true
			}
		case !numbered && !isLast && reads(r, item, int(day.Weekday())+1, 1, 7):
			return true
		}
	}
	return false
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
		meant, ok := scheduleMeant(text)
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
