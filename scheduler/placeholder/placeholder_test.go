package placeholder

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// sample returns the values of a run in the zone America/Los_Angeles. Its slot falls on the previous evening there: at
// 19:00:05 on 21 November 2026.
func sample(t testing.TB) *Values {
	t.Helper()
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	return &Values{
		ScheduledFor: time.Date(2026, 11, 22, 3, 0, 5, 0, time.UTC), Zone: zone,
		Run: uuid.MustParse("019ad964-3b80-8b21-8f6e-1d2c3b4a5968"), Attempt: 3, Job: "daily-invoice-gen",
	}
}

func TestTextIsFilledIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nothing": "nothing", "": "", "}} {a} {": "}} {a} {",
		"{{scheduled_for}}":               "2026-11-22T03:00:05Z",
		"{{scheduled_for|rfc3339}}":       "2026-11-22T03:00:05Z",
		"{{scheduled_for|date}}":          "2026-11-22",
		"{{scheduled_for|time}}":          "03:00:05",
		"{{scheduled_for|compact}}":       "20261122T030005Z",
		"{{scheduled_for|compact_date}}":  "20261122",
		"{{scheduled_for|unix}}":          "1795316405",
		"{{scheduled_for|unix_ms}}":       "1795316405000",
		"{{scheduled_for_local}}":         "2026-11-21T19:00:05-08:00",
		"{{scheduled_for_local|date}}":    "2026-11-21",
		"{{scheduled_for_local|compact}}": "20261121T190005-0800",
		"{{scheduled_for_local|unix}}":    "1795316405",
		"{{run}} {{attempt}} {{job}}":     "019ad964-3b80-8b21-8f6e-1d2c3b4a5968 3 daily-invoice-gen",
		"a{{run}}{{attempt}}b":            "a019ad964-3b80-8b21-8f6e-1d2c3b4a59683b",
		"{{{{":                            "{{",
		"{{{{run}} {{attempt}}":           "{{run}} 3",
		"{{{{{{run}}}}":                   "{{019ad964-3b80-8b21-8f6e-1d2c3b4a5968}}",
		"y={{scheduled_for_local|year}}/m={{scheduled_for_local|month}}/d={{scheduled_for_local|day}}/h={{scheduled_for_local|hour}}{{scheduled_for|minute}}": "y=2026/m=11/d=21/h=1900",
	} {
		template, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := string(template.Append(nil, sample(t), InText)); template.IsZero() != !strings.Contains(text, "{{") ||
			!template.IsZero() && got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		if got := len(template.Append(nil, sample(t), InURL)); got > template.Longest(len("daily-invoice-gen")) {
			t.Errorf("%s: %d bytes, more than the longest", text, got)
		}
	}
}

func TestWithoutAZoneTheLocalTimeIsUTC(t *testing.T) {
	t.Parallel()
	v := sample(t)
	v.Zone = nil
	v.ScheduledFor = v.ScheduledFor.Add(123456 * time.Microsecond)
	template, _ := Parse("{{scheduled_for_local}}")
	if got := string(template.Append(nil, v, InText)); got != "2026-11-22T03:00:05.123456Z" {
		t.Error(got)
	}
}

func TestWhatIsNoPlaceholderIsRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"{{schedule_for}}":                      `"{{schedule_for}}" is not a placeholder; the placeholders are scheduled_for, scheduled_for_local, run, attempt and job, and {{{{ stands`,
		"{{ run }}":                             "did you mean {{run}}?",
		"{{Scheduled-For}}":                     "did you mean {{scheduled_for}}?",
		"{{}}":                                  "is not a placeholder",
		"{{{run}}}":                             "is not a placeholder",
		"{{job.name}}":                          "is not a placeholder",
		"{{run":                                 "is not closed",
		"a {{run}} b {{":                        "is not closed",
		"{{scheduled_for|2006}}":                `there is no form "2006"; the forms are rfc3339, date, time, compact, compact_date, year, month, day, hour, minute, unix and unix_ms`,
		"{{scheduled_for|}}":                    "there is no form",
		"{{scheduled_for | date}}":              "did you mean {{scheduled_for}}?",
		"{{run|date}}":                          "only scheduled_for and scheduled_for_local have forms; write {{run}}",
		"{{" + strings.Repeat("x", 9999) + "}}": "is not a placeholder",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 400 {
			t.Errorf("%.80s: %v, want … %s …", text, err, says)
		}
	}
}

func TestValuesAreEscapedForWhereTheyStand(t *testing.T) {
	t.Parallel()
	v := sample(t)
	v.Job = "a\"b\\c\n/?&#%"
	v.Zone = time.FixedZone("", 3600)
	template, _ := Parse("{{job}} {{scheduled_for_local}}")
	for place, want := range map[Place]string{
		InText: v.Job + " 2026-11-22T04:00:05+01:00",
		InJSON: `a\u0022b\u005cc\u000a/?&#% 2026-11-22T04:00:05+01:00`,
		InURL:  `a%22b%5Cc%0A%2F%3F%26%23%25 2026-11-22T04:00:05%2B01:00`,
	} {
		if got := string(template.Append(nil, v, place)); got != want {
			t.Errorf("%d: %q, want %q", place, got, want)
		}
	}
	// Placeholders in filled-in values are not filled in again.
	v.Job = "{{run}}"
	if got := string(template.Append(nil, v, InText)); !strings.HasPrefix(got, "{{run}} ") {
		t.Error(got)
	}
}

func TestStringsOfJSONAreFilledInAndNothingElse(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"a":"{{run}}"}`: `{"a":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968"}`,
		`{ "{{attempt}}" : "{{attempt}}", "n": 1.50, "b":[ {"c":["x{{attempt}}y", true]} ] }`: `{ "{{attempt}}" : "3", "n": 1.50, "b":[ {"c":["x3y", true]} ] }`,
		`{"{{nothing}}":"a"}`: ``,
		`["\"{{attempt}}\\", "<é>\/", "\u007b\u007battempt}}"]`: `["\"3\\", "<é>\/", "3"]`,
		`{"a":"{{{{attempt}}"}`:                                 `{"a":"{{attempt}}"}`,
		`"{{attempt}}"`:                                         `"3"`,
		`[1,"a\\","b"]`:                                         ``,
	} {
		template, err := ParseJSON([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got := string(template.Append(nil, sample(t), InJSON)); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	if _, err := ParseJSON([]byte(`{"a":[{"b":"{{rum}}"}]}`)); err == nil || !strings.Contains(err.Error(), "{{rum}}") {
		t.Errorf("a misspelt one: %v", err)
	}
}

// FuzzJSON checks that JSON with placeholders stays JSON when they are filled in. Its fields stay the same, and only
// its strings differ.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":"{{run}}","{{job}}":["{{{{","{{scheduled_for|date}}"]}`, `"{{job}}"`,
		`{"a\u007b\u007bb":"\u007b\u007bjob}}","\\":"\"{{attempt}}\""}`, `[{}, [], "", 1e400, "😀{{run}}"]`,
		`"\ud800{{run}}"`,
	} {
		f.Add([]byte(seed), "daily-invoice-gen")
	}
	f.Add([]byte(`{"a":"x{{job}}y"}`), "\"},{\\\n")
	f.Fuzz(func(t *testing.T, raw []byte, job string) {
		if !json.Valid(raw) {
			_, _ = ParseJSON(raw) // it must not panic
			return
		}
		template, err := ParseJSON(raw)
		if err != nil || template.IsZero() {
			return
		}
		v := sample(t)
		v.Job = job
		filled := template.Append(nil, v, InJSON)
		if !json.Valid(filled) {
			t.Fatalf("%q became %q", raw, filled)
		}
		var before, after any
		if json.Unmarshal(raw, &before) == nil && json.Unmarshal(filled, &after) == nil && !alike(before, after) {
			t.Fatalf("%q became %q", raw, filled)
		}
	})
}

// alike reports whether two values are equal except for their strings.
func alike(a, b any) bool {
	switch a := a.(type) {
	case string:
		_, ok := b.(string)
		return ok
	case []any:
		list, ok := b.([]any)
		if !ok || len(a) != len(list) {
			return false
		}
		for i := range a {
			if !alike(a[i], list[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		fields, ok := b.(map[string]any)
		if !ok || len(a) != len(fields) {
			return false
		}
		for name := range a {
			other, ok := fields[name]
			if !ok || !alike(a[name], other) {
				return false
			}
		}
		return true
	}
	return a == b
}
