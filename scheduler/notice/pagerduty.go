package notice

import (
	"net/url"
	"strings"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// pagerDutySummary is how many characters of a summary PagerDuty keeps.
const pagerDutySummary = 1024

// pagerDutyJobs is how many jobs an event describes: PagerDuty refuses events of more than 512 KB.
const pagerDutyJobs = 200

// pagerDutyEvent is an event of the Events API v2. The routing key is added when the event is sent, and never stored.
type pagerDutyEvent struct {
	Action    string            `json:"event_action"`
	DedupKey  string            `json:"dedup_key"`
	Client    string            `json:"client,omitempty"`
	ClientURL string            `json:"client_url,omitempty"`
	Links     []pagerDutyLink   `json:"links,omitempty"`
	Payload   *pagerDutyPayload `json:"payload,omitempty"`
}

type pagerDutyLink struct {
	Href string `json:"href"`
	Text string `json:"text"`
}

type pagerDutyPayload struct {
	Summary   string    `json:"summary"`
	Source    string    `json:"source"`
	Severity  string    `json:"severity"`
	Timestamp time.Time `json:"timestamp,omitzero"`
	Component string    `json:"component"`
	Group     string    `json:"group"`
	Class     string    `json:"class"`
	Details   Subject   `json:"custom_details"`
}

// pagerDuty writes a message about one subject as one event, which opens or resolves the subject's incident.
func pagerDuty(m Message) pagerDutyEvent {
	subject := m.Subjects[0]
	subject.Limit(pagerDutyJobs)
	event := pagerDutyEvent{Action: "resolve", DedupKey: "punctual:" + subject.Key}
	p := &pagerDutyPayload{
		Source: source(m.Link), Component: subject.Name, Group: m.Tenant, Class: string(subject.Kind), Details: subject,
	}
	if subject.State == StateResolved {
		if ended, _ := subject.count(jobspec.EventEnded); ended > 0 {
			_, over := subject.split()
			p.Summary, p.Severity, event.Payload = cut(strings.Join(over, "; "), pagerDutySummary), "info", p
		}
		return event
	}
	event.Action, event.Client, event.ClientURL, event.Payload = "trigger", "Punctual", m.Link, p
	p.Summary, p.Severity = Headline(Message{Tenant: m.Tenant, Subjects: []Subject{subject}}), worst(subject)
	if digest, ok := m.single(); ok && len(digest.Events) > 0 {
		last := newest(digest)
		p.Summary, p.Timestamp, p.Class = p.Summary+": "+describe(*last), last.LastAt.UTC(), string(last.Event)
		if len(last.Runs) > 0 && last.Runs[0].Error != "" {
			p.Summary += ": " + last.Runs[0].Error
		}
		if m.Link != "" {
			event.Links = append(event.Links, pagerDutyLink{m.Link, "runs of the job"})
		}
		if len(last.Runs) > 0 && last.Runs[0].Link != "" {
			event.Links = append(event.Links, pagerDutyLink{last.Runs[0].Link, "the newest of these runs"})
		}
	} else {
		if subject.Cause != "" {
			p.Summary += ": " + subject.Cause
		}
		if subject.Since != nil {
			p.Timestamp = subject.Since.UTC()
		}
	}
	if runbook := shared(subject, func(n domain.Digest) string { return n.Runbook }); runbook != "" {
		event.Links = append(event.Links, pagerDutyLink{runbook, "runbook"})
	}
	p.Summary = cut(p.Summary, pagerDutySummary)
	return event
}

// source is the host that the link leads to.
func source(link string) string {
	if u, err := url.Parse(link); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	return "punctual"
}

// worst is the worst severity since the jobs of a subject last recovered. A job of which there is nothing new is still
// troubled.
func worst(s Subject) string {
	ranks := map[string]int{"info": 0, "warning": 1, "error": 2, "critical": 3}
	worst := "info"
	for _, digest := range s.Jobs {
		found := "info"
		if len(digest.Events) == 0 && (s.Kind == KindJobs || s.Kind == KindHost) {
			found = "critical"
		}
		for _, e := range digest.Events {
			if e.Event.EndsTrouble() {
				found = "info"
			} else if s := severity(e.Event); ranks[s] > ranks[found] {
				found = s
			}
		}
		if ranks[found] > ranks[worst] {
			worst = found
		}
	}
	return worst
}
