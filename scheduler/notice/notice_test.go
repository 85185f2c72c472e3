package notice

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
)

var (
	now   = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	began = now.Add(-10 * time.Minute)
	jobID = uuid.MustParse("019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11")
)

func event(e scheduler.Event, count int, runs ...scheduler.NewsRun) scheduler.NewsEvent {
	news := scheduler.NewsEvent{Event: e, Count: count, FirstAt: began, LastAt: now, Runs: runs}
	switch e {
	case scheduler.EventFailing, scheduler.EventDead, scheduler.EventStale, scheduler.EventRecovered:
		news.Since, news.Failures = &began, 7
	}
	return news
}

func failedRun() scheduler.NewsRun {
	return scheduler.NewsRun{
		ID: uuid.New(), ScheduledFor: began, HappenedAt: now, Reason: scheduler.ReasonHTTP5xx, HTTPStatus: 503,
		Error: "503 Service Unavailable", Response: `<!channel> & <b>busy</b>`,
		Link: "https://punctual.internal/v1/runs/019ad98a-2a60-8d07-9c52-7b0f1e3d4a86",
	}
}

func news(events ...scheduler.NewsEvent) scheduler.News {
	return scheduler.News{
		Job: "daily-invoice-gen", JobID: jobID, Tenant: "billing",
		Link: "https://punctual.internal/v1/jobs/daily-invoice-gen/runs", Events: events,
	}
}

// body returns the body for a notify entry that asks for the given events, or for all events if none are given.
func body(t *testing.T, format scheduler.Format, n scheduler.News, on ...scheduler.Event) []byte {
	t.Helper()
	if on == nil {
		on = scheduler.Events
	}
	entry := scheduler.Notify{On: on, Format: format, URL: "https://pager.internal/", Secret: "key"}
	body, told, err := Body(n, entry.Recipient(), []scheduler.Notify{entry}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range n.Events {
		if slices.Contains(told, e.Event) != slices.Contains(on, e.Event) {
			t.Errorf("told of %q", told)
		}
	}
	return body
}

var everyEvent = []scheduler.NewsEvent{
	event(scheduler.EventFailing, 1, failedRun()), event(scheduler.EventMissed, 2), event(scheduler.EventLate, 1),
	event(scheduler.EventDead, 3, failedRun(), failedRun(), failedRun(), failedRun()),
	event(scheduler.EventStale, 1), event(scheduler.EventRecovered, 1),
}

func TestSlack(t *testing.T) {
	for _, e := range append(everyEvent, scheduler.NewsEvent{Event: "newer", Count: 1}) {
		checkSlack(t, body(t, scheduler.FormatSlack, news(e), e.Event))
	}
	text := checkSlack(t, body(t, scheduler.FormatSlack, news(everyEvent...)))
	for _, want := range []string{
		"daily-invoice-gen", "billing", "3 runs died", "2026-12-01T11:50:00Z", "7 failed attempts", "http_5xx",
		"503 Service Unavailable",
		"&lt;!channel&gt; &amp; &lt;b&gt;busy&lt;/b&gt;",
		"<https://punctual.internal/v1/runs/019ad98a-2a60-8d07-9c52-7b0f1e3d4a86|",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	// Any response of a target stays within its code fence, and the message within Slack's limits.
	r := failedRun()
	r.Error, r.Response = strings.Repeat("<&>é", 250), strings.Repeat("`", scheduler.NewsResponse)
	many := event(scheduler.EventDead, 1000, slices.Repeat([]scheduler.NewsRun{r}, 20)...)
	text = checkSlack(t, body(t, scheduler.FormatSlack, news(many, event(scheduler.EventLate, 1000, many.Runs...))))
	if strings.Count(text, "```")%2 != 0 || strings.Contains(text, "````") {
		t.Error("a response ends the code that it is in")
	}
}

func TestPagerDutyOpensAndResolvesOneIncidentForEachJob(t *testing.T) {
	opened := checkPagerDuty(t, body(t, scheduler.FormatPagerDuty,
		news(event(scheduler.EventFailing, 1, failedRun()), event(scheduler.EventDead, 1, failedRun()))))
	if opened.EventAction != "trigger" || opened.Payload.Severity != "critical" || opened.Payload.Class != "dead" ||
		opened.Payload.Source != "punctual.internal" || opened.Client != "Punctual" || len(opened.Links) != 2 {
		t.Errorf("%+v", opened)
	}
	resolved := checkPagerDuty(t,
		body(t, scheduler.FormatPagerDuty, news(event(scheduler.EventDead, 1), event(scheduler.EventRecovered, 1))))
	if resolved.EventAction != "resolve" || resolved.DedupKey != opened.DedupKey {
		t.Errorf("%+v", resolved)
	}
	again := checkPagerDuty(t, body(t, scheduler.FormatPagerDuty,
		news(event(scheduler.EventDead, 1), event(scheduler.EventRecovered, 1), event(scheduler.EventFailing, 1))))
	if again.EventAction != "trigger" || again.Payload.Severity != "error" {
		t.Errorf("%+v", again)
	}
	r := failedRun()
	r.Error = strings.Repeat("é", 1000)
	checkPagerDuty(t, body(t, scheduler.FormatPagerDuty,
		news(event(scheduler.EventDead, 1000, slices.Repeat([]scheduler.NewsRun{r}, 20)...))))
	for e, want := range map[scheduler.Event]string{
		scheduler.EventMissed: "warning", scheduler.EventLate: "warning", scheduler.EventStale: "critical",
		scheduler.EventFailing: "error",
	} {
		if got := checkPagerDuty(t, body(t, scheduler.FormatPagerDuty, news(event(e, 1)), e)); got.Payload.Severity != want {
			t.Errorf("%s: %s", e, got.Payload.Severity)
		}
	}
}

func TestAlertmanagerHasAnAlertForEachKindOfTrouble(t *testing.T) {
	fired := checkAlerts(t, body(t, scheduler.FormatAlertmanager, news(everyEvent[:5]...)))
	for name, ends := range map[string]time.Time{
		"PunctualJobFailing":  now.Add(untilResolved),
		"PunctualRunDead":     now.Add(untilResolved),
		"PunctualJobStale":    now.Add(untilResolved),
		"PunctualSlotsMissed": now.Add(passing), "PunctualRunLate": now.Add(passing),
	} {
		if a := fired[name]; !a.EndsAt.Equal(ends) || a.Labels["job"] != "daily-invoice-gen" ||
			a.Labels["tenant"] != "billing" || !a.StartsAt.Equal(began) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := fired["PunctualRunDead"]; a.Annotations["response"] == "" || a.Annotations["error"] == "" ||
		a.Labels["severity"] != "critical" {
		t.Errorf("%+v", a)
	}
	over := checkAlerts(t,
		body(t, scheduler.FormatAlertmanager, news(event(scheduler.EventDead, 1), event(scheduler.EventRecovered, 1))))
	for _, name := range []string{"PunctualJobFailing", "PunctualRunDead", "PunctualJobStale"} {
		a, ok := over[name]
		if !ok || !a.EndsAt.Equal(now) || !a.StartsAt.Equal(began) {
			t.Errorf("%s is not over: %+v", name, a)
		}
		for label, value := range fired[name].Labels {
			if a.Labels[label] != value {
				t.Errorf("what is over is another alert: %v and %v", a.Labels, fired[name].Labels)
			}
		}
	}
	alone := checkAlerts(t,
		body(t, scheduler.FormatAlertmanager, news(event(scheduler.EventDead, 1)), scheduler.EventDead))
	if !alone["PunctualRunDead"].EndsAt.Equal(now.Add(unresolved)) {
		t.Error("an alert whose end is not told lasts longer than a day")
	}
}

func TestJSONIsAllThereIsToSay(t *testing.T) {
	var got scheduler.News
	strict(t, body(t, scheduler.FormatJSON, news(everyEvent...)), &got)
	if len(got.Events) != 6 || got.Link == "" || got.Events[3].Failures != 7 || !got.Events[3].Since.Equal(began) ||
		got.Events[3].Runs[0].Response == "" || got.Events[3].Runs[0].HTTPStatus != 503 {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsSentToWhoAskedForNothingOfIt(t *testing.T) {
	if b := body(t, scheduler.FormatSlack, news(event(scheduler.EventLate, 1)), scheduler.EventDead); b != nil {
		t.Errorf("%s", b)
	}
}

func TestATestIsMadeOfWhatRecipientsTake(t *testing.T) {
	n := news(event(scheduler.EventTest, 1))
	for _, format := range scheduler.Formats {
		bodies, err := Test(n, scheduler.Recipient{Format: format}, now)
		if err != nil {
			t.Fatal(err)
		}
		switch format {
		case scheduler.FormatSlack:
			checkSlack(t, bodies[0])
		case scheduler.FormatPagerDuty:
			if a, b := checkPagerDuty(t, bodies[0]), checkPagerDuty(t, bodies[1]); a.EventAction != "trigger" ||
				b.EventAction != "resolve" || a.DedupKey != b.DedupKey || a.Payload.Severity != "info" {
				t.Errorf("%+v, then %+v", a, b)
			}
		case scheduler.FormatAlertmanager:
			if a := checkAlerts(t, bodies[0])["PunctualTest"]; !a.EndsAt.Equal(now.Add(ofATest)) {
				t.Errorf("%+v", a)
			}
		case scheduler.FormatJSON:
			if !json.Valid(bodies[0]) {
				t.Errorf("%s", bodies[0])
			}
		}
	}
	if _, err := Test(n, scheduler.Recipient{Format: "newer"}, now); err == nil {
		t.Error("a format that nobody knows is written")
	}
}

func TestAnExcerptIsWholeCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "short": "short", "a\x00b\xff": "a\uFFFDb\uFFFD", strings.Repeat("x", 300): strings.Repeat("x", 200),
		"x" + strings.Repeat("é", 150): "x" + strings.Repeat("é", 99),
	} {
		if got := Excerpt(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
