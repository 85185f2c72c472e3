package httpapi

import (
	"testing"
	"time"

	"punctual/httpapi/problem"
	"punctual/scheduler/cron"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(`{"name":"a","schedule":{"cron":"0 3 * * *","timezone":"Asia/Tokyo"},"target":{"url":"http://example.com/"}}`)
	for at, want := range map[string]struct{ instant, outcome string }{
		"2199-01-02T03:00:00":       {"2199-01-01T18:00:00Z", "upcoming"},
		"2199-01-02T03:00":          {"2199-01-01T18:00:00Z", "upcoming"},
		"2199-01-01T18:00:00Z":      {"2199-01-01T18:00:00Z", "upcoming"},
		"2199-01-02T03:00:00+09:00": {"2199-01-01T18:00:00Z", "upcoming"},
		"2199-01-02T03:00:00.5":     {"2199-01-01T18:00:00.5Z", "no_slot"},
		"2020-01-01T00:00:00Z":      {"2020-01-01T00:00:00Z", "before_created"},
	} {
		got := s.do("GET", "/v1/jobs/a/explain?at="+at, "").want(200).fields()
		if got["at"] != want.instant || got["outcome"] != want.outcome || got["explanation"] == "" {
			t.Errorf("%s: %v", at, got)
		}
		for _, field := range []string{"slot", "version", "run", "pause", "previous_slot", "next_slot"} {
			if _, ok := got[field]; !ok {
				t.Errorf("%s: no %s", at, field)
			}
		}
	}
	for _, query := range []string{"", "?at=", "?at=yesterday", "?at=2199-01-02", "?when=2199-01-01T18:00:00Z"} {
		if p := s.do("GET", "/v1/jobs/a/explain"+query, "").code(problem.CodeInvalid); len(p.Errors) == 0 {
			t.Errorf("%q: %+v", query, p)
		}
	}
	s.do("GET", "/v1/jobs/nobody/explain?at=2199-01-01T18:00:00Z", "").code(problem.CodeNotFound)
}

func TestExplainTellsOfADeletedJobByItsID(t *testing.T) {
	t.Parallel()
	s := serve(t)
	job := s.create(minimal("a"))
	s.do("DELETE", "/v1/jobs/a", "").want(204)
	if got := s.do("GET", "/v1/jobs/"+job["id"].(string)+"/explain?at=2199-01-01T03:00:00Z",
		"").want(200).fields(); got["outcome"] != "deleted" {
		t.Errorf("%v", got)
	}
	s.do("GET", "/v1/jobs/a/explain?at=2199-01-01T03:00:00Z", "").code(problem.CodeNotFound)
}

func TestAnInstantWithoutAnOffsetFollowsTheRuleForSlots(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ zone, text, want string }{
		{"Europe/Berlin", "2026-03-29T02:30:00", "2026-03-29T01:30:00Z"},    // skipped, so 03:30 in summer time
		{"America/New_York", "2026-03-08T02:30:00", "2026-03-08T07:30:00Z"}, // also skipped, west of Greenwich
		{"Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30:00Z"},    // comes twice, so the first
		{"America/New_York", "2026-11-01T01:30:00", "2026-11-01T05:30:00Z"},
		{"Australia/Lord_Howe", "2026-10-04T02:15:00", "2026-10-03T15:45:00Z"}, // skipped by half an hour
		{"Pacific/Apia", "2011-12-30T12:00:00", "2011-12-30T22:00:00Z"},        // on a day that was skipped
		{"Asia/Tokyo", "2026-01-01T09:00:00", "2026-01-01T00:00:00Z"},
		{"UTC", "2026-01-01T09:00:00", "2026-01-01T09:00:00Z"},
	} {
		zone, err := cron.LoadZone(test.zone)
		must(t, err)
		var p localParam
		must(t, p.UnmarshalText([]byte(test.text)))
		got, err := p.in(zone)
		if err != nil || got.UTC().Format(time.RFC3339) != test.want {
			t.Errorf("%s in %s is %s, want %s (%v)", test.text, test.zone, got.UTC().Format(time.RFC3339), test.want, err)
		}
	}
}
