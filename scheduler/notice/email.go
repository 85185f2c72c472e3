package notice

import (
	"fmt"
	"strings"
)

// Email is a notice of format email, as it is stored until it is sent.
type Email struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
	Thread  string `json:"thread"`
}

const (
	emailSubject = 200
	emailText    = 100 << 10
	emailRuns    = 5 // runs described of each event
)

// email writes a message in plain text. The key of its first subject is the thread, so that what resolves trouble is
// shown with what told of it.
func email(m Message) Email {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s\n", Headline(m))
	if digest, ok := m.single(); ok {
		for _, f := range facts(m.Subjects[0]) {
			line("%s: %s", f.name, f.value)
		}
		for _, e := range digest.Events {
			line("\n%s: %s", e.Event, describe(e))
			for _, r := range e.Runs[:min(len(e.Runs), emailRuns)] {
				line("  run of %s %s %s", at(r.ScheduledFor), r.Reason, r.Error)
				if r.Response != "" {
					line("    %s", strings.ReplaceAll(r.Response, "\n", "\n    "))
				}
				if r.Link != "" {
					line("    %s", r.Link)
				}
			}
		}
	} else {
		for _, g := range m.Groups() {
			line("%s", g.Title())
			for _, f := range facts(g) {
				line("  %s: %s", f.name, f.value)
			}
			for i, j := range g.Jobs {
				if b.Len() > emailText*3/4 {
					line("  and %d more", len(g.Jobs)-i+g.More)
					break
				}
				line("  - %s %s", j.Job, j.Link)
			}
			line("")
		}
	}
	if m.Link != "" {
		line("\n%s", m.Link)
	}
	out := Email{Subject: cut(Headline(m), emailSubject), Text: cut(b.String(), emailText)}
	if len(m.Subjects) > 0 {
		out.Thread = m.Subjects[0].Key
	}
	return out
}
