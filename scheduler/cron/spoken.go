package cron

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// words of systemd, Rails, Laravel and others that mean the same everywhere. Weekly is not among them: it is Sunday in
// cron, and Monday in systemd.
var words = map[string]string{
	"minutely": "* * * * *", "hourly": "@hourly", "daily": "@daily", "midnight": "@midnight", "monthly": "@monthly",
	"quarterly": "0 0 1 1,4,7,10 *", "semi-annually": "0 0 1 1,7 *", "yearly": "@yearly", "annually": "@annually",
	"every second": "* * * * * *", "every minute": "* * * * *", "every hour": "@hourly", "every day": "@daily",
	"every month": "@monthly", "every year": "@yearly",
}

var (
	everyHour = regexp.MustCompile(`^every hour at minute (\d{1,2})$`)
	timeFirst = regexp.MustCompile(`^at (.+) (every .+)$`) // at 5am every day
	timeOfDay = regexp.MustCompile(`^(?:(every|each) )?([a-z]+(?:(?:, ?| and )[a-z]+)*)(?: at)? ` +
		`(?:(\d{1,2}):(\d\d)|(\d{1,2})(?::(\d\d))? ?([ap])m|(noon)|midnight)$`)
	between = regexp.MustCompile(`, ?| and `)
)

// inPlainWords reads daily, @every_minute, every hour at minute 12, every day at 2am, at noon every weekday and
// every monday, friday 09:00.
func inPlainWords(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	if macro, ok := strings.CutPrefix(text, "@"); ok {
		text = strings.ReplaceAll(macro, "_", " ")
	}
	if expr := words[text]; expr != "" {
		return expr
	}
	if found := everyHour.FindStringSubmatch(text); found != nil {
		return found[1] + " * * * *"
	}
	found := timeOfDay.FindStringSubmatch(timeFirst.ReplaceAllString(text, "$2 at $1"))
	if found == nil {
		return ""
	}
	weekdays := weekdaysInWords(found[2], found[1] != "")
	hours, _ := strconv.Atoi(found[3] + found[5])
	minutes, _ := strconv.Atoi(found[4] + found[6])
	if half := found[7]; half != "" {
		if hours < 1 || hours > 12 {
			return ""
		}
		if hours %= 12; half == "p" {
			hours += 12
		}
	}
	if found[8] != "" {
		hours = 12
	}
	if weekdays == "" {
		return ""
	}
	return fmt.Sprintf("%d %d * * %s", minutes, hours, weekdays)
}

// weekdaysInWords returns the day-of-week field for day, daily, weekday, or the names of weekdays; empty if it cannot.
// A day is each one, a daily is not.
func weekdaysInWords(text string, each bool) string {
	switch {
	case text == "day" && each, text == "daily" && !each:
		return "*"
	case text == "weekday" && each:
		return "mon-fri"
	}
	names := between.Split(text, -1)
	for i, name := range names {
		short := shortName(&specs[dayOfWeek], strings.ToUpper(strings.TrimSuffix(name, "s")))
		if short == "" {
			return ""
		}
		names[i] = strings.ToLower(short)
	}
	return strings.Join(names, ",")
}

// calendar events of systemd.time(7): Mon..Fri *-*-01 09:00:00, whose first two parts may be left out.
var calendarForm = regexp.MustCompile(`^(?:([A-Za-z][A-Za-z,.-]*?),?(?: |$))?` +
	`(?:(?:\*-)?([0-9*,./]+)(?:-([0-9*,./]+)|~0?([1-9]))(?: |$))?` +
	`(?:([0-9*,./]+):([0-9*,./]+)(?::([0-9*,./]+))?)?$`)

// calendarEvent reads a calendar event of systemd. It reads none without a time. A weekday and a day of the month must
// both match there: Sun *-*-1..7 is the first Sunday.
func calendarEvent(text string) string {
	found := calendarForm.FindStringSubmatch(strings.Join(strings.Fields(text), " "))
	if found == nil {
		return ""
	}
	weekday, mon, day, fromEnd, h, m, s := found[1], found[2], found[3], found[4], found[5], found[6], found[7]
	plainTime := !strings.ContainsAny(h, "*,./") && !strings.ContainsAny(m, ",./")
	if h == "" || weekday+day+fromEnd == "" && plainTime {
		return "" // 1:30 may be a time or a duration
	}
	var t translator
	for i, text := range []string{s, m, h, day, mon, strings.ReplaceAll(weekday, "-", "..")} {
		if text == "" {
			text = []string{"0", "0", "0", "*", "*", "*"}[i]
		}
		field := calendarField(text)
		if field == "" {
			return ""
		}
		t.fields = append(t.fields, field)
	}
	if n, ok := number(fromEnd); ok {
		*t.at(dayOfMonth) = strings.TrimSuffix("L-"+strconv.Itoa(n-1), "-0")
	}
	if t.both(); t.err != nil {
		return ""
	}
	*t.at(dayOfWeek) = strings.ToLower(*t.at(dayOfWeek))
	if zeros := strings.Trim(t.fields[0], "0"); zeros == "" {
		t.fields = t.fields[1:]
	}
	return strings.Join(t.fields, " ")
}

// calendarField writes .. as a range, the long names of days as short ones, and numbers without leading zeros.
func calendarField(text string) string {
	items := strings.Split(text, ",")
	for i, item := range items {
		body, step, stepped := strings.Cut(item, "/")
		lo, hi, ranged := strings.Cut(body, "..")
		if lo = calendarValue(lo); lo == "" || strings.Contains(hi+step, ".") {
			return ""
		}
		items[i] = lo
		if ranged {
			if hi = calendarValue(hi); hi == "" {
				return ""
			}
			items[i] += "-" + hi
		}
		if stepped {
			items[i] += "/" + step
		}
	}
	return strings.Join(items, ",")
}

func calendarValue(text string) string {
	if n, ok := number(text); ok {
		return strconv.Itoa(n)
	}
	if text == "*" {
		return text
	}
	return shortName(&specs[dayOfWeek], strings.ToUpper(text))
}

// shortName returns the name of three letters that a field has for a longer one, such as MON for MONDAY, TUE for TUES
// and SEP for SEPTEMBER; empty if it has none.
func shortName(spec *fieldSpec, long string) string {
	for i, name := range spec.names {
		full := longNames[spec.max][i]
		if len(long) >= 3 && (strings.HasPrefix(full, long) || long == full+"S") {
			return name
		}
	}
	return ""
}

// longNames are the names of months and of weekdays, by the highest value of the field.
var longNames = map[int][]string{
	12: {
		"JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER",
		"DECEMBER",
	},
	7: {"SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY"},
}
