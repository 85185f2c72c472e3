package notice

import (
	"net/url"
	"time"

	"punctual/scheduler/domain"
)

// pagerDutySummary is how many characters of a summary PagerDuty keeps.
const pagerDutySummary = 1024

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
	Summary   string      `json:"summary"`
	Source    string      `json:"source"`
	Severity  string      `json:"severity"`
	Timestamp time.Time   `json:"timestamp"`
	Component string      `json:"component"`
	Group     string      `json:"group"`
	Class     string      `json:"class"`
	Details   domain.News `json:"custom_details"`
}

// pagerDuty writes news as one event. What happened last decides whether the job's incident is opened or resolved.
func pagerDuty(news domain.News) pagerDutyEvent {
	event := pagerDutyEvent{Action: "resolve", DedupKey: "punctual:" + news.JobID.String()}
	last := news.Events[len(news.Events)-1]
	if last.Event == domain.EventRecovered {
		return event
	}
	event.Action, event.Client, event.ClientURL = "trigger", "Punctual", news.Link
	summary := headline(news) + ": " + describe(last)
	if len(last.Runs) > 0 && last.Runs[0].Error != "" {
		summary += ": " + last.Runs[0].Error
	}
	event.Payload = &pagerDutyPayload{
		Summary: cut(summary, pagerDutySummary), Source: source(news), Severity: worst(news), Timestamp: last.LastAt.UTC(),
		Component: news.Job, Group: news.Tenant, Class: string(last.Event), Details: news,
	}
	if news.Link != "" {
		event.Links = append(event.Links, pagerDutyLink{news.Link, "runs of the job"})
	}
	if len(last.Runs) > 0 && last.Runs[0].Link != "" {
		event.Links = append(event.Links, pagerDutyLink{last.Runs[0].Link, "the newest of these runs"})
	}
	return event
}

// source is the host that the link leads to.
func source(news domain.News) string {
	if u, err := url.Parse(news.Link); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	return "punctual"
}

// worst is the worst severity since the job last recovered.
func worst(news domain.News) string {
	ranks := map[string]int{"info": 0, "warning": 1, "error": 2, "critical": 3}
	found := "info"
	for _, e := range news.Events {
		if e.Event == domain.EventRecovered {
			found = "info"
		} else if s := severity(e.Event); ranks[s] > ranks[found] {
			found = s
		}
	}
	return found
}
