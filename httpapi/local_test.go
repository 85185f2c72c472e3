package httpapi

import "testing"

func TestAOneShotByLocalTimeIsShownWithItsZone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(`{"name":"n","schedule":{"at":"2099-07-01T09:00:00","timezone":"Europe/Berlin"},` +
		`"target":{"url":"http://example.com/"}}`)
	s.do("GET", "/v1/jobs/n", "").want(200).
		shows(`"schedule":{"timezone":"Europe/Berlin","at":"2099-07-01T09:00:00"}`).
		shows(`"next_scheduled_for":"2099-07-01T07:00:00Z"`).shows(`"next_local":"2099-07-01T09:00:00+02:00"`)
	s.do("GET", "/v1/jobs/n/upcoming", "").want(200).shows(`"local":"2099-07-01T09:00:00+02:00"`)
	s.do("POST", "/v1/schedules/preview", `{"schedule":{"at":"2027-03-28T02:30:00","timezone":"Europe/Berlin"}}`).want(200).
		shows(`"local":"2027-03-28T03:30:00+02:00"`).shows(`02:30 does not exist`)
	s.do("POST", "/v1/schedules/preview", `{"schedule":{"cron":"0 30 9 ? * 2-6"}}`).want(200).
		shows(`"words":"Tue–Sat 09:30"`).shows(`in Quartz and EventBridge 1 is Sunday`).shows(`in UTC`)
	s.do("POST", "/v1/schedules/preview", `{"schedule":{"every":"1h","ends_at":"2020-01-01T00:00:00Z"}}`).want(200).
		shows(`"warnings":["no slot is left: see ends_at"]`).shows(`"words":null`)
	s.do("PATCH", "/v1/jobs/n", `{"schedule":{"at":"2099-07-01T09:00:00Z"}}`).
		wantMessage("body.schedule.timezone", "schedule.at has an offset")
	s.do("PATCH", "/v1/jobs/n", `{"schedule":{"at":"2099-07-01T09:00:00Z","timezone":null}}`).want(200).
		shows(`"next_scheduled_for":"2099-07-01T09:00:00Z"`)
}
