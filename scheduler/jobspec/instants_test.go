package jobspec

import (
	"strings"
	"testing"
	"time"
)

func TestInstantsMayBeInLowerCase(t *testing.T) {
	t.Parallel()
	want := time.Date(2027, 1, 1, 9, 0, 0, 0, time.UTC)
	for _, text := range []string{"2027-01-01T09:00:00Z", "2027-01-01t09:00:00z", "2027-01-01t10:00:00+01:00"} {
		var i Instant
		_ = i.UnmarshalText([]byte(text))
		if i.bad || !i.Value().Equal(want) || i.String() != strings.ToUpper(text) {
			t.Errorf("%s: %s, as %s", text, i.Value(), i)
		}
	}
}

func TestALocalTimeMayBeADayOrLackItsOffset(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-11-16":                "2026-11-16T00:00:00Z local",
		"2026-11-16T03:00":          "2026-11-16T03:00:00Z local",
		"2026-11-16t03:00:07.5":     "2026-11-16T03:00:07.5Z local",
		"2026-11-16T03:00:00Z":      "2026-11-16T03:00:00Z",
		"2026-11-16T03:00:00+01:00": "2026-11-16T02:00:00Z",
		"2026-11-31":                "is on no day: November 2026 has 30 days",
		"2026-11-16T24:00":          "has hour 24: midnight is 00:00:00 of the next day",
		"0001-01-01":                "is outside the years 1970 to 2199",
		"2026-11":                   `is not an instant; write a day such as "2026-12-01"`,
		"2026-11-16 03:00":          "is not an instant",
		"yesterday":                 "is not an instant",
	} {
		at, local, err := ParseLocal(text)
		got := at.Format(time.RFC3339Nano)
		if local {
			got += " local"
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || err == nil && got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestABadInstantIsToldItsRule(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"2027-02-29T00:00:00Z":      "is on no day: February 2027 has 28 days",
		"2028-02-30T00:00:00Z":      "is on no day: February 2028 has 29 days",
		"2027-06-31T00:00:00+02:00": "is on no day: June 2027 has 30 days",
		"2027-12-32T00:00:00Z":      "is on no day: December 2027 has 31 days",
		"2027-01-00T00:00:00Z":      "is on no day: January 2027 has 31 days",
		"2027-13-01T00:00:00Z":      "is in no month",
		"2027-01-01T24:00:00Z":      "has hour 24: midnight is 00:00:00 of the next day",
		"2027-01-01T25:00:00Z":      "hours are 00 to 23",
		"2027-01-01T23:60:00Z":      "minutes 00 to 59",
		"2016-12-31T23:59:60Z":      "is in a leap second, which Postgres's clock does not have: write the second after it",
		"2027-01-01T23:59:61Z":      "seconds are 00 to 59",
		"2027-01-01":                "is a day without a time",
		"2027-01-01T09:00:00":       "has no offset from UTC",
		"2027-01-01 09:00:00Z":      "has a blank in place of T",
		"2027-01-01T9:00:00Z":       "is not an RFC 3339 instant; write one such as",
		"2027-01-01T09:00:00+24:00": "is not an RFC 3339 instant",
		"tomorrow":                  "is not an RFC 3339 instant",
	} {
		var i Instant
		_ = i.UnmarshalText([]byte(text))
		problems := Schedule{At: i}.Validate()
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Message, `"`+text+`" `+says) &&
			!strings.Contains(problems[0].Message, says) {
			t.Errorf("%s: %v", text, problems)
		}
	}
}
