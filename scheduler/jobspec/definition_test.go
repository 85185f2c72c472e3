package jobspec

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWithDefaults(t *testing.T) {
	const everything = `{"concurrency_policy":"forbid","missed":{"policy":"skip","tolerance":"1s","window":"1m"},"priority":"low","queue":"other","timeout":"1s","jitter":"0s",
		"retry":{"max_attempts":1,"initial_backoff":"0s","multiplier":1,"max_backoff":"0s","give_up_on":[],"after_timeout":true},"target":{"url":"http://127.0.0.1:9/hook","method":"GET"},
		"delivery":"at_most_once","submitters_may_trigger":true,"completion":"async","heartbeat_timeout":"1m","max_duration":"2h","notify":[{"on":["dead"],"url":"http://127.0.0.1:9/pager"}]}`
	for _, c := range []struct{ name, given, want string }{
		{
			"nothing", `{}`,
			`{"concurrency_policy":"allow","delivery":"at_least_once","completion":"response","missed":{"policy":"fire_once","tolerance":"60s"},"priority":"normal","queue":"default","timeout":"30s",
			  "submitters_may_trigger":false,
			  "retry":{"max_attempts":5,"initial_backoff":"10s","multiplier":3,"max_backoff":"1h","give_up_on":[410],"after_timeout":true},"target":{"url":"http://127.0.0.1:9/hook","method":"POST"}}`,
		},
		{"everything", everything, everything},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(
				members(t, definition(t, c.want)), members(t, definition(t, c.given).WithDefaults()),
			); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDefaultsThatDependOnTheKind(t *testing.T) {
	t.Parallel()
	cron := definition(t, `{"schedule":{"cron":"@daily"}}`).WithDefaults()
	if cron.Schedule.Timezone != "UTC" || !cron.Missed.Window.IsZero() || !cron.Jitter.IsZero() {
		t.Errorf("cron: %+v", cron)
	}
	for policy, want := range map[string]bool{"allow": true, "forbid": false, "wait": false, "replace": false} {
		d := definition(t, `{"concurrency_policy":"`+policy+`"}`).WithDefaults()
		if *d.Retry.AfterTimeout != want {
			t.Errorf("%s: after a timeout another attempt follows: %t", policy, !want)
		}
	}
	if d := definition(t, `{"limits":["one"]}`).WithDefaults(); d.Retry.AfterTimeout != nil {
		t.Error("with limits it does not depend on the definition alone whether another attempt follows a timeout")
	}
	for _, long := range []string{`"completion":"async"`, `"steps":[{"name":"a"}]`} {
		for schedule, want := range map[string]ConcurrencyPolicy{
			`"cron":"@daily"`: PolicyForbid, `"every":"1h"`: PolicyForbid, `"delay":"5m"`: PolicyForbid, `"event":"e"`: PolicyAllow,
			``: PolicyAllow, // what is triggered was accepted
		} {
			d := definition(t, `{`+long+`,"schedule":{`+schedule+`}}`)
			if got := d.WithDefaults().ConcurrencyPolicy; got != want {
				t.Errorf("%s, schedule {%s}: %s by default, want %s", long, schedule, got, want)
			}
			if d.ConcurrencyPolicy = PolicyQueue; d.WithDefaults().ConcurrencyPolicy != PolicyQueue {
				t.Errorf("%s, schedule {%s}: an explicit policy does not stay", long, schedule)
			}
		}
	}
	for _, schedule := range []string{`"at":"2026-12-01T09:00:00Z"`, `"delay":"5m"`} {
		d := definition(t, `{"schedule":{`+schedule+`}}`).WithDefaults()
		if !d.Missed.Window.IsZero() || d.Schedule.Timezone != "" {
			t.Errorf("%s: %+v", schedule, d)
		}
	}
}

// A definition comes back as it was written: without added defaults and with every text unchanged.
func TestDefinitionsAreEchoedAsWritten(t *testing.T) {
	for _, text := range []string{
		`{"name":"a","target":{"url":"https://example.com"}}`,
		`{"name":"a","description":"d","labels":{"a":"b"},"schedule":{"cron":"@daily","timezone":"Europe/Berlin","starts_at":"2026-12-01T09:00:00+01:00","ends_at":"2027-12-01T09:00:00.500Z"},
		  "jitter":"0s","missed":{"policy":"skip","tolerance":"90s","window":"24h"},"concurrency_policy":"forbid","expires_after":"60m",
		  "target":{"url":"https://example.com","method":"PUT","headers":{"X-A":"b"},"body":{"b":1,"a":[1.50,"x"]}},"timeout":"1000ms",
		  "retry":{"max_attempts":3,"initial_backoff":"1m","multiplier":1.5,"max_backoff":"1h0m","give_up_on":[]},"queue":"q","priority":"high",
		  "delivery":"at_most_once","completion":"async","heartbeat_timeout":"60s","max_duration":"120m","notify":[{"on":["late","dead"],"url":"https://example.com/pager"}]}`,
		`{"name":"a","schedule":{"every":"3600s"},"target":{"url":"https://example.com","body":"text"},"retry":{"max_attempts":3}}`,
		`{"name":"a","schedule":{"delay":"0.5h"},"target":{"url":"https://example.com","body":[]},"retry":{"give_up_on":[404,410]}}`,
		`{"name":"a","schedule":{"at":"2026-12-01T09:00:00-00:30"},"target":{"url":"https://example.com","body":null}}`,
		`{"name":"a","schedule":{"every":"half past"},"jitter":"much","target":{"url":"x"}}`, // invalid, but echoed as well
	} {
		if diff := cmp.Diff(members(t, json.RawMessage(text)), members(t, definition(t, text))); diff != "" {
			t.Errorf("%s: -written +echoed:\n%s", text, diff)
		}
	}
}

// members returns the members of the JSON that a value is written as.
func members(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	var m map[string]any
	must(t, json.Unmarshal(text, &m))
	return m
}

func TestValuesWrittenByPrograms(t *testing.T) {
	t.Parallel()
	if d := DurationOf(90 * time.Second); d.String() != "1m30s" || d.Value() != 90*time.Second || d.IsZero() {
		t.Errorf("DurationOf: %v", d)
	}
	if i := InstantOf(
		time.Date(2026, 10, 11, 5, 0, 0, 1, time.FixedZone("", 7200)),
	); i.String() != "2026-10-11T03:00:00.000000001Z" || i.IsZero() {
		t.Errorf("InstantOf: %v", i)
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		schedule           string
		want               Kind
		recurring, oneShot bool
	}{
		{`"cron":"@daily"`, KindCron, true, false},
		{`"every":"1h"`, KindEvery, true, false},
		{`"at":"2026-12-01T09:00:00Z"`, KindAt, false, true},
		{`"delay":"0s"`, KindDelay, false, true},
		{``, KindNone, false, false},
	} {
		kind := definition(t, `{"schedule":{`+c.schedule+`}}`).Schedule.Kind()
		if kind != c.want || kind.Recurring() != c.recurring || kind.OneShot() != c.oneShot {
			t.Errorf("%s: kind %s, recurring %t, one-shot %t", c.schedule, kind, kind.Recurring(), kind.OneShot())
		}
	}
}

func TestLanesOrderPrioritiesWithinAQueue(t *testing.T) {
	t.Parallel()
	for priority, want := range map[Priority]int16{PriorityHigh: 12, PriorityNormal: 13, "": 13, PriorityLow: 14} {
		if got := priority.Lane(3); got != want {
			t.Errorf("priority %q of queue 3 is lane %d, want %d", priority, got, want)
		}
	}
}
