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

// slackSections is how many sections a message about many jobs has at most: Slack takes 50 blocks.
const slackSections = 45

// slack writes a message for an incoming webhook: a header, sections and a link.
func slack(m Message) slackMessage {
	out := slackMessage{Blocks: []slackBlock{{
		Type: "header", Text: &slackTextPart{"plain_text", cut(Headline(m), slackHeader)},
	}}}
	lines, label := []string{escape(Headline(m))}, "jobs"
	if digest, ok := m.single(); ok {
		if label = "runs of the job"; m.approval() {
			label = "approve or reject"
		}
		if text := slackFacts(m.Subjects[0]); text != "" {
			out.Blocks = append(out.Blocks, slackBlock{Type: "section", Text: &slackTextPart{"mrkdwn", text}})
		}
		for _, e := range digest.Events {
			lines = append(lines, string(e.Event)+": "+escape(describe(e)))
			out.Blocks = append(out.Blocks, slackBlock{Type: "section", Text: &slackTextPart{"mrkdwn", section(e)}})
		}
	} else {
		for _, g := range m.Groups() {
			for _, text := range sections(g, slackSections+1-len(out.Blocks)) {
				out.Blocks = append(out.Blocks, slackBlock{Type: "section", Text: &slackTextPart{"mrkdwn", text}})
			}
		}
	}
	if m.Link != "" {
		out.Blocks = append(out.Blocks, slackBlock{
			Type: "context", Elements: []slackTextPart{{"mrkdwn", slackLink(m.Link, label)}},
		})
	}
	out.Text = cut(strings.Join(lines, "\n"), slackText)
	return out
}

// sections name the jobs of a group, in as many sections as that takes, and at most so many. The first begins with an
// error, as an example.
func sections(g Subject, most int) (all []string) {
	if most <= 0 {
		return nil
	}
	text := "*" + escape(g.Title()) + "*"
	if more := slackFacts(g); more != "" {
		text += "\n" + more
	}
	text += "\n"
	for i, j := range g.Jobs {
		name := escape(j.Job)
		if j.Link != "" && i < slackLinked {
			name = slackLink(j.Link, j.Job)
		}
		if i > 0 {
			name = ", " + name
		}
		if len(text)+len(name) > slackSection-2*len(slackMore) {
			if len(all)+1 == most {
				return append(all, text+fmt.Sprintf(slackMore, len(g.Jobs)-i+g.More))
			}
			all, text = append(all, text), ""
			name = strings.TrimPrefix(name, ", ")
		}
		text += name
	}
	if g.More > 0 {
		text += fmt.Sprintf(slackMore, g.More)
	}
	return append(all, text)
}

// slackMore says that a message does not name all jobs.
const slackMore = " and %d more"

// slackFacts lists the facts of a subject, a line each.
func slackFacts(s Subject) string {
	var lines []string
	for _, f := range facts(s) {
		lines = append(lines, "*"+escape(f.name)+"*: "+escape(cut(f.value, slackError)))
	}
	return cut(strings.Join(lines, "\n"), slackSection/2)
}

// slackLinked is how many jobs of a group are linked: links are longer than names.
const slackLinked = 20

// section describes an event and its newest runs. It adds whole pieces until it is full, because cutting it off
// anywhere might cut markup in two.
func section(e domain.DigestEvent) string {
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
func run(r domain.DigestRun) string {
	text := "run of " + at(r.ScheduledFor)
	if r.Link != "" {
		text = slackLink(r.Link, text)
	}
	text = "\n• " + text
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
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
