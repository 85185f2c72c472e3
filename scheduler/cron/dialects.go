package cron

import (
	"regexp"
	"slices"
	"strings"
)

// Meant returns the expression of this package that a text of another system stands for, and the zone that the text
// names, if any; false when the text may mean several things. It knows Quartz's and EventBridge's expressions with a
// year, lines of a crontab, expressions in quotes or with a comment, systemd's calendar events, and times of day in
// plain words.
func Meant(text string) (expr, zone string, ok bool) {
	text = unquoted(comment.ReplaceAllString(text, ""))
	if strings.Trim(text, "0123456789 \t") == "" {
		return "", "", false
	}
	text, zone = WithoutZone(text)
	for _, read := range []func(text string) string{
		strings.TrimSpace, inPlainWords, calendarEvent, withYear, ofCrontab, ofFour,
	} {
		if expr := read(text); expr != "" {
			if _, err := Parse(expr); err == nil {
				return expr, zone, true
			}
		}
	}
	return "", "", false
}

// unquoted takes off the quotes around a text.
func unquoted(text string) string {
	text = strings.TrimSpace(text)
	if text == "" || !strings.Contains("'\"`", text[:1]) {
		return text
	}
	return strings.TrimSuffix(text[1:], text[:1])
}

// comment matches a comment at the end of a text. It has a word, unlike a misplaced sign of an expression.
var comment = regexp.MustCompile(`\s#.*[A-Za-z]{4}.*$`)

// WithoutZone takes a zone off a text: CRON_TZ=Asia/Tokyo in front, or a name such as Asia/Tokyo or UTC at the end.
func WithoutZone(text string) (rest, zone string) {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return text, ""
	}
	name, ok := strings.CutPrefix(strings.TrimPrefix(fields[0], "CRON_"), "TZ=")
	fields, zone = fields[1:], strings.Trim(name, "'\"")
	if !ok {
		fields = strings.Fields(text)
		fields, zone = fields[:len(fields)-1], fields[len(fields)-1]
		ok = zone == "UTC" || strings.Contains(zone, "/")
	}
	// LoadZone would look for a name that is close, which takes long.
	if known, err := Zones().zone(zone); !ok || known == nil || err != nil {
		return text, ""
	}
	return strings.Join(fields, " "), zone
}

// withYear reads the expressions that end in a year: EventBridge's of six fields, in brackets or not, and Quartz's of
// seven. A question mark in one of the day fields tells where the others are.
func withYear(text string) string {
	fields, bracketed := yearFields(text)
	n := len(fields)
	if n != 6 && (n != 7 || bracketed) || fields[n-1] != "*" || fields[n-4] != "?" && fields[n-2] != "?" && !bracketed {
		return ""
	}
	expr, err := Translate(map[int]string{6: "aws", 7: "quartz"}[n], strings.Join(fields, " "))
	if err != nil {
		return ""
	}
	return expr
}

// yearFields returns the upper-case fields of an expression, and whether it stood in cron( ).
func yearFields(text string) (fields []string, bracketed bool) {
	text, bracketed = strings.CutPrefix(strings.ToUpper(strings.TrimSpace(text)), "CRON(")
	if bracketed {
		text = strings.TrimSuffix(text, ")")
	}
	return strings.Fields(text), bracketed
}

// ofCrontab reads a whole line of a crontab, which has a command after five fields or after a word such as @daily.
func ofCrontab(text string) string {
	if n := beforeCommand(strings.Fields(text)); n > 0 {
		return strings.Join(strings.Fields(text)[:n], " ")
	}
	return ""
}

// command matches what only a command has: paths, web addresses, options, and words after a template or before a quote.
var command = regexp.MustCompile(`(?i)(?:^|[ ="'])(?:[.~]{0,2}/[a-z]{2}|\$\w+/|[a-z]+://|--?[a-z])|^%\(\w+\)s [a-z]| "`)

// beforeCommand returns how many fields stand before a command; 0 if there is none.
func beforeCommand(fields []string) int {
	n := 5
	if len(fields) > 0 && fields[0][0] == '@' {
		n = 1
	}
	if len(fields) <= n || !command.MatchString(strings.Join(fields[n:], " ")) {
		return 0
	}
	_, sixth := parseField(&specs[dayOfWeek], strings.ToUpper(fields[n]))
	if _, err := Parse(strings.Join(fields[:n], " ")); err != nil || sixth == nil {
		return 0
	}
	return n
}

var (
	namesMonths   = regexp.MustCompile(`(?i)^(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\b`)
	namesWeekdays = regexp.MustCompile(`(?i)^(sun|mon|tue|wed|thu|fri|sat)\b`)
)

// ofFour completes four fields where names tell which one is missing: that of the weekday after the name of a month, or
// a star beside a star before the name of a weekday.
func ofFour(text string) string {
	fields := strings.Fields(text)
	switch {
	case len(fields) != 4:
		return ""
	case namesMonths.MatchString(fields[3]):
		return strings.Join(append(fields, "*"), " ")
	case namesWeekdays.MatchString(fields[3]) && fields[2] == "*":
		return strings.Join(append(fields[:3:3], "*", fields[3]), " ")
	}
	return ""
}

// foreignForm says why a text as a whole is no expression, though it is one in another system; empty if it is none.
func foreignForm(text string, upper []string) string {
	fields, bracketed := yearFields(text)
	n := len(fields)
	switch {
	case unquoted(text) != strings.TrimSpace(text):
		return "leave the quotes out"
	case strings.Contains(text, "#") && comment.MatchString(text):
		return "leave the comment out"
	case inWords.MatchString(upper[0]):
		return "these are words; " + fiveFields
	case strings.Contains(upper[0], "TZ="), n > 5 && endsInZone(text, fields[5:]):
		return "a cron expression does not name its zone; use schedule.timezone"
	case bracketed, n == 6 && (fields[2] == "?") != (fields[4] == "?"):
		return yearReason(fields, "this is EventBridge's form")
	case beforeCommand(upper) > 0:
		return "a command does not belong here; write the five fields before it"
	case n > 5 && strings.Contains(text, ", "):
		return "a list has no spaces: write MON,TUE"
	case n == 7 && (yearForm.MatchString(fields[6]) || slices.Contains(fields, "?")):
		return yearReason(fields, "it has 7 fields, which is Quartz's form")
	case n == 6 && yearForm.MatchString(fields[5]) && fields[5][0] != '*':
		return "a year field is not supported: starts_at and ends_at bound a schedule"
	}
	return ""
}

var (
	inWords  = regexp.MustCompile(`^(?:EVERY|EACH|AT|ON|\d+(?:ST|ND|RD|TH)\b.*)$`)
	zoneForm = regexp.MustCompile(
		`^(?:\*_)?(?:(?:AFRICA|AMERICA|ASIA|ATLANTIC|AUSTRALIA|EUROPE|PACIFIC)/[A-Z_/]+|[+-]\d\d:?\d\d)$`)
	yearForm = regexp.MustCompile(`^(?:\*(?:/\d+)?|\d{4}(?:[,/-]\d+)*)$`)
)

// endsInZone reports whether a text ends in a zone, or its rest, behind five fields, has the form of one.
func endsInZone(text string, rest []string) bool {
	_, zone := WithoutZone(text)
	return zone != "" || zoneForm.MatchString(strings.Join(rest, "_"))
}

func yearReason(fields []string, form string) string {
	form += ", whose days count from 1, Sunday; a year field is not supported"
	if len(fields) > 5 && fields[len(fields)-1] == "*" {
		return form
	}
	return form + ": starts_at and ends_at bound a schedule"
}
