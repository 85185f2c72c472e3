package domain

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
)

func TestTheLogOfARunIsALinkForPeople(t *testing.T) {
	t.Parallel()
	const host = "https://logs.example.com/"
	for raw, want := range map[string]string{
		"":                                   "",
		host + "a":                           host + "a",
		"http://logs/{{job}}":                "http://logs/job",
		host + "?q={{run}}#n":                host + "?q=" + runID + "#n",
		host + "#/x?a={{run}}":               host + "#/x?a=" + runID,
		host + "{{attempt}}#{{":              "refused",
		host + "?at={{scheduled_for_local}}": host + "?at=2026-10-11T03:00:00%2B02:00",
		"javascript:alert({{run}})":          "refused",
		"https://{{job}}.example.com/":       "refused",
		"https://me:pw@logs/{{run}}":         "refused",
		host + "{{runs}}":                    "refused",
		host + "#<":                          "refused",
		host + "#{{run}}" + strings.Repeat("x", wire.MaxURL-60): "refused",
	} {
		d := definition(t, `{"schedule":{"cron":"0 3 * * *","timezone":"Europe/Berlin"}}`)
		d.LogURL = raw
		got := "refused"
		if problems := d.Validate(); problems == nil {
			job, err := Compile(jobID, 1, 1, d, 0)
			if err != nil {
				t.Fatal(err)
			}
			got = Assignment{RunID: uuid.MustParse(runID), Job: job, ScheduledFor: instant(t, "01:00"), Attempt: 2}.LogURL()
		} else if len(problems) > 1 || problems[0].Field != "log_url" {
			t.Errorf("%s: %v", raw, problems)
		}
		if got != want {
			t.Errorf("%.60s: %s, want %s", raw, got, want)
		}
	}
	if link := (Assignment{Job: &Job{Timetable: &jobspec.Timetable{}, Definition: jobspec.Definition{LogURL: "javascript:x"}}}).LogURL(); link != "" {
		t.Errorf("a link that another program wrote: %s", link)
	}
}

func TestAStepHasTheLogOfItsJobUnlessItHasItsOwn(t *testing.T) {
	t.Parallel()
	job := compiled(t, `{"log_url":"http://a/","target":{"url":""},"steps":[{"name":"a","target":{"url":"http://x"}},
		{"name":"b","target":{"url":"http://x"},"log_url":"http://b/"},{"name":"c","approval":{}}]}`)
	for name, want := range map[string]string{"a": "http://a/", "b": "http://b/", "c": "", "": "http://a/"} {
		if got := job.Step(name).LogURL; got != want {
			t.Errorf("step %q: %q, want %q", name, got, want)
		}
	}
}
