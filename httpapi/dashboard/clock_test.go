package dashboard

import (
	"strings"
	"testing"
	"time"

	"punctual/scheduler/cron"
)

func inBerlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := cron.LoadZone("Europe/Berlin")
	must(t, err)
	return zone
}

// A time without an offset is that of the zone, by the rule for slots where summer time begins and ends.
func TestATimeOfAFormIsInItsZone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-12-01T06:00":          "2026-12-01T05:00:00Z",
		"2026-07-01T06:00:30":       "2026-07-01T04:00:30Z",
		"2027-03-28T02:30":          "2027-03-28T01:30:00Z", // it does not exist, and becomes 03:30
		"2026-10-25T02:30":          "2026-10-25T00:30:00Z", // the first of two
		"2026-12-01T06:00:00Z":      "2026-12-01T06:00:00Z",
		"2026-12-01T06:00:00+09:00": "2026-12-01T06:00:00+09:00",
		"soon":                      "soon",
	} {
		if got := instantIn(text, inBerlin(t)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestATimeIsAskedForAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 1, 30, 0, 0, time.UTC) // a Wednesday, 02:30 in Berlin
	for text, want := range map[string]string{
		"2026-11-24 03:00":           "2026-11-24T02:00:00Z",
		"2026-11-24T03:00:10":        "2026-11-24T02:00:10Z",
		"24.11.2026 03:00":           "2026-11-24T02:00:00Z",
		"2026-11-24T03:00:00Z":       "2026-11-24T03:00:00Z",
		"2026-11-24 03:00 UTC":       "2026-11-24T03:00:00Z",
		"2026-10-25 02:30:00 +01:00": "2026-10-25T01:30:00Z",
		"03:00":                      "2026-11-24T02:00:00Z", // today's is still to come
		"02:00:05":                   "2026-11-25T01:00:05Z",
		"Yesterday 03:00":            "2026-11-24T02:00:00Z",
		"today  03:00":               "2026-11-25T02:00:00Z",
		"tomorrow 03:00":             "2026-11-26T02:00:00Z",
		"monday 03:00":               "2026-11-23T02:00:00Z",
		"wed 03:00":                  "2026-11-18T02:00:00Z",
		"-2h":                        "2026-11-24T23:30:00Z",
		"90 min ago":                 "",
		"90m ago":                    "2026-11-25T00:00:00Z",
		"-1d":                        "2026-11-24T01:30:00Z",
		"now":                        "2026-11-25T01:30:00Z",
		"noday 03:00":                "",
		"soon":                       "",
		"25:00":                      "",
	} {
		at, err := asked(text, now, inBerlin(t))
		if got := at.UTC().Format(time.RFC3339); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q is %s: %v, want %q", text, got, err, want)
		}
	}
}

// Whatever a page shows or asks is in the zone of the cookie. What the cookie holds by mistake or malice is UTC.
func TestThePagesHaveOneClock(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("daily")
	b.post("/jobs/daily/trigger").want(303)
	b.post("/jobs/daily/pause", "until", "2126-12-01T06:00", "zone", "Europe/Berlin").want(303)
	const at = "2126-12-01T05:00:00Z"
	s.counts(1, "jobs", "paused_until = '"+at+"'")
	for cookie, want := range map[string]string{
		"local%3AAsia%2FTokyo": "14:00:00", "utc%3AAsia%2FTokyo": "05:00:00", "job%3AAsia%2FTokyo": "06:00:00",
		"local%3AMars%2FPhobos": "05:00:00", "local%3A%22%3E%3Cscript%3E": "05:00:00", "%zz": "05:00:00", "local": "05:00:00",
	} {
		b.keep(zoneCookie, "/", cookie)
		page := sound(b.get("/jobs/daily").want(200))
		page.shows(">2126-12-01 "+want+"</time>").hides("\uE000", "<script>")
		zone := map[string]string{"14": "Asia/Tokyo", "05": "UTC", "06": "Europe/Berlin"}[want[:2]]
		page.shows(`name="zone" value="`+zone+`"`, "At this time ("+zone+")")
		for _, path := range []string{"/jobs", "/runs", "/timeline", "/forecast", "/settings", "/jobs/daily/backfill"} {
			sound(b.get(path).want(200)).hides("\uE000")
		}
	}
	b.keep(zoneCookie, "/", "local%3AAsia%2FTokyo")
	b.post("/jobs", "search", "name:d", "action", "pause").want(200).
		shows("Until (Asia/Tokyo, optional)", `name="zone" value="Asia/Tokyo"`, ">Times in Asia/Tokyo<")
	b.get("/settings").shows("Expires (Asia/Tokyo, optional)")
	b.post("/clock", "clock", "utc", "next", "/jobs/daily").want(303)
	b.get("/jobs/daily").shows(`title="2126-12-01 06:00:00 Europe/Berlin`, ">2126-12-01 05:00:00</time>", ">Tokyo</button>")
	if to := b.post("/clock", "clock", "job", "next", "//elsewhere").want(303).to(); to != "/" {
		t.Errorf("the visitor is sent to %s", to)
	}
	form := b.get("/jobs/daily/backfill?zone=Europe%2FBerlin&from=2026-11-24T03:00&to=2026-11-24T03:01").want(200)
	form.shows("From (Europe/Berlin)", `value="2026-11-24T03:00"`)
	now := time.Now().In(inBerlin(t))
	day := now.AddDate(0, 0, -3)
	b.get("/jobs/daily/backfill?zone=Europe%2FBerlin&from="+day.Format(time.DateOnly)+"&to="+now.Format(time.DateOnly)).
		want(200).shows("</strong>", "From "+day.Format(time.DateOnly)+"T00:00:00&#43;0", " in Europe/Berlin, which is ",
		`name="allow"`, "one at a time")
}

// An hour that comes twice says which one it is, and can be asked for as it is shown.
func TestAnHourThatComesTwiceSaysItsOffset(t *testing.T) {
	t.Parallel()
	c := clock{Kind: "local", Local: "Europe/Berlin"}
	for at, want := range map[string]string{
		"2026-10-25T00:30:00Z": "2026-10-25 02:30:00 +02:00",
		"2026-10-25T01:30:00Z": "2026-10-25 02:30:00 +01:00",
		"2026-10-25T02:30:00Z": "2026-10-25 03:30:00",
		"2026-10-24T23:30:00Z": "2026-10-25 01:30:00",
	} {
		instant, err := time.Parse(time.RFC3339, at)
		must(t, err)
		got := string(c.told([]byte(mark(instant, "time", ""))))
		back, err := asked(got, time.Now(), inBerlin(t))
		if got != want || err != nil || !back.Equal(instant) {
			t.Errorf("%s is shown as %s, want %s; asked for, that is %s: %v", at, got, want, back, err)
		}
	}
}

// The answer speaks as the page does.
func TestAnAnswerIsInThePagesWords(t *testing.T) {
	t.Parallel()
	got := string(clock{}.told([]byte(toldToPeople(
		`The slot ran and failed for good at 2026-11-24T23:57:30.490168Z: http_5xx (the target answered 503 <b>).`, "UTC"))))
	for _, part := range []string{">2026-11-24 23:57:30</time>", ": 503: &lt;b&gt;."} {
		if !strings.Contains(got, part) {
			t.Errorf("%s lacks %s", got, part)
		}
	}
}
