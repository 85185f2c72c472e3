package cron

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// words of systemd, Laravel and others that mean the same everywhere. Weekly is not among them: it is Sunday in cron,
// and Monday in systemd.
var words = map[string]string{
	"minutely": "* * * * *", "hourly": "@hourly", "daily": "@daily", "midnight": "@midnight", "monthly": "@monthly",
	"quarterly": "0 0 1 1,4,7,10 *", "yearly": "@yearly", "annually": "@annually",
}

var timeOfDay = regexp.MustCompile(`^(?:(every|each) )?(day|daily|[a-z]+day)s?(?: at)? ` +
	`(?:(\d{1,2}):(\d\d)|(\d{1,2})(?::(\d\d))? ?([ap])m)$`)

// inPlainWords reads daily, every day at 2am and every monday 09:00.
func inPlainWords(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	if expr := words[text]; expr != "" {
		return expr
	}
	found := timeOfDay.FindStringSubmatch(text)
	if found == nil || found[2] == "day" && found[1] == "" || found[2] == "daily" && found[1] != "" {
		return ""
	}
	weekday := "*"
	if found[2] != "day" && found[2] != "daily" {
		if weekday = shortName(&specs[dayOfWeek], strings.ToUpper(found[2])); weekday == "" {
			return ""
		}
	}
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
	return fmt.Sprintf("%d %d * * %s", minutes, hours, strings.ToLower(weekday))
}

// calendar events of systemd.time(7): Mon..Fri *-*-01 09:00:00, whose first two parts may be left out.
var calendarForm = regexp.MustCompile(`^(?:([A-Za-z][A-Za-z,.]*)(?: |$))?` +
	`(?:(?:\*-)?([0-9*,./]+)-([0-9*,./]+)(?: |$))?(?:([0-9*,./]+):([0-9*,./]+)(?::([0-9*,./]+))?)?$`)

// calendarEvent reads a calendar event of systemd. It reads none with both a weekday and a day of the month, which must
// both match there, and none without a time.
func calendarEvent(text string) string {
	found := calendarForm.FindStringSubmatch(strings.Join(strings.Fields(text), " "))
	if found == nil {
		return ""
	}
	weekday, mon, day, h, m, s := found[1], found[2], found[3], found[4], found[5], found[6]
	if h == "" || weekday != "" && day != "" && day != "*" || weekday+day == "" && h != "*" {
		return "" // 1:30 may be a time or a duration
	}
	var fields []string
	for i, text := range []string{s, m, h, day, mon, weekday} {
		if text == "" {
			text = []string{"0", "0", "0", "*", "*", "*"}[i]
		}
		field := calendarField(text)
		if field == "" {
			return ""
		}
		fields = append(fields, field)
	}
	if zeros := strings.Trim(fields[0], "0"); zeros == "" {
		fields = fields[1:]
	}
	return strings.ToLower(strings.Join(fields, " "))
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
