package notice

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

var (
	now   = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	began = now.Add(-10 * time.Minute)
	jobID = uuid.MustParse("019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11")
)

func event(e jobspec.Event, count int, runs ...domain.DigestRun) domain.DigestEvent {
	digest := domain.DigestEvent{Event: e, Count: count, FirstAt: began, LastAt: now, Runs: runs}
	switch e {
	case jobspec.EventFailing, jobspec.EventDead, jobspec.EventStale, jobspec.EventRecovered:
		digest.Since, digest.Failures = &began, 7
	}
	return digest
}

func failedRun() domain.DigestRun {
	return domain.DigestRun{
		ID: uuid.New(), ScheduledFor: began, HappenedAt: now, Reason: domain.ReasonHTTP5xx, HTTPStatus: 503,
		Error: "503 Service Unavailable", Response: `<!channel> & <b>busy</b>`,
		Link: "https://punctual.internal/v1/runs/019ad98a-2a60-8d07-9c52-7b0f1e3d4a86",
	}
}

func digest(events ...domain.DigestEvent) domain.Digest {
	return domain.Digest{
		Job: "daily-invoice-gen", JobID: jobID, Tenant: "billing",
		Link: "https://punctual.internal/v1/jobs/daily-invoice-gen/runs", Events: events,
	}
}

// body returns the body for a notify entry that asks for the given events, or for all events if none are given.
func body(t *testing.T, format jobspec.Format, n domain.Digest, on ...jobspec.Event) []byte {
	t.Helper()
	if on == nil {
		on = jobspec.Events
	}
	entry := jobspec.Notify{On: on, Format: format, URL: "https://pager.internal/", Secret: "key"}
	if format == jobspec.FormatTemplate {
		entry.Template = everyField
	}
	list := []jobspec.Notify{entry}
	hears := entry.Recipient().Asks(list, jobspec.EventRecovered)
	body, err := Write(AboutJob(n.For(entry.Recipient(), list)), entry.Recipient(), hears, now)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

var everyEvent = []domain.DigestEvent{
	event(jobspec.EventFailing, 1, failedRun()), event(jobspec.EventMissed, 2), event(jobspec.EventLate, 1),
	event(jobspec.EventDead, 3, failedRun(), failedRun(), failedRun(), failedRun()),
	event(jobspec.EventStale, 1), event(jobspec.EventRecovered, 1),
}

func TestSlack(t *testing.T) {
	for _, e := range append(everyEvent, domain.DigestEvent{Event: "newer", Count: 1}) {
		checkSlack(t, body(t, jobspec.FormatSlack, digest(e), e.Event))
	}
	text := checkSlack(t, body(t, jobspec.FormatSlack, digest(everyEvent...)))
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
	r.Error, r.Response = strings.Repeat("<&>é", 250), strings.Repeat("`", domain.DigestResponse)
	many := event(jobspec.EventDead, 1000, slices.Repeat([]domain.DigestRun{r}, 20)...)
	text = checkSlack(t, body(t, jobspec.FormatSlack, digest(many, event(jobspec.EventLate, 1000, many.Runs...))))
	if strings.Count(text, "```")%2 != 0 || strings.Contains(text, "````") {
		t.Error("a response ends the code that it is in")
	}
}

func TestPagerDutyOpensAndResolvesOneIncidentForEachJob(t *testing.T) {
	opened := checkPagerDuty(t, body(t, jobspec.FormatPagerDuty,
		digest(event(jobspec.EventFailing, 1, failedRun()), event(jobspec.EventDead, 1, failedRun()))))
	if opened.EventAction != "trigger" || opened.Payload.Severity != "critical" || opened.Payload.Class != "dead" ||
		opened.Payload.Source != "punctual.internal" || opened.Client != "Punctual" || len(opened.Links) != 2 {
		t.Errorf("%+v", opened)
	}
	resolved := checkPagerDuty(t,
		body(t, jobspec.FormatPagerDuty, digest(event(jobspec.EventDead, 1), event(jobspec.EventRecovered, 1))))
	if resolved.EventAction != "resolve" || resolved.DedupKey != opened.DedupKey {
		t.Errorf("%+v", resolved)
	}
	again := checkPagerDuty(t, body(t, jobspec.FormatPagerDuty,
		digest(event(jobspec.EventDead, 1), event(jobspec.EventRecovered, 1), event(jobspec.EventFailing, 1))))
	if again.EventAction != "trigger" || again.Payload.Severity != "error" {
		t.Errorf("%+v", again)
	}
	r := failedRun()
	r.Error = strings.Repeat("é", 1000)
	checkPagerDuty(t, body(t, jobspec.FormatPagerDuty,
		digest(event(jobspec.EventDead, 1000, slices.Repeat([]domain.DigestRun{r}, 20)...))))
	for e, want := range map[jobspec.Event]string{
		jobspec.EventMissed: "warning", jobspec.EventLate: "warning", jobspec.EventStale: "critical",
		jobspec.EventFailing: "error",
	} {
		if got := checkPagerDuty(t, body(t, jobspec.FormatPagerDuty, digest(event(e, 1)), e)); got.Payload.Severity != want {
			t.Errorf("%s: %s", e, got.Payload.Severity)
		}
	}
}

func TestAlertmanagerHasAnAlertForEachKindOfTrouble(t *testing.T) {
	fired := checkAlerts(t, body(t, jobspec.FormatAlertmanager, digest(everyEvent[:5]...)))
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
		body(t, jobspec.FormatAlertmanager, digest(event(jobspec.EventDead, 1), event(jobspec.EventRecovered, 1))))
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
		body(t, jobspec.FormatAlertmanager, digest(event(jobspec.EventDead, 1)), jobspec.EventDead))
	if !alone["PunctualRunDead"].EndsAt.Equal(now.Add(unresolved)) {
		t.Error("an alert whose end is not told lasts longer than a day")
	}
}

func TestJSONIsAllThereIsToSay(t *testing.T) {
	var m Message
	strict(t, body(t, jobspec.FormatJSON, digest(everyEvent...)), &m)
	if len(m.Subjects) != 1 || len(m.Subjects[0].Jobs) != 1 || m.Subjects[0].State != StateResolved ||
		!strings.Contains(m.Headline, "recovered") {
		t.Fatalf("%+v", m)
	}
	got := m.Subjects[0].Jobs[0]
	if len(got.Events) != 6 || got.Link == "" || got.Events[3].Failures != 7 || !got.Events[3].Since.Equal(began) ||
		got.Events[3].Runs[0].Response == "" || got.Events[3].Runs[0].HTTPStatus != 503 {
		t.Errorf("%+v", got)
	}
}

func TestATestIsMadeOfWhatRecipientsTake(t *testing.T) {
	n := digest(event(jobspec.EventTest, 1))
	for _, format := range jobspec.Formats {
		bodies, err := Test(n, jobspec.Recipient{Format: format}, now)
		if err != nil {
			t.Fatal(err)
		}
		switch format {
		case jobspec.FormatSlack:
			checkSlack(t, bodies[0])
		case jobspec.FormatPagerDuty:
			if a, b := checkPagerDuty(t, bodies[0]), checkPagerDuty(t, bodies[1]); a.EventAction != "trigger" ||
				b.EventAction != "resolve" || a.DedupKey != b.DedupKey || a.Payload.Severity != "info" {
				t.Errorf("%+v, then %+v", a, b)
			}
		case jobspec.FormatAlertmanager:
			if a := checkAlerts(t, bodies[0])["PunctualTest"]; !a.EndsAt.Equal(now.Add(ofATest)) {
				t.Errorf("%+v", a)
			}
		case jobspec.FormatTeams:
			checkTeams(t, bodies[0])
		case jobspec.FormatEmail:
			checkEmail(t, bodies[0])
		case jobspec.FormatJSON:
			if !json.Valid(bodies[0]) {
				t.Errorf("%s", bodies[0])
			}
		}
	}
	if _, err := Test(n, jobspec.Recipient{Format: "newer"}, now); err == nil {
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
