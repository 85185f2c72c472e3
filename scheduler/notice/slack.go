package notice

import (
	"fmt"
	"strings"

	"punctual/scheduler/domain"
)

// Slack's limits: characters of a header and of a section. Both are counted in bytes here, which is stricter.
const (
	slackHeader  = 150
	slackSection = 3000
	slackText    = 3000 // for the text beside the blocks, which notifications show; Slack recommends less than 4,000
	slackRuns    = 3    // runs described of each event
	slackError   = 300  // bytes of each error, before it is escaped
)

type slackMessage struct {
	Text   string       `json:"text"`
	Blocks []slackBlock `json:"blocks"`
}

type slackBlock struct {
	Type     string          `json:"type"`
	Text     *slackTextPart  `json:"text,omitempty"`
	Elements []slackTextPart `json:"elements,omitempty"`
}

type slackTextPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// slack writes news for an incoming webhook: a header, a section for each event and a link.
func slack(news domain.News) slackMessage {
	m := slackMessage{Blocks: []slackBlock{{
		Type: "header", Text: &slackTextPart{"plain_text", cut(headline(news), slackHeader)},
	}}}
	lines := []string{escape(headline(news))}
	for _, e := range news.Events {
		lines = append(lines, string(e.Event)+": "+escape(describe(e)))
		m.Blocks = append(m.Blocks, slackBlock{Type: "section", Text: &slackTextPart{"mrkdwn", section(e)}})
	}
	if news.Link != "" {
		m.Blocks = append(m.Blocks, slackBlock{
			Type: "context", Elements: []slackTextPart{{"mrkdwn", slackLink(news.Link, "runs of the job")}},
		})
	}
	m.Text = cut(strings.Join(lines, "\n"), slackText)
	return m
}

// section describes an event and its newest runs. It adds whole pieces until it is full, because cutting it off
// anywhere might cut markup in two.
func section(e domain.NewsEvent) string {
	text := fmt.Sprintf("*%s*: %s", e.Event, escape(describe(e)))
	for i, r := range e.Runs {
		piece := run(r)
		if i == slackRuns || len(text)+len(piece) > slackSection {
			break
		}
		text += piece
	}
	return text
}

// run describes a run, its error and what the target answered.
func run(r domain.NewsRun) string {
	text := "\n• "
	if r.Link != "" {
		text += slackLink(r.Link, "run of "+at(r.ScheduledFor))
	} else {
		text += "run of " + at(r.ScheduledFor)
	}
	if r.Reason != "" {
		text += " " + string(r.Reason)
	}
	if r.Error != "" {
		text += ": " + escape(cut(r.Error, slackError))
	}
	if r.Response != "" {
		text += "\n```" + strings.ReplaceAll(escape(r.Response), "`", "'") + "```"
	}
	return text
}

// slackLink writes a link. Punctual builds its URL from names that contain neither | nor >.
func slackLink(url, text string) string { return "<" + escape(url) + "|" + escape(text) + ">" }

// escape escapes the characters that Slack reads as markup of links, mentions and channels.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
