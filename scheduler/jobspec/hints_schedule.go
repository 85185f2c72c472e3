package jobspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"punctual/scheduler/cron"
)

// Meant returns the schedule, as JSON, that a text of another system stands for: a cron expression, a duration, an
// instant, or a form that EventBridge takes; empty when it is none of these.
func (Schedule) Meant(text string) string {
	s, ok := scheduleMeant(text, "")
	if !ok {
		return ""
	}
	raw, _ := json.Marshal(s) // a schedule is always JSON
	return string(raw)
}

// scheduleMeant proposes only what is valid, for a text that stands beside the name of a zone, or beside none. It
// proposes nothing for numbers alone, of which a field or a unit may be missing, nor for a text that names another
// zone.
func scheduleMeant(text, zone string) (Schedule, bool) {
	text = strings.TrimSpace(text)
	if len(text) > maxMeant || strings.Trim(text, "0123456789 \t") == "" {
		return Schedule{}, false
	}
	var s Schedule
	if every, ok := everyMeant(text); ok {
		_ = s.Every.UnmarshalText([]byte(every))
	} else if expr, named, ok := cron.Meant(text); ok {
		s.Cron, s.Timezone = expr, named
	} else if form, inner, _ := strings.Cut(strings.TrimSuffix(text, ")"), "("); form == "at" {
		s = eventBridgeAt(inner, zone)
	} else {
		_ = s.At.UnmarshalText([]byte(text))
	}
	if s.Timezone != "" && zone != "" && s.Timezone != zone {
		return Schedule{}, false
	}
	return s, s.Kind() != KindNone && len(s.Validate()) == 0
}

// eventBridgeAt is a one-shot at a local time. EventBridge Scheduler uses UTC unless told otherwise.
func eventBridgeAt(local, zone string) Schedule {
	s := Schedule{Timezone: zone}
	if zone == "" {
		local += "Z"
	}
	_ = s.At.UnmarshalText([]byte(local)) // never fails: what is wrong is found by Validate
	return s
}

// maxMeant bounds the texts that are looked at, in bytes.
const maxMeant = 1024

// everyMeant reads a period: a duration, or a step of cron that is longer than its field.
func everyMeant(text string) (string, bool) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return text, true
	}
	if meant, ok := durationMeant(text); ok {
		return meant, true
	}
	step := longStep.FindStringSubmatch(strings.Join(strings.Fields(text), " "))
	if step == nil {
		return "", false
	}
	for i, field := range []struct{ unit, all time.Duration }{
		{time.Second, time.Minute}, {time.Minute, time.Hour}, {time.Hour, 24 * time.Hour},
	} {
		n, _ := strconv.Atoi(step[i+1]) // at most four digits; absent: 0
		if period := time.Duration(n) * field.unit; period > field.all {
			return Short(period), true
		}
	}
	return "", false
}

// longStep matches expressions of nothing but a step of seconds, of minutes or of full hours. Cron starts such a step
// again in each minute, hour or day, so that one longer than that never comes to its second value.
var longStep = regexp.MustCompile(
	`^(?:[*0]/(\d{1,4}) \* \*|(?:0 )?(?:[*0]/(\d{1,4}) \*|0 [*0]/(\d{1,4}))) [*?] \* [*?]$`)

// cronHint says what an invalid cron expression may have meant.
func cronHint(text, zone string) string {
	s, ok := scheduleMeant(text, zone)
	if !ok {
		return ""
	}
	if s.Kind() == KindCron && s.Timezone == "" {
		return fmt.Sprintf("; use %q", s.Cron)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	if s.Kind() == KindCron {
		return fmt.Sprintf("; use %s", raw)
	}
	return fmt.Sprintf("; use %s in place of cron", raw)
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

// Translate returns the schedule that a schedule of another system stands for, whose form stands in cron: see
// [cron.Translate]. It may name its zone, as in CRON_TZ=Asia/Tokyo 0 9 * * *, or be a period, as in @every 5m. In the
// dialect aws it may be rate(5 minutes) or at(2027-01-01T09:00:00) too.
func (s Schedule) Translate(dialect string) (Schedule, error) {
	if rest, zone := cron.WithoutZone(s.Cron); zone != "" && s.Timezone == "" {
		s.Cron, s.Timezone = rest, zone
	}
	form, inner, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(s.Cron), ")"), "(")
	every, ok := everyMeant(s.Cron)
	switch period := dialect == "aws" && form == "rate" || strings.HasPrefix(form, "@every "); {
	case period && ok:
		s.Cron = ""
		return s, s.Every.UnmarshalText([]byte(every))
	case period:
		return s, errors.New(NotADuration(s.Cron))
	case dialect == "aws" && form == "at":
		at := eventBridgeAt(inner, s.Timezone)
		s.Cron, s.At = "", at.At
		return s, nil
	}
	ours, err := cron.Translate(dialect, s.Cron)
	s.Cron = ours
	return s, err
}
