package jobspec

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"punctual/scheduler/delivery/wire"
)

// NotADuration says what is wrong with a text in place of a duration.
func NotADuration(text string) string {
	if meant, ok := durationMeant(text); ok {
		return fmt.Sprintf("%q is not a duration; use %q", clip(text), meant)
	}
	if reason := unitMissing(text); reason != "" {
		return fmt.Sprintf(`%q is not a duration: %s; write one such as "90s", "5m" or "24h"`, clip(text), reason)
	}
	return fmt.Sprintf(`%q is not a duration; write one such as "90s", "5m" or "24h"`, clip(text))
}

// Short writes a duration without the parts that are zero: 24h for 24h0m0s.
func Short(d time.Duration) string { return wire.Short(d) }

var (
	isoDuration = regexp.MustCompile(
		`^p(?:(\d{1,6})w)?(?:(\d{1,6})d)?(?:t(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?)?$`)
	spoken   = regexp.MustCompile(`^(\d{1,9})\s*([a-z]+)\s*(?:,\s*|and\s+)?`)
	wrapped  = regexp.MustCompile(`^(?:rate\((.*)\)|@?every\s+(.*))$`)
	months   = regexp.MustCompile(`^[^pP].*M([^a-z]|$)`) // of pandas and Grafana. In ISO 8601, T tells it from minutes.
	unitless = regexp.MustCompile(`^[\w\s,]*\d(?:[\s,]*$|[\s,]+\d)`)
)

// units are the units that people write. Months and years are not among them: they have no fixed length.
var units = map[string]time.Duration{
	"ms": time.Millisecond,
	"s":  time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

// unitMissing says why a text may be a duration of several lengths; empty if it is none.
func unitMissing(text string) string {
	switch {
	case months.MatchString(text):
		return "M may be months, which have no fixed length, or minutes, which are m"
	case unitless.MatchString(text):
		return "a number lacks its unit"
	}
	return ""
}

// durationMeant reads durations as other systems write them: 1d, PT5M, 5 minutes, rate(5 minutes). Every number must
// have a unit, and units descend: 300 may be seconds or milliseconds, and "1h 30" may be anything.
func durationMeant(text string) (string, bool) {
	if unitMissing(text) != "" {
		return "", false
	}
	text = strings.ToLower(strings.TrimSpace(text))
	if inner := wrapped.FindStringSubmatch(text); inner != nil {
		text = strings.TrimSpace(inner[1] + inner[2])
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return Short(d), true
		}
	}
	var sum time.Duration
	if parts := isoDuration.FindStringSubmatch(text); parts != nil {
		for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
			n, _ := strconv.Atoi(parts[i+1]) // absent: 0
			sum += time.Duration(n) * unit
		}
		return Short(sum), sum > 0
	}
	for smallest := 8 * 24 * time.Hour; text != ""; {
		part := spoken.FindStringSubmatch(text)
		if part == nil {
			return "", false
		}
		unit, known := units[part[2]]
		n, err := strconv.Atoi(part[1])
		if !known || unit >= smallest || err != nil || time.Duration(n) > 100*366*24*time.Hour/unit {
			return "", false
		}
		sum, smallest, text = sum+time.Duration(n)*unit, unit, text[len(part[0]):]
	}
	return Short(sum), sum > 0
}
