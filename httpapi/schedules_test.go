package httpapi

import (
	"fmt"
	"strings"
	"testing"
)

func TestUpcomingStartsAtTheJobsNextSlot(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, schedule := range map[string]string{
		"cron": `{"cron":"0 3 * * *","timezone":"Asia/Tokyo"}`, "every": `{"every":"3h"}`,
		"at":      `{"at":"2199-01-01T00:00:00Z"}`,
		"bounded": `{"every":"3h","starts_at":"2199-01-01T00:00:00Z","ends_at":"2199-01-01T03:00:00Z"}`,
	} {
		job := s.create(jobOf(name, `,"schedule":`+schedule))
		slots := s.do("GET", "/v1/jobs/"+name+"/upcoming?n=3", "").want(200).fields()["slots"].([]any)
		if want := map[string]int{"cron": 3, "every": 3, "at": 1, "bounded": 2}[name]; len(slots) != want {
			t.Errorf("%s: %d slots, want %d: %v", name, len(slots), want, slots)
			continue
		}
		first := slots[0].(map[string]any)
		if first["scheduled_for"] != job["next_scheduled_for"] || first["next_run_at"] != job["next_run_at"] {
			t.Errorf("%s: first %v, but the job's is %v, due %v", name, first, job["next_scheduled_for"], job["next_run_at"])
		}
		if name == "cron" && !strings.HasSuffix(slots[2].(map[string]any)["local"].(string), "T03:00:00+09:00") {
			t.Errorf("local: %v", slots[2])
		}
	}
}

func TestAWrittenJobSaysWhatItsScheduleMeans(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const target = `"target":{"url":"https://example.com/"}`
	for _, r := range []*reply{
		s.do("POST", "/v1/jobs", `{"name":"a","schedule":{"cron":"0 30 9 ? * 2-6"},`+target+`}`).want(201),
		s.do("PUT", "/v1/jobs/a", `{"name":"a","schedule":{"cron":"0 30 9 ? * 2-6"},`+target+`}`).want(200),
		s.do("GET", "/v1/jobs/a", "").want(200),
		s.do("POST", "/v1/jobs/a/pause", "").want(200),
	} {
		r.shows(`"schedule_words":"Tue–Sat 09:30"`, "in Quartz and EventBridge 1 is Sunday", "its hours are in UTC")
		r.hides("no slot is left")
	}
	s.do("PUT", "/v1/jobs/b", `{"name":"b","schedule":{"every":"1h","ends_at":"2020-01-01T00:00:00Z"},`+target+`}`).want(201).
		shows(`"warnings":["no slot is left: see ends_at"]`)
	s.do("PUT", "/v1/jobs/c", `{"name":"c","schedule":{"cron":"0 9 * * 1-5","timezone":"Europe/Berlin"},`+target+`}`).want(201).
		hides(`"warnings"`)
}

func TestAJobThatBecomesStaleByItsOwnScheduleIsWarnedOf(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for schedule, warning := range map[string]string{
		`{"cron":"0 3 * * mon-fri","timezone":"UTC"}`: "expect_success_within is 26h, and 72h pass between the slot on Friday",
		`{"cron":"0 3 * * *","timezone":"UTC"}`:       "",
		`{"cron":"*/5 8-17 * * *","timezone":"UTC"}`:  "",
		`{"every":"48h"}`:          "expect_success_within is 26h, and the period 48h",
		`{"every":"24h"}`:          "",
		`{"event":"invoice.paid"}`: "",
		`{"cron":"0 3 * * mon-fri","timezone":"UTC","ends_at":"2020-01-01T00:00:00Z"}`:   "",
		`{"cron":"0 3 * * mon-fri","timezone":"UTC","starts_at":"2090-01-04T00:00:00Z"}`: "on Friday, 2090-01-06 03:00",
		`{"cron":"0 3 29 2 *","timezone":"UTC"}`:                                         "26h, and 1461 days pass",
		`{"cron":"0 3 1,15 * *","timezone":"Etc/UTC"}`:                                   "expect_success_within is 26h",
	} {
		body := `{"name":"a","target":{"url":"https://example.com/"},"expect_success_within":"26h","schedule":` + schedule + `}`
		for _, r := range []*reply{s.do("PUT", "/v1/jobs/a", body), s.do("GET", "/v1/jobs/a", "")} {
			if r.status != 200 && r.status != 201 {
				t.Errorf("%s: %d", schedule, r.status)
			}
			if warning == "" {
				r.hides("becomes stale")
			} else {
				r.shows("becomes stale although its runs succeed", warning)
			}
		}
	}
}

// Whoever writes or previews a schedule is told what it may mean elsewhere.
func TestEachWarningIsGivenWhereverAScheduleIsWritten(t *testing.T) {
	t.Parallel()
	s := serve(t)
	i := 0
	for schedule, want := range map[string]string{
		`{"cron":"0 0 9 * * 2-6","timezone":"UTC"}`:             "in Quartz and EventBridge 1 is Sunday",
		`{"cron":"0 9 ? * 2","timezone":"UTC"}`:                 "in Quartz and EventBridge 1 is Sunday",
		`{"cron":"0 9 13 * fri","timezone":"UTC"}`:              "so either may match",
		`{"cron":"0 9 */2 * mon","timezone":"UTC"}`:             "must both match",
		`{"cron":"0 9 * * *"}`:                                  "its hours are in UTC",
		`{"cron":"0 * * * 1-5"}`:                                "its days are in UTC",
		`{"cron":"0 * * * *","ends_at":"2020-01-01T00:00:00Z"}`: "no slot is left",
		`{"every":"1h","ends_at":"2020-01-01T00:00:00Z"}`:       "no slot is left",
		`{"cron":"0 0 29 2 *","timezone":"UTC","starts_at":"2027-01-01T00:00:00Z","ends_at":"2027-12-31T00:00:00Z"}`: "no slot is left",
	} {
		i++
		name := fmt.Sprint("w", i)
		job := fmt.Sprintf(`{"name":%q,"schedule":%s,"target":{"url":"https://example.com/"}}`, name, schedule)
		for _, r := range []*reply{
			s.do("POST", "/v1/jobs", job).want(201), s.do("PUT", "/v1/jobs/"+name, job).want(200),
			s.do("PATCH", "/v1/jobs/"+name, `{"schedule":`+schedule+`}`).want(200),
			s.do("POST", "/v1/schedules/preview", `{"schedule":`+schedule+`}`).want(200),
		} {
			warnings, _ := r.fields()["warnings"].([]any)
			if len(warnings) != 1 || !strings.Contains(fmt.Sprint(warnings[0]), want) {
				t.Errorf("%s: %v, want %q alone", schedule, warnings, want)
			}
		}
	}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.do("POST", "/v1/schedules/preview",
		`{"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin"},"from":"2026-03-28T02:30:00+01:00","n":2}`).want(200)
	slots := r.fields()["slots"].([]any)
	if len(slots) != 2 {
		t.Fatalf("%s", r.body)
	}
	first := slots[0].(map[string]any)
	if first["scheduled_for"] != "2026-03-29T01:30:00Z" || first["local"] != "2026-03-29T03:30:00+02:00" ||
		first["note"] == nil {
		t.Errorf("across the gap: %v", first)
	}
	for body, want := range map[string]int{
		`{"schedule":{"every":"1s"}}`: 5, `{"schedule":{"every":"1s"},"n":100}`: 100, `{"schedule":{}}`: 0,
		`{"schedule":{"delay":"1m"}}`: 1,
		`{"schedule":{"every":"1h","ends_at":"2026-01-01T02:00:00Z"},"from":"2026-01-01T00:00:00Z"}`: 2,
		`{"schedule":{"at":"2020-01-01T00:00:00Z"}}`:                                                 1,
	} {
		if slots := s.do("POST", "/v1/schedules/preview", body).want(200).fields()["slots"].([]any); len(slots) != want {
			t.Errorf("%s: %d slots, want %d", body, len(slots), want)
		}
	}
	for body, want := range map[string]string{
		`{"dialect":"quartz","schedule":{"cron":"0 30 9 ? * 2-6","timezone":"Europe/Berlin"}}`: `{"cron":"0 30 9 * * MON-FRI","timezone":"Europe/Berlin"}`,
		`{"dialect":"aws","schedule":{"cron":"rate(5 minutes)"}}`:                              `{"every":"5m"}`,
		`{"dialect":"aws","schedule":{"cron":"at(2027-01-01T09:00:00)"}}`:                      `{"at":"2027-01-01T09:00:00Z"}`,
		`{"schedule":{"cron":"@daily"}}`:                                                       `{"cron":"@daily"}`,
	} {
		s.do("POST", "/v1/schedules/preview", body).want(200).shows(`"schedule":` + want)
	}
	for body, want := range map[string][]string{
		`{"dialect":"celery","schedule":{"cron":"@daily"}}`:           {"body.dialect"},
		`{"dialect":"quartz","schedule":{"cron":"0 0 9 1 1 ? 2027"}}`: {"body.schedule.cron"},
		`{"dialect":"aws","schedule":{"every":"5m"}}`:                 {"body.schedule.cron"},
		`{"schedule":{"cron":"61 * * * *"}}`:                          {"body.schedule.cron"},
		`{"schedule":{"cron":"0 0 30 2 *"},"n":101}`:                  {"body.schedule.cron", "body.n"},
		`{"schedule":{"cron":"@daily","every":"60s"},"n":0}`:          {"body.schedule", "body.n"},
		`{"schedule":{"crn":"@daily"},"from":"now","n":"five"}`:       {"body.schedule.crn", "body.n", "body.from"},
	} {
		s.do("POST", "/v1/schedules/preview", body).blames(want...)
	}
}
