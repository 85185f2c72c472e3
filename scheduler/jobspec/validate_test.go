package jobspec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func long(n int) string { return strings.Repeat("x", n) }

func TestValidateNamesTheFieldAndWhatIsRight(t *testing.T) {
	for _, c := range []struct {
		name, json, field string
		says              []string // the value as written, and the accepted values
	}{
		{"no name", `"name":""`, "name", []string{"required", "1 to 128"}},
		{"a name with a space", `"name":"a b"`, "name", []string{`"a b"`, "1 to 128 letters"}},
		{"a name that is too long", `"name":"` + long(129) + `"`, "name", []string{"1 to 128"}},
		{"a name that begins with a dash", `"name":"-a"`, "name", []string{`"-a"`, "the first a letter or digit"}},
		{"a name like an id", `"name":"0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a01"`, "name", []string{"UUID"}},
		{"a name like an id without dashes", `"name":"0199C9A27B3C7D109C3E2F6F3F1D5A01"`, "name", []string{"UUID"}},
		{"a name that is a path of the API", `"name":"bulk"`, "name", []string{`"bulk"`, "choose another"}},
		{"a description that is too long", `"description":"` + long(4097) + `"`, "description", []string{"4097", "4096"}},
		{"a description with a NUL", `"description":"a\u0000b"`, "description", []string{"NUL"}},
		{"a label's name", `"labels":{"a b":"c"}`, "labels.a b", []string{"1 to 63 letters"}},
		{"a label's value that is too long", `"labels":{"a":"` + long(257) + `"}`, "labels.a", []string{"257", "256"}},
		{"a label's value with a NUL", `"labels":{"a":"\u0000"}`, "labels.a", []string{"NUL"}},
		{"a cron expression", `"schedule":{"cron":"70 * * * *"}`, "schedule.cron", []string{"70", "0-59"}},
		{"a cron expression that never fires", `"schedule":{"cron":"0 0 30 2 *"}`, "schedule.cron", nil},
		{
			"a zone",
			`"schedule":{"cron":"0 * * * *","timezone":"Europe/Berln"}`, "schedule.timezone",
			[]string{"Europe/Berlin"},
		},
		{"the machine's zone", `"schedule":{"cron":"0 * * * *","timezone":"Local"}`, "schedule.timezone", nil},
		{
			"a zone without cron",
			`"schedule":{"every":"1h","timezone":"Europe/Berlin"}`, "schedule.timezone",
			[]string{"only cron", "leave it out"},
		},
		{"every that is no duration", `"schedule":{"every":"an hour"}`, "schedule.every", []string{`"an hour"`, `"90s"`}},
		{"every that is empty", `"schedule":{"every":""}`, "schedule.every", []string{`"90s"`}},
		{"every below a second", `"schedule":{"every":"0s"}`, "schedule.every", []string{`"0s"`, "1s to"}},
		{"every below zero", `"schedule":{"every":"-1h"}`, "schedule.every", []string{`"-1h"`, "1s to"}},
		{
			"every of parts of a second",
			`"schedule":{"every":"1500ms"}`, "schedule.every",
			[]string{`"1500ms"`, "whole seconds"},
		},
		{"every beyond a year", `"schedule":{"every":"9000h"}`, "schedule.every", []string{`"9000h"`}},
		{
			"at that is no instant",
			`"schedule":{"at":"tomorrow"}`, "schedule.at",
			[]string{`"tomorrow"`, "2026-12-01T09:00:00+01:00"},
		},
		{"at without an offset", `"schedule":{"at":"2026-12-01T09:00:00"}`, "schedule.at", []string{"has no offset from UTC"}},
		{"at with an hour of one digit", `"schedule":{"at":"2026-12-01T9:00:00Z"}`, "schedule.at", []string{"RFC 3339"}},
		{"at with a comma", `"schedule":{"at":"2026-12-01T09:00:00,5Z"}`, "schedule.at", []string{"RFC 3339"}},
		{"at with an offset of a day", `"schedule":{"at":"2026-12-01T09:00:00+24:00"}`, "schedule.at", []string{"RFC 3339"}},
		{"at on a day that is not", `"schedule":{"at":"2026-02-30T09:00:00Z"}`, "schedule.at", []string{"is on no day: February 2026"}},
		{"at centuries ahead", `"schedule":{"at":"2200-01-01T00:00:00Z"}`, "schedule.at", []string{"1970 to 2199"}},
		{"at before time began", `"schedule":{"at":"1969-12-31T23:59:59Z"}`, "schedule.at", []string{"1970 to 2199"}},
		{"a delay below zero", `"schedule":{"delay":"-1s"}`, "schedule.delay", []string{`"-1s"`}},
		{"two kinds", `"schedule":{"cron":"0 * * * *","every":"1h"}`, "schedule", []string{"cron and every", "at most one"}},
		{
			"bounds of a one-shot",
			`"schedule":{"delay":"1h","ends_at":"2026-12-01T09:00:00Z"}`, "schedule",
			[]string{"starts_at and ends_at", "leave them out"},
		},
		{"starts_at", `"schedule":{"every":"1h","starts_at":"x"}`, "schedule.starts_at", []string{`"x"`, "RFC 3339"}},
		{
			"ends_at before starts_at",
			`"schedule":{"every":"1h","starts_at":"2026-12-01T09:00:00Z","ends_at":"2026-11-01T09:00:00Z"}`, "schedule.ends_at",
			[]string{"2026-11-01", "before", "2026-12-01"},
		},
		{"jitter", `"schedule":{"every":"1h"},"jitter":"25h"`, "jitter", []string{`"25h"`, "24h"}},
		{"jitter below zero", `"schedule":{"every":"1h"},"jitter":"-1s"`, "jitter", []string{`"-1s"`}},
		{
			"jitter of a one-shot", `"schedule":{"delay":"1h"},"jitter":"1s"`, "jitter", []string{`"1s"`, "only cron and every"},
		},
		{"missed.policy", `"missed":{"policy":"later"}`, "missed.policy", []string{`"later"`, "skip, fire_once, fire_all"}},
		{
			"missed.concurrency", `"missed":{"policy":"fire_all","concurrency":"all"}`, "missed.concurrency",
			[]string{`"all"`, "one_at_a_time, allow"},
		},
		{
			"missed.concurrency of one missed slot", `"missed":{"concurrency":"allow"}`, "missed.concurrency",
			[]string{"allow", "only jobs with missed.policy fire_all", "leave it out"},
		},
		{
			"missed.concurrency of a job that must not overlap",
			`"concurrency_policy":"forbid","missed":{"policy":"fire_all","concurrency":"allow"}`, "missed.concurrency",
			[]string{"allow", "concurrency_policy forbid", "leave it out"},
		},
		{"missed.tolerance", `"missed":{"tolerance":"1ms"}`, "missed.tolerance", []string{`"1ms"`, "1s to"}},
		{"missed.window", `"missed":{"window":"0s"}`, "missed.window", []string{`"0s"`, "1s to"}},
		{"concurrency_policy", `"concurrency_policy":"maybe"`, "concurrency_policy", []string{`"maybe"`, "allow, forbid"}},
		{"expires_after", `"expires_after":"0s"`, "expires_after", []string{`"0s"`, "1ms to"}},
		{"no URL", `"target":{"url":""}`, "target.url", []string{"required"}},
		{"a URL without a host", `"target":{"url":"/hook"}`, "target.url", nil},
		{"a URL of another scheme", `"target":{"url":"ftp://example.com/"}`, "target.url", []string{"http"}},
		{"a host with a scheme", `"target":{"host":"https://a.b"}`, "target.host", []string{"https://a.b", "api.internal"}},
		{"a host with a placeholder", `"target":{"host":"{{job}}.a"}`, "target.host", []string{"{{job}}.a", "placeholders"}},
		{"a host with a bad port", `"target":{"host":"a.b:0"}`, "target.host", []string{"a.b:0", "1 and 65535"}},
		{"a host as a header", `"target":{"headers":{"host":"a"}}`, "target.headers.host", []string{"target.host"}},
		{"a method", `"target":{"method":"FETCH"}`, "target.method", []string{"POST"}},
		{"a header's name", `"target":{"headers":{"a b":"c"}}`, "target.headers.a b", nil},
		{"a header's value", `"target":{"headers":{"X-A":"b\r\nX-B: c"}}`, "target.headers.X-A", nil},
		{"a header that Punctual sets", `"target":{"headers":{"Content-Length":"1"}}`, "target.headers.Content-Length", nil},
		{"a header given twice", `"target":{"headers":{"X-Key":"1","x-key":"2"}}`, "target.headers.x-key", []string{"X-Key"}},
		{
			"a body that is too large",
			`"target":{"body":"` + long(256<<10) + `"}`, "target.body",
			[]string{"262146", "262144"},
		},
		{"timeout", `"timeout":"0s"`, "timeout", []string{`"0s"`, "1ms to 24h"}},
		{"timeout beyond a day", `"timeout":"25h"`, "timeout", []string{`"25h"`, "24h"}},
		{"attempts", `"retry":{"max_attempts":101}`, "retry.max_attempts", []string{"101", "1 to 100"}},
		{"attempts below zero", `"retry":{"max_attempts":-1}`, "retry.max_attempts", []string{"-1", "1 to 100"}},
		{"initial_backoff", `"retry":{"initial_backoff":"soon"}`, "retry.initial_backoff", []string{`"soon"`}},
		{"max_backoff", `"retry":{"max_backoff":"169h"}`, "retry.max_backoff", []string{`"169h"`}},
		{"multiplier", `"retry":{"multiplier":0.5}`, "retry.multiplier", []string{"0.5", "1 to 100"}},
		{"a status to give up on", `"retry":{"give_up_on":[410,200]}`, "retry.give_up_on[1]", []string{"200", "300 to 599"}},
		{"queue", `"queue":"a b"`, "queue", []string{`"a b"`, "1 to 64"}},
		{"priority", `"priority":"urgent"`, "priority", []string{`"urgent"`, "high, normal, low"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			problems := definition(t, "{"+c.json+"}").Validate()
			if len(problems) == 0 {
				t.Fatal("nothing is found wrong")
			}
			for _, p := range problems {
				if p.Field != c.field {
					t.Errorf("%s is blamed: %s", p.Field, p.Message)
				}
				if len(p.Message) > 600 {
					t.Errorf("a message of %d bytes: %.200s…", len(p.Message), p.Message)
				}
			}
			for _, want := range c.says {
				if !strings.Contains(problems[0].Message, want) {
					t.Errorf("%q does not say %q", problems[0].Message, want)
				}
			}
			if got, want := problems[0].Error(), problems[0].Field+": "+problems[0].Message; got != want {
				t.Errorf("as an error: %q, want %q", got, want)
			}
		})
	}
}

func TestValidateFindsNothingWrongWith(t *testing.T) {
	for name, json := range map[string]string{
		"the least there can be":      ``,
		"a job that never fires":      `"schedule":{}`,
		"the longest of all":          `"schedule":{"every":"8784h"},"timeout":"24h","jitter":"24h","expires_after":"8784h","missed":{"window":"8784h","tolerance":"24h"}`,
		"the shortest of all":         `"schedule":{"every":"1s"},"timeout":"1ms","jitter":"0s","expires_after":"1ms","missed":{"window":"1s","tolerance":"1s"},"retry":{"max_attempts":1,"initial_backoff":"0s","max_backoff":"0s","multiplier":1}`,
		"a slot within a second":      `"schedule":{"cron":"* * * * * *"},"expires_after":"1s","jitter":"0s","missed":{"policy":"skip","tolerance":"1s"},"retry":{"max_attempts":1}`,
		"a one-shot in the past":      `"schedule":{"at":"1970-01-01T00:00:00Z"}`,
		"jitter of nothing":           `"schedule":{"delay":"0s"},"jitter":"0s"`,
		"nothing to give up on":       `"retry":{"give_up_on":[]}`,
		"every character of names":    `"name":"0Az._:-","queue":"0Az._-","labels":{"a/b.c_d-E":"any thing: ü"}`,
		"both bounds at one instant":  `"schedule":{"every":"1h","starts_at":"2026-12-01T09:00:00Z","ends_at":"2026-12-01T10:00:00+01:00"}`,
		"the largest body":            `"target":{"body":"` + long(256<<10-2) + `"}`,
		"capitals in @ abbreviations": `"schedule":{"cron":"@hourly"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if problems := definition(t, "{"+json+"}").Validate(); problems != nil {
				t.Errorf("%v", problems)
			}
		})
	}
}

func TestValidateFindsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	d := definition(t, `{"name":"","schedule":{"cron":"99 * * * *","timezone":"Mars"},"jitter":"x","missed":{"policy":"x","tolerance":"x","window":"x"},
		"concurrency_policy":"x","expires_after":"x","timeout":"x","target":{"url":"x","method":"x","headers":{"a b":"","c d":""}},
		"retry":{"max_attempts":-1,"multiplier":1000},"queue":"-","priority":"x"}`)
	var fields []string
	for _, p := range d.Validate() {
		fields = append(fields, p.Field)
	}
	want := []string{
		"name", "schedule.cron", "schedule.timezone", "jitter", "missed.policy", "missed.tolerance", "missed.window",
		"concurrency_policy", "expires_after",
		"target.url", "target.method", "target.headers.a b", "target.headers.c d", "timeout", "retry.max_attempts",
		"retry.multiplier", "queue", "priority",
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestValidateOfAScheduleAloneHasRelativeFields(t *testing.T) {
	t.Parallel()
	problems := definition(t, `{"schedule":{"cron":"99 * * * *"}}`).Schedule.Validate()
	if len(problems) != 1 || problems[0].Field != "cron" {
		t.Errorf("%v", problems)
	}
}
