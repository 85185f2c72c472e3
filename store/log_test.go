package store

import (
	"strings"
	"testing"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

func TestTheLogOfARun(t *testing.T) {
	c := newClaimer(t)
	logged := func(d *domain.Definition) { d.LogURL = "https://logs/{{run}}/{{attempt}}" }
	answering := func(a domain.Assignment, verdict domain.Verdict, header string) domain.Outcome {
		o := ended(a, verdict)
		if header != "" {
			o.Headers = map[string]string{wire.KeptLog: header}
		}
		return o
	}
	for name, test := range map[string]struct {
		verdict  domain.Verdict
		header   string
		filled   string // after the run's id
		answered string
		noted    bool
	}{
		"by the job":            {domain.Succeed, "", "/1", "", false},
		"by the target":         {domain.Succeed, "http://own/#1", "", "http://own/#1", false},
		"of a failure":          {domain.Bury, "http://own/", "", "http://own/", false},
		"of work that goes on":  {domain.Await, "http://own/", "", "http://own/", false},
		"of a wicked target":    {domain.Succeed, "javascript:alert(1)", "/1", "", true},
		"of a talkative target": {domain.Succeed, "http://own/" + strings.Repeat("x", wire.MaxURL), "/1", "", true},
	} {
		options := []option{logged}
		if test.verdict == domain.Await {
			options = append(options, byCallback)
		}
		a := c.manual(strings.ReplaceAll(name, " ", "-"), options...)
		c.finish(answering(a, test.verdict, test.header))
		want := test.answered
		if want == "" {
			want = "https://logs/" + a.RunID.String() + test.filled
		}
		if run := c.run(a.RunID); run.LogURL != want || (run.LogNote != "") != test.noted {
			t.Errorf("%s: %q, %q, want %q", name, run.LogURL, run.LogNote, want)
		}
	}
	c.create("pending", logged)
	pending := c.trigger("pending")
	if run := c.run(pending.ID); run.LogURL != "" {
		t.Errorf("of a run that was not sent: %s", run.LogURL)
	}
}
