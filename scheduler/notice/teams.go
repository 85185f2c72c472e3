package notice

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// teamsMost is how many bytes a message has at most: Teams refuses more than 28 KB. The rest is for what encloses the
// card's elements.
const teamsMost = 26_000

const (
	teamsText = 1000 // bytes of each text, before it is escaped
	teamsRuns = 3    // runs described of each event
)

type teamsMessage struct {
	Type        string            `json:"type"`
	Attachments []teamsAttachment `json:"attachments"`
}

type teamsAttachment struct {
	ContentType string    `json:"contentType"`
	Content     teamsCard `json:"content"`
}

// teamsCard is an Adaptive Card.
type teamsCard struct {
	Schema  string         `json:"$schema"`
	Type    string         `json:"type"`
	Version string         `json:"version"`
	Body    []teamsElement `json:"body"`
	Actions []teamsAction  `json:"actions,omitempty"`
}

type teamsElement struct {
	Type   string      `json:"type"`
	Text   string      `json:"text,omitempty"`
	Weight string      `json:"weight,omitempty"`
	Size   string      `json:"size,omitempty"`
	Color  string      `json:"color,omitempty"`
	Wrap   bool        `json:"wrap,omitempty"`
	Facts  []teamsFact `json:"facts,omitempty"`
}

type teamsFact struct {
	Title string `json:"title"`
	Value string `json:"value"`
}

type teamsAction struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

// teams writes a message for the webhook of a workflow. It adds whole elements until the message is full.
func teams(m Message) teamsMessage {
	card := teamsCard{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
	}
	left := teamsMost
	add := func(e teamsElement) {
		written, err := json.Marshal(e)
		if left -= len(written) + 1; err == nil && left > 0 {
			card.Body = append(card.Body, e)
		}
	}
	title := teamsBlock(Headline(m))
	title.Weight, title.Size, title.Color = "Bolder", "Medium", teamsColor(m)
	add(title)
	if digest, ok := m.single(); ok {
		add(teamsFacts(m.Subjects[0]))
		for _, e := range digest.Events {
			add(teamsBlock(fmt.Sprintf("%s: %s", e.Event, describe(e))))
			for _, r := range e.Runs[:min(len(e.Runs), teamsRuns)] {
				add(teamsBlock(oneLine(fmt.Sprintf("run of %s %s %s", at(r.ScheduledFor), r.Reason, r.Error))))
				add(teamsBlock(r.Response))
			}
		}
	} else {
		for _, g := range m.Groups() {
			add(teamsBlock(g.Title()))
			add(teamsFacts(g))
			add(teamsBlock(names(g, teamsText*4/5)))
		}
	}
	card.Body = slices.DeleteFunc(card.Body, func(e teamsElement) bool { return e.Text == "" && len(e.Facts) == 0 })
	if m.Link != "" {
		button := "Open Punctual"
		if m.approval() {
			button = "Approve or reject"
		}
		card.Actions = append(card.Actions, teamsAction{"Action.OpenUrl", button, m.Link})
	}
	if len(m.Subjects) == 1 {
		for _, f := range facts(m.Subjects[0]) {
			if f.name == "runbook" {
				card.Actions = append(card.Actions, teamsAction{"Action.OpenUrl", "Runbook", f.value})
			}
		}
	}
	return teamsMessage{"message", []teamsAttachment{{"application/vnd.microsoft.card.adaptive", card}}}
}

func teamsBlock(text string) teamsElement {
	return teamsElement{Type: "TextBlock", Text: teamsEscape(cut(text, teamsText)), Wrap: true}
}

func teamsFacts(s Subject) teamsElement {
	e := teamsElement{Type: "FactSet"}
	for _, f := range facts(s) {
		e.Facts = append(e.Facts, teamsFact{f.name, teamsEscape(cut(f.value, teamsText))})
	}
	return e
}

// teamsColor is the color of the newest state.
func teamsColor(m Message) string {
	color := "Warning"
	for _, s := range m.Subjects {
		switch s.State {
		case StateFiring:
			return "Attention"
		case StateResolved:
			color = "Good"
		case StatePassing:
		}
	}
	return color
}

// teamsEscape escapes the characters that Teams reads as markup of links and emphasis.
var teamsEscape = strings.NewReplacer(
	`\`, `\\`, "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "(", `\(`, ")", `\)`, "`", "\\`", "~", `\~`, "<", "&lt;",
).Replace
