package runs_test

import (
	"strings"
	"testing"

	. "punctual/internal/storetest"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

func TestTheLogOfARun(t *testing.T) {
	c := NewReplica(t)
	logged := func(d *jobspec.Definition) { d.LogURL = "https://logs/{{run}}/{{attempt}}" }
	answering := func(a domain.Assignment, verdict domain.Verdict, header string) domain.Outcome {
		o := Ended(a, verdict)
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
		options := []Option{logged}
		if test.verdict == domain.Await {
			options = append(options, ByCallback)
		}
		a := c.Manual(strings.ReplaceAll(name, " ", "-"), options...)
		c.Finish(answering(a, test.verdict, test.header))
		want := test.answered
		if want == "" {
			want = "https://logs/" + a.RunID.String() + test.filled
		}
		if run := c.Run(a.RunID); run.LogURL != want || (run.LogNote != "") != test.noted {
			t.Errorf("%s: %q, %q, want %q", name, run.LogURL, run.LogNote, want)
		}
	}
	c.Create("pending", logged)
	pending := c.Trigger("pending")
	if run := c.Run(pending.ID); run.LogURL != "" {
		t.Errorf("of a run that was not sent: %s", run.LogURL)
	}
}
