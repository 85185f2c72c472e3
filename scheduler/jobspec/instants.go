package jobspec

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// instantForm is RFC 3339. time.Parse also accepts hours of one digit, decimal commas and offsets of a day.
var instantForm = regexp.MustCompile(
	`^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// ParseInstant reads an RFC 3339 instant, whose letters may be in either case. Its error says which rule the text
// breaks, in words that follow the text.
func ParseInstant(text string) (time.Time, error) {
	upper := strings.ToUpper(text)
	t, err := time.Parse(time.RFC3339Nano, upper)
	if err == nil && instantForm.MatchString(upper) {
		return t.UTC(), nil
	}
	return time.Time{}, errors.New(notAnInstant(upper))
}

// ParseLocal reads an instant, a time without an offset, or a day, which is its first moment. at is one that lacks an
// offset as though its zone were UTC, and local is true. The error is in words that follow the text.
func ParseLocal(text string) (at time.Time, local bool, err error) {
	upper := strings.ToUpper(text)
	for _, rest := range []string{"", "T00:00:00Z", ":00Z", "Z"} {
		at, err := ParseInstant(upper + rest)
		switch {
		case err != nil && calendarFault(upper+rest) != "":
			return at, false, err
		case err != nil:
		case at.Before(earliest) || !at.Before(latest):
			return at, false, errors.New("is outside the years 1970 to 2199")
		default:
			return at, rest != "", nil
		}
	}
	return at, false, errors.New(`is not an instant; write a day such as "2026-12-01", ` +
		`a time of the job's zone such as "2026-12-01T09:00", or an RFC 3339 instant such as "2026-12-01T09:00:00Z"`)
}

// almostInstants are the forms that lack one thing, and what that is.
var almostInstants = []struct {
	form *regexp.Regexp
	says string
}{
	{regexp.MustCompile(`^\d{4}-\d\d-\d\d$`), "is a day without a time"},
	{regexp.MustCompile(`^[\d-]+T[\d:.]+$`), "has no offset from UTC (only schedule.at with a timezone may lack it)"},
	{regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d`), "has a blank in place of T"},
}

func notAnInstant(upper string) string {
	const right = `write one such as "2026-12-01T09:00:00Z" or "2026-12-01T09:00:00+01:00"`
	for _, text := range []string{upper, upper + "Z"} {
		if fault := calendarFault(text); fault != "" {
			return fault
		}
	}
	for _, almost := range almostInstants {
		if almost.form.MatchString(upper) {
			return almost.says + "; " + right
		}
	}
	return "is not an RFC 3339 instant; " + right
}

// calendarFault says why there is no such instant. It is empty if there is one, or if the text has another form.
func calendarFault(upper string) string {
	found := instantForm.FindStringSubmatch(upper)
	if _, err := time.Parse(time.RFC3339Nano, upper); err != nil && found != nil {
		return outOfCalendar(found[1:7])
	}
	return ""
}

// outOfCalendar says why there is no such time. The parts are year, month, day, hour, minute and second.
func outOfCalendar(parts []string) string {
	var n [6]int
	for i, part := range parts {
		n[i], _ = strconv.Atoi(part) // digits only
	}
	firstOfNext := time.Date(n[0], time.Month(n[1])+1, 1, 0, 0, 0, 0, time.UTC)
	switch length := firstOfNext.AddDate(0, 0, -1).Day(); {
	case n[1] < 1 || n[1] > 12:
		return "is in no month: they are 01 to 12"
	case n[2] < 1 || n[2] > length:
		return fmt.Sprintf("is on no day: %s %d has %d days", time.Month(n[1]), n[0], length)
	case n[3] == 24:
		return "has hour 24: midnight is 00:00:00 of the next day"
	case n[3] > 23 || n[4] > 59:
		return "is at no time of day: hours are 00 to 23, minutes 00 to 59"
	case n[5] == 60:
		return "is in a leap second, which Postgres's clock does not have: write the second after it"
	}
	return "is at no time of day: seconds are 00 to 59"
}
