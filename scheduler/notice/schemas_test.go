package notice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// These structs follow the published schemas of the bodies that recipients accept, as far as we use them. A field that
// is not in a struct is an error.

// strict decodes a body into a struct, which must have all fields of the body.
func strict(t *testing.T, body []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
}

// slackSchema follows https://docs.slack.dev/reference/block-kit/blocks: a header is plain_text of at most 150
// characters, the text of a section has at most 3,000, a context has 1 to 10 elements, and a message at most 50 blocks.
// By https://docs.slack.dev/messaging/formatting-message-text, &, < and > are written as entities, except in links.
type slackSchema struct {
	Text   *string `json:"text"`
	Blocks []struct {
		Type     string            `json:"type"`
		Text     *slackTextSchema  `json:"text"`
		Elements []slackTextSchema `json:"elements"`
	} `json:"blocks"`
}

type slackTextSchema struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func checkSlack(t *testing.T, body []byte) (text string) {
	t.Helper()
	var m slackSchema
	strict(t, body, &m)
	if m.Text == nil || *m.Text == "" || len(m.Blocks) == 0 || len(m.Blocks) > 50 {
		t.Errorf("%d blocks, and the text is %v", len(m.Blocks), m.Text)
	}
	text = *m.Text
	for _, b := range m.Blocks {
		switch b.Type {
		case "header":
			checkSlackText(t, *b.Text, "plain_text", 150)
		case "section":
			checkSlackText(t, *b.Text, "mrkdwn", 3000)
			text += "\n" + b.Text.Text
		case "context":
			if len(b.Elements) < 1 || len(b.Elements) > 10 {
				t.Errorf("%d elements", len(b.Elements))
			}
			for _, e := range b.Elements {
				checkSlackText(t, e, "mrkdwn", 3000)
			}
		default:
			t.Errorf("a block of type %q", b.Type)
		}
	}
	return text
}

func checkSlackText(t *testing.T, s slackTextSchema, kind string, most int) {
	t.Helper()
	if s.Type != kind || s.Text == "" || utf8.RuneCountInString(s.Text) > most {
		t.Errorf("a %s of %d characters where a %s of at most %d belongs: %.60q", s.Type, utf8.RuneCountInString(s.Text),
			kind, most, s.Text)
	}
}

// pagerDutySchema follows https://developer.pagerduty.com/docs/events-api-v2/trigger-events: routing_key and
// event_action are required. dedup_key is required unless the action is trigger, and has at most 255 characters. A
// trigger has a payload with summary (at most 1,024 characters), source and severity.
type pagerDutySchema struct {
	RoutingKey  string `json:"routing_key"`
	EventAction string `json:"event_action"`
	DedupKey    string `json:"dedup_key"`
	Client      string `json:"client"`
	ClientURL   string `json:"client_url"`
	Links       []struct {
		Href string `json:"href"`
		Text string `json:"text"`
	} `json:"links"`
	Payload *struct {
		Summary       string         `json:"summary"`
		Source        string         `json:"source"`
		Severity      string         `json:"severity"`
		Timestamp     time.Time      `json:"timestamp"`
		Component     string         `json:"component"`
		Group         string         `json:"group"`
		Class         string         `json:"class"`
		CustomDetails map[string]any `json:"custom_details"`
	} `json:"payload"`
}

func checkPagerDuty(t *testing.T, body []byte) pagerDutySchema {
	t.Helper()
	var e pagerDutySchema
	strict(t, body, &e)
	if e.DedupKey == "" || len(e.DedupKey) > 255 || !slices.Contains([]string{"trigger", "resolve"}, e.EventAction) {
		t.Errorf("%s with the key %q", e.EventAction, e.DedupKey)
	}
	if e.EventAction == "trigger" {
		p := e.Payload
		if p == nil || p.Summary == "" || utf8.RuneCountInString(p.Summary) > 1024 || p.Source == "" ||
			p.Timestamp.IsZero() || !slices.Contains([]string{"critical", "error", "warning", "info"}, p.Severity) {
			t.Errorf("the payload is %+v", p)
		}
	}
	for _, l := range e.Links {
		checkURL(t, l.Href)
	}
	if len(body) > 512<<10 {
		t.Errorf("%d bytes", len(body))
	}
	return e
}

// alertSchema follows postableAlerts in https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml. Names
// of labels follow the rules of Prometheus, startsAt is not after endsAt, and no label is empty.
type alertSchema struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
}

func checkAlerts(t *testing.T, body []byte) map[string]alertSchema {
	t.Helper()
	var alerts []alertSchema
	strict(t, body, &alerts)
	named := map[string]alertSchema{}
	for _, a := range alerts {
		for _, set := range []map[string]string{a.Labels, a.Annotations} {
			for name, value := range set {
				if value == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
					t.Errorf("%q: %q", name, value)
				}
			}
		}
		if a.StartsAt.IsZero() || a.EndsAt.Before(a.StartsAt) {
			t.Errorf("from %s to %s", a.StartsAt, a.EndsAt)
		}
		if a.GeneratorURL != "" {
			checkURL(t, a.GeneratorURL)
		}
		name := a.Labels["alertname"]
		if _, twice := named[name]; twice || name == "" {
			t.Errorf("the alert %q is there twice, or has no name", name)
		}
		named[name] = a
	}
	return named
}

func checkURL(t *testing.T, raw string) {
	t.Helper()
	if u, err := url.Parse(raw); err != nil || u.Host == "" {
		t.Error(fmt.Errorf("%q is no URL: %w", raw, err))
	}
}

// teamsSchema is a message with one Adaptive Card, of at most 28 KB. A TextBlock has a text, a FactSet has facts with
// title and value, and an Action.OpenUrl has a URL.
type teamsSchema struct {
	Type        string `json:"type"`
	Attachments []struct {
		ContentType string `json:"contentType"`
		Content     struct {
			Schema  string `json:"$schema"`
			Type    string `json:"type"`
			Version string `json:"version"`
			Body    []struct {
				Type   string `json:"type"`
				Text   string `json:"text"`
				Weight string `json:"weight"`
				Size   string `json:"size"`
				Color  string `json:"color"`
				Wrap   bool   `json:"wrap"`
				Facts  []struct {
					Title string `json:"title"`
					Value string `json:"value"`
				} `json:"facts"`
			} `json:"body"`
			Actions []struct {
				Type  string `json:"type"`
				Title string `json:"title"`
				URL   string `json:"url"`
			} `json:"actions"`
		} `json:"content"`
	} `json:"attachments"`
}

func checkTeams(t *testing.T, body []byte) (text string) {
	t.Helper()
	var m teamsSchema
	strict(t, body, &m)
	if m.Type != "message" || len(m.Attachments) != 1 || len(body) > 28_000 {
		t.Fatalf("%q with %d attachments, %d bytes", m.Type, len(m.Attachments), len(body))
	}
	card := m.Attachments[0].Content
	if m.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" || card.Type != "AdaptiveCard" ||
		card.Version == "" || len(card.Body) == 0 {
		t.Errorf("%s", body)
	}
	for _, e := range card.Body {
		switch {
		case e.Type == "TextBlock" && e.Text != "" && len(e.Facts) == 0 &&
			slices.Contains([]string{"", "Bolder"}, e.Weight) && slices.Contains([]string{"", "Medium"}, e.Size) &&
			slices.Contains([]string{"", "Attention", "Warning", "Good"}, e.Color):
			text += e.Text + "\n"
		case e.Type == "FactSet" && len(e.Facts) > 0:
			for _, f := range e.Facts {
				text += f.Title + ": " + f.Value + "\n"
			}
		default:
			t.Errorf("the element %+v", e)
		}
	}
	for _, a := range card.Actions {
		if a.Type != "Action.OpenUrl" || a.Title == "" {
			t.Errorf("the action %+v", a)
		}
		checkURL(t, a.URL)
		text += a.URL + "\n"
	}
	return text
}

func checkEmail(t *testing.T, body []byte) Email {
	t.Helper()
	var e Email
	strict(t, body, &e)
	if e.Subject == "" || len(e.Subject) > 200 || strings.ContainsAny(e.Subject, "\r\n") || e.Text == "" || e.Thread == "" {
		t.Errorf("%+v", e)
	}
	return e
}
