package httpapi

import (
	"testing"

	"punctual/httpapi/problem"
)

func TestFiltersNameTheirValuesAndTheNearest(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct {
		query, at string
		says      []string
	}{
		{"/v1/runs?status=failed", "query.status", []string{`"failed" is not one of pending, running`, "did you mean dead?"}},
		{"/v1/runs?status=success", "query.status", []string{"did you mean succeeded?"}},
		{"/v1/runs?reason=http_500", "query.reason", []string{`"http_500"`, "http_4xx", "http_5xx"}},
		{"/v1/runs?trigger=cron", "query.trigger", []string{"did you mean schedule?"}},
		{"/v1/runs?late=maybe", "query.late", []string{"true, false"}},
		{"/v1/runs?view=brief", "query.view", []string{"full, summary"}},
		{"/v1/jobs?state=enabled", "query.state", []string{"active, paused, completed", "did you mean active?"}},
		{"/v1/jobs?state=pausd", "query.state", []string{"did you mean paused?"}},
		{"/v1/operations?state=x", "query.state", []string{"running, done, cancelled, failed"}},
		{"/v1/jobs?stat=active", "query.stat", []string{"unknown parameter; there are: ", "limit, ", "did you mean state?"}},
		{
			"/v1/jobs?sort=name", "query.sort",
			[]string{"unknown parameter; there are: state, queue, label, name, q, failing, overdue, paused_by_operation, recent, view, limit, cursor"},
		},
		{"/v1/runs?sort=name", "query.sort", []string{"status", "job_id", "cursor"}},
		{"/v1/queues?x=1", "query.x", []string{"takes no query parameters"}},
	} {
		t.Run(c.query, func(t *testing.T) { s.in(t).do("GET", c.query, "").wantMessage(c.at, c.says...) })
	}
}

func TestBodiesOfOtherSystemsGetAHint(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct {
		fields, at string
		says       []string
	}{
		{`"timeout":"1d"`, "body.timeout", []string{`"1d" is not a duration; use "24h"`}},
		{`"timeout":"PT5M"`, "body.timeout", []string{`use "5m"`}},
		{`"schedule":{"every":"5 minutes"}`, "body.schedule.every", []string{`"5 minutes"`, `use "5m"`}},
		{`"schedule":{"every":"rate(5 minutes)"}`, "body.schedule.every", []string{`use "5m"`}},
		{`"schedule":{"every":300}`, "body.schedule.every", []string{`must be a string such as "90s" with its unit, not the number 300`}},
		{`"schedule":{"every":0}`, "body.schedule.every", []string{`not the number 0`}},
		{`"schedule":{"every":1.5}`, "body.schedule.every", []string{`such as "90s" with its unit, not the number 1.5`}},
		{
			`"schedule":{"at":1796115600}`, "body.schedule.at",
			[]string{`such as "2026-12-01T09:00:00Z", not the number 1796115600`},
		},
		{`"schedule":{"at":1796115600000}`, "body.schedule.at", []string{`such as "2026-12-01T09:00:00Z"`}},
		{`"schedule":{"cron":"rate(5 minutes)"}`, "body.schedule.cron", []string{`use {"every":"5m"} in place of cron`}},
		{`"schedule":{"cron":"@every 5m"}`, "body.schedule.cron", []string{`use {"every":"5m"} in place of cron`}},
		{`"schedule":{"cron":"cron(0 10 * * ? *)"}`, "body.schedule.cron", []string{`use "0 10 * * *"`}},
		{
			`"schedule":{"cron":"at(2026-12-01T09:00:00)"}`, "body.schedule.cron", []string{`use {"at":"2026-12-01T09:00:00Z"}`},
		},
		{`"schedule":"@daily"`, "body.schedule", []string{`must be an object such as {"cron":"@daily"}, not a string`}},
		{`"schedule":"rate(5 minutes)"`, "body.schedule", []string{`such as {"every":"5m"}`}},
		{`"schedule":"0 5 1 1"`, "body.schedule", []string{`must be an object, not a string`}},
		{`"timeout":"1 30"`, "body.timeout", []string{`"1 30" is not a duration: a number lacks its unit; write one such as`}},
		{`"timeout":"5M"`, "body.timeout", []string{`M may be months, which have no fixed length, or minutes, which are m`}},
		{`"schedule":"whenever"`, "body.schedule", []string{`must be an object, not a string`}},
		{
			`"retry":{"max_attempts":0}`, "body.retry.max_attempts",
			[]string{"must not be 0: write 1 for one attempt and no retry", "leave it out for the default"},
		},
		{`"timeout":"48h"`, "body.timeout", []string{`"48h" is outside 1ms to 24h;`, "completion"}},
		{`"state":"paused"`, "body.state", []string{"set by the server", `"paused": true`, "/v1/jobs/{job}/pause"}},
		{
			`"concurrency_policy":"deny"`, "body.concurrency_policy",
			[]string{"allow, forbid, replace, wait", "did you mean forbid?"},
		},
		{`"payload":{"a":1}`, "body.payload", []string{"did you mean target.body?"}},
		{`"callback":"http://example.com/"`, "body.callback", []string{"did you mean target.url?"}},
		{`"retryPolicy":{"maxRetries":3}`, "body.retryPolicy", []string{"did you mean retry?"}},
		{`"max_retries":3`, "body.max_retries", []string{"retry.max_attempts", "counts the first attempt"}},
		{`"timeoutSec":30`, "body.timeoutSec", []string{`did you mean timeout?`, `"30s"`}},
		{`"cron_expr":"0 3 * * *"`, "body.cron_expr", []string{"did you mean schedule.cron?"}},
		{`"timezone":"Europe/Berlin"`, "body.timezone", []string{"did you mean schedule.timezone?"}},
		{`"missed_policy":"skip"`, "body.missed_policy", []string{"did you mean missed.policy?"}},
		{`"enabled":true`, "body.enabled", []string{"did you mean paused?"}},
		{`"type":"CRON"`, "body.type", []string{"schedule says it"}},
		{`"priority":"urgent"`, "body.priority", []string{"did you mean high?"}},
		{`"delivery":"at_most_onc"`, "body.delivery", []string{"did you mean at_most_once?"}},
		{
			`"notify":[{"on":["failed"],"url":"http://example.com/"}]`, "body.notify[0].on[0]",
			[]string{"did you mean failing?"},
		},
	} {
		t.Run(c.fields, func(t *testing.T) {
			s := s.in(t)
			s.do("POST", "/v1/jobs", `{"name":"n","target":{"url":"http://example.com/"},`+c.fields+`}`).
				wantMessage(c.at, c.says...)
		})
	}
	s.do("POST", "/v1/jobs/batch", `{"on_conflict":"skp","jobs":[`+minimal("n")+`]}`).
		wantMessage("body.on_conflict", `"skp" is not one of error, replace, skip; did you mean skip?`)
	s.do("POST", "/v1/api-keys", `{"name":"n","role":"metric"}`).wantMessage("body.role", "did you mean metrics?")
	s.do("POST", "/v1/api-keys", `{"name":"n","role":"viewer","expires_in":"30d"}`).
		wantMessage("body.expires_in", `use "720h"`)
	s.do("POST", "/v1/dead-letters/replay", `{"filter":{"reason":"503"}}`).
		wantMessage("body.filter.reason", "did you mean http_5xx?")
}

// A patch with a schedule of another kind replaces the schedule; the job does not get both.
func TestAPatchChangesTheKindOfASchedule(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const cron = `{"cron":"0 3 * * *","timezone":"Europe/Berlin","starts_at":"2026-12-01T09:00:00Z"}`
	for _, c := range []struct{ from, patch, want string }{
		{cron, `{"every":"1h"}`, `{"every":"1h","starts_at":"2026-12-01T09:00:00Z"}`},
		{cron, `{"delay":"1h"}`, `{"delay":"1h"}`},
		{cron, `{"at":"2099-12-01T09:00:00Z"}`, `{"at":"2099-12-01T09:00:00Z"}`},
		{
			cron, `{"timezone":"Europe/Paris"}`,
			`{"cron":"0 3 * * *","timezone":"Europe/Paris","starts_at":"2026-12-01T09:00:00Z"}`,
		},
		{`{"every":"1h"}`, `{"cron":"@daily","timezone":"Europe/Paris"}`, `{"cron":"@daily","timezone":"Europe/Paris"}`},
		{
			`{"delay":"1h"}`, `{"every":"1h","ends_at":"2099-12-01T09:00:00Z"}`,
			`{"every":"1h","ends_at":"2099-12-01T09:00:00Z"}`,
		},
		{`{"every":"1h"}`, `{"every":"2h"}`, `{"every":"2h"}`},
		{`{}`, `{"every":"2h"}`, `{"every":"2h"}`},
		{`{"every":"1h"}`, `{"every":null}`, ``},
	} {
		t.Run(c.from+c.patch, func(t *testing.T) {
			s := s.in(t)
			s.do("PUT", "/v1/jobs/n", `{"schedule":`+c.from+`,"target":{"url":"http://example.com/"}}`).want(201)
			defer func() { s.do("DELETE", "/v1/jobs/n", "").want(204) }()
			got := s.do("PATCH", "/v1/jobs/n", `{"schedule":`+c.patch+`}`).want(200)
			if c.want == "" {
				if _, there := got.fields()["schedule"]; there {
					t.Errorf("%s", got.body)
				}
				return
			}
			got.shows(`"schedule":` + c.want)
		})
	}
	s.create(minimal("n"))
	s.do("PATCH", "/v1/jobs/n", `{"schedule":{"every":"1h","delay":"1h"}}`).wantMessage("body.schedule", "at most one")
	s.do("PATCH", "/v1/jobs/n", `{"schedule":{"every":"1h","timezone":"Europe/Paris"}}`).
		wantMessage("body.schedule.timezone", "only cron")
	s.do("PATCH", "/v1/jobs/n", `{"schedule":{"every":"1h","cron":"@daily"}}`).code(problem.CodeInvalid)
}
