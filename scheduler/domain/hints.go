package domain

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"punctual/scheduler/cron"
	"punctual/scheduler/delivery"
)

// Hints for people who come from other systems: what they write, and what it is called here. A hint never guesses:
// what it proposes is valid, and means what was written.

// synonyms are words of other systems, by the word that Punctual uses.
var synonyms = map[string][]string{
	"dead":      {"failed", "failure", "error", "errored"},
	"failing":   {"failed", "failure", "error", "errored"},
	"succeeded": {"success", "successful", "ok", "complete", "completed", "done", "finished"},
	"pending":   {"queued", "waiting", "scheduled", "enqueued"},
	"running":   {"active", "in_progress", "started", "executing"},
	"retrying":  {"retry", "backoff"},
	"cancelled": {"canceled", "aborted", "killed"},
	"skipped":   {"missed", "ignored"},
	"completed": {"done", "finished", "ended", "expired"},
	"paused":    {"disabled", "suspended", "inactive", "stopped"},
	"active":    {"enabled", "running", "on"},
	"schedule":  {"scheduled", "cron"},
	"manual":    {"trigger", "triggered", "user", "adhoc"},
	"http_5xx":  {"500", "502", "503", "504", "5xx"},
	"http_4xx":  {"400", "401", "403", "404", "4xx"},
	"connect":   {"connection", "refused", "dns"},
	"high":      {"urgent", "critical", "highest"},
	"low":       {"lowest", "background"},
	"normal":    {"default", "medium"},
	"forbid":    {"deny", "disallow", "no", "none", "never"},
	"allow":     {"parallel", "yes", "always"},
	"replace":   {"cancel", "restart"},
	"wait":      {"queue", "serial"},
}

// DidYouMean returns "; did you mean x?" for the choice closest to a word; empty when none is close.
func DidYouMean(word string, choices ...string) string {
	lower := strings.ToLower(word)
	best, near := 3, ""
	for _, choice := range choices {
		if d := distance(lower, choice); d < best && d*2 < len(choice) {
			best, near = d, choice
		}
		if best > 0 && slices.Contains(synonyms[choice], lower) {
			best, near = 0, choice
		}
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", near)
}

// distance is the number of letters to insert, delete or replace to turn a into b. Names that differ by more than two
// in length are far apart: nobody mistakes one for the other.
func distance(a, b string) int {
	if max(len(a), len(b))-min(len(a), len(b)) > 2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// NotADuration says what is wrong with a text in place of a duration.
func NotADuration(text string) string {
	if meant, ok := durationMeant(text); ok {
		return fmt.Sprintf("%q is not a duration; use %q", clip(text), meant)
	}
	return fmt.Sprintf(`%q is not a duration; write one such as "90s", "5m" or "24h"`, clip(text))
}

// Short writes a duration without the parts that are zero: 24h for 24h0m0s.
func Short(d time.Duration) string { return delivery.Short(d) }

var (
	isoDuration = regexp.MustCompile(
		`^p(?:(\d{1,6})w)?(?:(\d{1,6})d)?(?:t(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?)?$`)
	spoken  = regexp.MustCompile(`^(\d{1,9})\s*([a-z]*)(?:\s*,\s*|\s+and\s+|\s+|$)`)
	wrapped = regexp.MustCompile(`^(?:rate\((.*)\)|@?every\s+(.*))$`)
)

// units are the units that people write. Months and years are not among them: they have no fixed length.
var units = map[string]time.Duration{
	"":   time.Second,
	"ms": time.Millisecond,
	"s":  time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// durationMeant reads durations as other systems write them: 1d, PT5M, 5 minutes, rate(5 minutes), 300.
func durationMeant(text string) (string, bool) {
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
	for text != "" {
		part := spoken.FindStringSubmatch(text)
		if part == nil {
			return "", false
		}
		unit, known := units[part[2]]
		if !known {
			unit, known = units[strings.TrimSuffix(part[2], "s")]
		}
		n, err := strconv.Atoi(part[1])
		if !known || err != nil || time.Duration(n) > 100*366*24*time.Hour/unit {
			return "", false
		}
		sum, text = sum+time.Duration(n)*unit, text[len(part[0]):]
	}
	return Short(sum), sum > 0
}

// ScheduleMeant returns the schedule, as JSON, that a text of another system stands for: a cron expression, a
// duration, an instant, or a form that EventBridge takes; false when it is none of these.
func ScheduleMeant(text string) (string, bool) {
	kind, value := scheduleMeant(text)
	if kind == "" {
		return "", false
	}
	quoted, err := json.Marshal(value)
	return fmt.Sprintf(`{%q:%s}`, kind, quoted), err == nil
}

func scheduleMeant(text string) (kind Kind, value string) {
	text = strings.TrimSpace(text)
	if len(text) > 256 {
		return "", ""
	}
	if _, err := cron.Parse(text); err == nil {
		return KindCron, text
	}
	if meant, ok := cronMeant(text); ok {
		return KindCron, meant
	}
	var d Duration
	if _ = d.UnmarshalText([]byte(text)); !d.bad && d.value > 0 {
		return KindEvery, text
	}
	if meant, ok := durationMeant(text); ok {
		return KindEvery, meant
	}
	if inner, ok := strings.CutPrefix(text, "at("); ok {
		text = strings.TrimSuffix(inner, ")") + "Z" // EventBridge Scheduler uses UTC unless told otherwise
	}
	var at Instant
	if _ = at.UnmarshalText([]byte(text)); !at.bad && text != "" {
		return KindAt, text
	}
	return "", ""
}

// dayOfWeek matches a number in the day-of-week field that is a day, not a step and not the week of the month.
var dayOfWeek = regexp.MustCompile(`(^|[,-])([1-7])`)

// cronMeant reads the six fields of EventBridge: no seconds, a year, and Sunday is 1.
func cronMeant(text string) (string, bool) {
	inner, bracketed := strings.CutPrefix(strings.ToLower(text), "cron(")
	fields := strings.Fields(strings.TrimSuffix(inner, ")"))
	if len(fields) != 6 || fields[5] != "*" || !bracketed && fields[2] != "?" && fields[4] != "?" {
		return "", false
	}
	fields[4] = dayOfWeek.ReplaceAllStringFunc(fields[4], func(day string) string {
		return day[:len(day)-1] + string(day[len(day)-1]-1)
	})
	for i := range fields {
		fields[i] = strings.Replace(fields[i], "?", "*", 1)
	}
	meant := strings.ToUpper(strings.Join(fields[:5], " "))
	_, err := cron.Parse(meant)
	return meant, err == nil
}

// cronHint says what an invalid cron expression may have meant.
func cronHint(text string) string {
	switch kind, value := scheduleMeant(text); kind {
	case KindCron:
		return fmt.Sprintf("; use %q", value)
	case KindEvery, KindAt:
		return fmt.Sprintf("; use {%q:%q} in place of cron", kind, value)
	}
	return ""
}

// InstantMeant returns the instant that a Unix time in seconds or milliseconds stands for; false when it is not in
// this century.
func InstantMeant(number string) (string, bool) {
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil:
		return "", false
	case n >= 1e9 && n < 4e9:
		return time.Unix(n, 0).UTC().Format(time.RFC3339), true
	case n >= 1e12 && n < 4e12:
		return time.UnixMilli(n).UTC().Format(time.RFC3339Nano), true
	}
	return "", false
}
