// Package notice writes what happened to a job in the formats of notices: json, Slack's incoming webhooks,
// PagerDuty's Events API v2 and Alertmanager's API v2. It sends nothing.
package notice

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"punctual/scheduler/domain"
)

// Body returns the notice that tells a recipient of some news, and the events in it; nothing when the recipient asked
// for none of the events. list is the list of entries with the recipient; now is the database's clock.
func Body(
	news domain.News, r domain.Recipient, list []domain.Notify, now time.Time,
) ([]byte, []domain.Event, error) {
	news = news.For(r, list)
	if len(news.Events) == 0 {
		return nil, nil, nil
	}
	told := make([]domain.Event, len(news.Events))
	for i, e := range news.Events {
		told[i] = e.Event
	}
	body, err := write(news, r, r.Asks(list, domain.EventRecovered), now)
	return body, told, err
}

// write writes news for a recipient. resolves says that the recipient will hear that trouble is over.
func write(news domain.News, r domain.Recipient, resolves bool, now time.Time) ([]byte, error) {
	var form any = news
	switch r.Format {
	case domain.FormatSlack:
		form = slack(news)
	case domain.FormatPagerDuty:
		form = pagerDuty(news)
	case domain.FormatAlertmanager:
		form = alertmanager(news, resolves, now)
	case domain.FormatJSON:
	default:
		return nil, fmt.Errorf("this version of Punctual does not know notices of format %q", r.Format)
	}
	body, err := json.Marshal(form)
	if err != nil {
		return nil, fmt.Errorf("writing a notice of format %s: %w", r.Format, err)
	}
	return body, nil
}

// headline says in a line what happened last.
func headline(news domain.News) string {
	last := news.Events[len(news.Events)-1].Event
	what := map[domain.Event]string{
		domain.EventFailing: "is failing", domain.EventDead: "has dead runs", domain.EventMissed: "missed slots",
		domain.EventLate: "runs late", domain.EventStale: "is stale", domain.EventRecovered: "recovered",
		domain.EventTest: "sends a test notice",
	}
	return fmt.Sprintf("Job %s %s (tenant %s)", news.Job, cmp.Or(what[last], string(last)), news.Tenant)
}

// describe says in a sentence what an event is, since when and how often.
func describe(e domain.NewsEvent) string {
	switch e.Event {
	case domain.EventFailing:
		return "an attempt failed, the first since the job was well, at " + at(e.FirstAt)
	case domain.EventDead:
		return fmt.Sprintf("%s died, the last at %s%s", times(e.Count, "run"), at(e.LastAt), failing(e))
	case domain.EventMissed:
		return fmt.Sprintf("slots were missed and will not run: %s, the last at %s",
			times(e.Count, "recorded skip"), at(e.LastAt))
	case domain.EventLate:
		return fmt.Sprintf("%s made after the job's tolerance, the last at %s", times(e.Count, "run"), at(e.LastAt))
	case domain.EventStale:
		if e.Since == nil {
			return "no success within expect_success_within"
		}
		return "no success since " + at(*e.Since)
	case domain.EventRecovered:
		if e.Since == nil {
			return "a run succeeded at " + at(e.LastAt)
		}
		return fmt.Sprintf("a run succeeded at %s, the first since %s%s", at(e.LastAt), at(*e.Since), inARow(e.Failures))
	case domain.EventTest:
		return "a test: nothing happened to any job"
	}
	return fmt.Sprintf("%s, %s", e.Event, times(e.Count, "time"))
}

func failing(e domain.NewsEvent) string {
	if e.Since == nil {
		return ""
	}
	return "; failing since " + at(*e.Since) + inARow(e.Failures)
}

func inARow(failures int) string {
	if failures == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s in a row)", times(failures, "failed attempt"))
}

func times(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// severity is how bad an event is, in words that PagerDuty knows, as do most rules for Alertmanager.
func severity(e domain.Event) string {
	switch e {
	case domain.EventDead, domain.EventStale:
		return "critical"
	case domain.EventFailing:
		return "error"
	case domain.EventMissed, domain.EventLate:
		return "warning"
	case domain.EventRecovered, domain.EventTest:
	}
	return "info"
}

// cut shortens a text to at most most bytes without breaking a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const more = "…"
	return strings.TrimRight(strings.ToValidUTF8(s[:most-len(more)], ""), " \n") + more
}

// Test returns the requests that test a recipient, one after the other: a notice with the event test, and, if that
// opens something, a notice that closes it.
func Test(news domain.News, r domain.Recipient, now time.Time) ([][]byte, error) {
	body, err := write(news, r, true, now)
	if err != nil || r.Format != domain.FormatPagerDuty {
		return [][]byte{body}, err
	}
	news.Events = []domain.NewsEvent{{
		Event: domain.EventRecovered, Count: 1, FirstAt: now, LastAt: now, Runs: []domain.NewsRun{},
	}}
	over, err := write(news, r, true, now)
	return [][]byte{body, over}, err
}

// Excerpt returns as much of a response as notices quote: its first bytes, in whole characters that JSON can hold.
func Excerpt(response string) string {
	response = strings.ReplaceAll(strings.ToValidUTF8(response, "\uFFFD"), "\x00", "\uFFFD")
	return strings.ToValidUTF8(response[:min(len(response), domain.NewsResponse)], "")
}
