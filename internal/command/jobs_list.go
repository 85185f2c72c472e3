package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/jobspec"
)

type listJobs struct {
	api
	State  string   `placeholder:"STATE" help:"Only jobs in this state: active, paused or completed."`
	Label  []string `sep:"none" placeholder:"NAME=VALUE" help:"Only jobs with this label. May be repeated."`
	Search string   `placeholder:"TEXT" help:"Only jobs with this text in their name or description."`
	Limit  int      `default:"50" help:"List at most this many."`
	JSON   bool     `name:"json" help:"Print the API's answer in full, for programs."`
}

// Validate is called by the flag parser.
func (c *listJobs) Validate() error {
	if c.Limit < 1 {
		return errors.New("--limit: list at least 1 job")
	}
	return c.api.Validate()
}

func (c *listJobs) Run(ctx context.Context, api *client.Client) error {
	list, err := c.fetch(ctx, api)
	if err != nil {
		return err
	}
	if c.JSON {
		return printAsJSON(list)
	}
	shown := make([]httpapi.JobSummary, len(list.Data))
	for i, raw := range list.Data {
		if err := json.Unmarshal(raw, &shown[i]); err != nil {
			return err
		}
	}
	err = printTable(shown, "NAME\tSTATE\tSCHEDULE\tNEXT SLOT\tLAST OUTCOME", func(job httpapi.JobSummary) []any {
		return []any{job.Name, job.State, scheduleOf(job.Schedule), instant(job.NextScheduledFor), outcomeOf(job.LastRun)}
	})
	if err != nil || list.NextCursor == nil {
		return err
	}
	return done(nil, "These are the newest %d. There are more: raise --limit, or ask for fewer.", len(list.Data))
}

// ask adds the parameters that have a value to a query.
func ask(query url.Values, parameters map[string]string) {
	for name, value := range parameters {
		if value != "" {
			query.Set(name, value)
		}
	}
}

// mostListed is how many jobs a page of the API holds at most.
const mostListed = 500

// fetch reads as many pages as it takes: a page may hold fewer jobs than match.
func (c *listJobs) fetch(ctx context.Context, api *client.Client) (list httpapi.List[json.RawMessage], err error) {
	list.Data = []json.RawMessage{}
	query := url.Values{"label": c.Label}
	ask(query, map[string]string{"state": c.State, "q": c.Search})
	if !c.JSON {
		query.Set("view", "summary")
	}
	for {
		query.Set("limit", strconv.Itoa(min(c.Limit-len(list.Data), mostListed)))
		var page httpapi.List[json.RawMessage]
		if _, err := api.Do(ctx, http.MethodGet, "/v1/jobs?"+query.Encode(), nil, &page); err != nil {
			return list, err
		}
		list.Data, list.NextCursor = append(list.Data, page.Data...), page.NextCursor
		if list.NextCursor == nil || len(list.Data) >= c.Limit {
			return list, nil
		}
		query.Set("cursor", *list.NextCursor)
	}
}

// scheduleOf says when a job fires, in the words of its definition.
func scheduleOf(s jobspec.Schedule) string {
	switch s.Kind() {
	case jobspec.KindCron:
		return s.Cron + " " + cmp.Or(s.Timezone, "UTC")
	case jobspec.KindEvery:
		return "every " + s.Every.String()
	case jobspec.KindAt:
		return strings.TrimSpace("at " + s.At.String() + " " + s.Timezone)
	case jobspec.KindDelay:
		return "delay " + s.Delay.String()
	case jobspec.KindEvent:
		return strings.TrimSpace("event " + s.Event + " " + string(s.Filter))
	}
	return "-"
}

func outcomeOf(run *httpapi.RunSummary) string {
	switch {
	case run == nil:
		return "-"
	case run.Reason != nil:
		return fmt.Sprintf("%s (%s)", run.Status, *run.Reason)
	}
	return string(run.Status)
}

type previewSchedule struct {
	api
	Schedule string          `arg:"" help:"Cron expression in quotes, or a schedule as JSON, such as '{\"every\":\"5m\"}'."`
	Timezone string          `placeholder:"ZONE" help:"Time zone of a cron expression, such as Europe/Berlin. Default: UTC."`
	Dialect  string          `placeholder:"SYSTEM" help:"System to translate the schedule from: quartz, spring, kubernetes or aws."`
	From     jobspec.Instant `placeholder:"INSTANT" help:"Only slots after this instant. Default: now."`
	Slots    int             `default:"5" help:"How many slots, up to 100."`
}

func (c *previewSchedule) Run(ctx context.Context, api *client.Client) error {
	ask := httpapi.PreviewInput{Dialect: c.Dialect, From: c.From, N: &c.Slots}
	if strings.HasPrefix(strings.TrimSpace(c.Schedule), "{") {
		if err := json.Unmarshal([]byte(c.Schedule), &ask.Schedule); err != nil {
			return fmt.Errorf("the schedule: %w", err)
		}
	} else {
		ask.Schedule.Cron = c.Schedule
	}
	if c.Timezone != "" && ask.Schedule.Timezone != "" {
		return errors.New("--timezone: the schedule names a zone already; leave one of the two out")
	}
	ask.Schedule.Timezone = cmp.Or(c.Timezone, ask.Schedule.Timezone)
	shown, err := client.PreviewSchedule.Do(ctx, api, ask)
	if err != nil {
		return err
	}
	printPreview(shown)
	return nil
}

// printPreview prints the schedule, its words and its slots. What may be a mistake goes to stderr.
func printPreview(p httpapi.Preview) {
	schedule := scheduleOf(p.Schedule)
	if p.Words != nil {
		schedule += ": " + *p.Words
	}
	fmt.Println(schedule)
	for _, slot := range p.Slots {
		if slot.Note != nil {
			slot.Local += "  " + *slot.Note
		}
		fmt.Println(slot.Local)
	}
	for _, w := range p.Warnings {
		fmt.Fprintln(os.Stderr, "warning: "+w)
	}
}
