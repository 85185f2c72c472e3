package jobspec

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"punctual/scheduler/cron"
)

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Fatalf(format string, args ...any)
}

var _ = []failer{(*testing.T)(nil), (*rapid.T)(nil)}

// sameSlots compares the slots of an expression in 2027 and 2028 with those of a text of another system, day by day.
// The reader of the text is written from the documentation of the system, and shares nothing with the translation.
func sameSlots(t failer, dialect, text, ours string) {
	fields := strings.Fields(strings.ToLower(text))
	if dialect == "aws" || dialect == "kubernetes" {
		fields = append([]string{"0"}, fields...)
	}
	if len(fields) == 7 && fields[6] == "*" {
		fields = fields[:6]
	}
	if len(fields) != 6 {
		t.Fatalf("%s %q became %q", dialect, text, ours)
	}
	r := reader{failer: t, dialect: dialect}
	var of [3][60]bool // the seconds, minutes and hours
	times := 1
	for i, most := range []int{59, 59, 23} {
		selected := 0
		for n := range most + 1 {
			if of[i][n] = r.has(fields[i], n, 0, most); of[i][n] {
				selected++
			}
		}
		times *= selected
	}
	const most = 1000 // slots of a day that are looked at
	e := cron.MustParse(ours)
	step := min(max(1, times/50), 13) // days of many slots are looked at less often
	for day := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2029; day = day.AddDate(0, 0, step) {
		want := 0
		if r.month(fields[4], day) && r.onDay(fields[3], fields[5], day) {
			want = min(times, most)
		}
		got := 0
		for at := range e.Between(day, day.AddDate(0, 0, 1), time.UTC) {
			if !of[0][at.Second()] || !of[1][at.Minute()] || !of[2][at.Hour()] {
				t.Fatalf("%s %q became %q, which fires at %s", dialect, text, ours, at)
			}
			if got++; got == most {
				break
			}
		}
		if got != want {
			t.Fatalf("%s %q became %q: %d slots on %s, want %d", dialect, text, ours, got, day.Format(time.DateOnly), want)
		}
	}
}

// A schedule of the table with a letter changed is refused, or fires as it does in its system.
func TestATranslationOfAChangedScheduleFiresAsTheirs(t *testing.T) {
	t.Parallel()
	var texts, dialects []string
	for dialect, text := range tableRows(t) {
		if slices.Contains(cron.Dialects, dialect) {
			texts, dialects = append(texts, text), append(dialects, dialect)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		i := rapid.IntRange(0, len(texts)-1).Draw(r, "row")
		text := mutated(r, texts[i])
		ours, err := Schedule{Cron: text}.Translate(dialects[i])
		if err == nil && ours.Kind() == KindCron && len(ours.Validate()) == 0 {
			sameSlots(r, dialects[i], theirExpression(text), ours.Cron)
		}
	})
}

// theirExpression takes the zone and cron( ) off an expression.
func theirExpression(text string) string {
	text, _ = cron.WithoutZone(text)
	text, _ = strings.CutPrefix(strings.ToLower(strings.TrimSpace(text)), "cron(")
	return strings.TrimSuffix(text, ")")
}

type reader struct {
	failer
	dialect string
}

// onDay combines the two day fields. Quartz and EventBridge restrict one of them only.
func (r reader) onDay(day, weekday string, date time.Time) bool {
	onDay, onWeekday := r.day(day, date), r.weekday(weekday, date)
	either := r.dialect == "kubernetes" && strings.Trim(day, "*?") != "" && strings.Trim(weekday, "*?") != ""
	return onDay && onWeekday || either && (onDay || onWeekday)
}

// has reports whether a list of *, n, n-m and these with a step has a value. Where ranges may go on from the start of
// the field, one that ends before it starts does.
func (r reader) has(list string, value, lowest, highest int) bool {
	for item := range strings.SplitSeq(list, ",") {
		body, stepText, stepped := strings.Cut(item, "/")
		from, to, ranged := strings.Cut(body, "-")
		lo, hi, step := lowest, highest, 1
		if body != "*" && body != "?" && body != "" {
			lo = r.number(from)
			if hi = lo; ranged {
				hi = r.number(to)
			} else if stepped {
				hi = highest
			}
		}
		if stepped {
			step = r.number(stepText)
		}
		v := value
		if hi < lo {
			hi += highest - lowest + 1
			if v < lo {
				v += highest - lowest + 1
			}
		}
		if v >= lo && v <= hi && (v-lo)%step == 0 {
			return true
		}
	}
	return false
}

// sunday is the number of Sunday.
func (r reader) sunday() int {
	if r.dialect == "quartz" || r.dialect == "aws" {
		return 1
	}
	return 0
}

func (r reader) number(text string) int {
	if i := strings.Index("sun mon tue wed thu fri sat", text); len(text) == 3 && i >= 0 {
		return i/4 + r.sunday()
	}
	if i := strings.Index("jan feb mar apr may jun jul aug sep oct nov dec", text); len(text) == 3 && i >= 0 {
		return i/4 + 1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		r.Fatalf("%s has no %q", r.dialect, text)
	}
	return n
}

func (r reader) month(list string, date time.Time) bool { return r.has(list, int(date.Month()), 1, 12) }

// day reads days of the month, with L, L-3, LW and 15W.
func (r reader) day(list string, date time.Time) bool {
	last := time.Date(date.Year(), date.Month()+1, 0, 0, 0, 0, 0, time.UTC)
	for item := range strings.SplitSeq(list, ",") {
		before, fromEnd := strings.CutPrefix(item, "l")
		of, nearest := strings.CutSuffix(item, "w")
		switch {
		case item == "lw":
			for last.Weekday() == time.Saturday || last.Weekday() == time.Sunday {
				last = last.AddDate(0, 0, -1)
			}
			if date.Day() == last.Day() {
				return true
			}
		case fromEnd:
			if date.Day() == last.Day()-r.number("0"+strings.TrimPrefix(before, "-")) {
				return true
			}
		case nearest:
			if nearestWeekday(date, r.number(of), last.Day()) == date.Day() {
				return true
			}
		case r.has(item, date.Day(), 1, 31):
			return true
		}
	}
	return false
}

// nearestWeekday returns the day from Monday to Friday that is nearest to a day, in the same month. A month without the
// day has none.
func nearestWeekday(month time.Time, day, last int) int {
	if day > last {
		return 0
	}
	switch time.Date(month.Year(), month.Month(), day, 0, 0, 0, 0, time.UTC).Weekday() {
	case time.Saturday:
		if day == 1 {
			return 3
		}
		return day - 1
	case time.Sunday:
		if day == last {
			return day - 2
		}
		return day + 1
	}
	return day
}

// weekday reads days of the week, with 6L and 2#1, and Quartz's L for Saturday.
func (r reader) weekday(list string, date time.Time) bool {
	today := int(date.Weekday()) + r.sunday()
	is := func(day string) bool { // 7 is Sunday where 0 is
		return r.has(day, today, r.sunday(), r.sunday()+6) || r.sunday() == 0 && today == 0 && r.has(day, 7, 0, 7)
	}
	for item := range strings.SplitSeq(list, ",") {
		weekday, nth, numbered := strings.Cut(item, "#")
		last, isLast := strings.CutSuffix(item, "l")
		switch {
		case item == "l":
			if date.Weekday() == time.Saturday {
				return true
			}
		case numbered:
			if is(weekday) && r.number(nth) == (date.Day()+6)/7 {
				return true
			}
		case isLast:
			if is(last) && date.AddDate(0, 0, 7).Month() != date.Month() {
				return true
			}
		case strings.ContainsAny(item, "*?") && !strings.Contains(item, "/"), is(item):
			return true
		}
	}
	return false
}
