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
	"text/tabwriter"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
)

type listJobs struct {
	api
	State  string   `placeholder:"STATE" help:"Only jobs in this state: active, paused or completed."`
	Label  []string `sep:"none" placeholder:"NAME=VALUE" help:"Only jobs with this label. Repeat the flag for several."`
	Search string   `placeholder:"TEXT" help:"Only jobs with this text in their name or description."`
	Limit  int      `default:"50" help:"List at most this many."`
	JSON   bool     `name:"json" help:"Print what the API answers, in full, for programs."`
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
	if err := printJobs(list.Data); err != nil || list.NextCursor == nil {
		return err
	}
	return note(fmt.Sprintf("These are the newest %d. There are more: raise --limit, or ask for fewer.", len(list.Data)))
}

// mostListed is how many jobs a page of the API holds at most.
const mostListed = 500

// fetch reads as many pages as it takes: a page may hold fewer jobs than match.
func (c *listJobs) fetch(ctx context.Context, api *client.Client) (list httpapi.List[json.RawMessage], err error) {
	list.Data = []json.RawMessage{}
	query := url.Values{"label": c.Label}
	for name, value := range map[string]string{"state": c.State, "q": c.Search} {
		if value != "" {
			query.Set(name, value)
		}
	}
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

func printJobs(list []json.RawMessage) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tSCHEDULE\tNEXT SLOT\tLAST OUTCOME")
	for _, raw := range list {
		var job httpapi.JobSummary
		if err := json.Unmarshal(raw, &job); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", job.Name, job.State, scheduleOf(job.Schedule),
			instant(job.NextScheduledFor), outcomeOf(job.LastRun))
	}
	return w.Flush()
}

// scheduleOf says when a job fires, in the words of its definition.
func scheduleOf(s domain.Schedule) string {
	switch s.Kind() {
	case domain.KindCron:
		return s.Cron + " " + cmp.Or(s.Timezone, "UTC")
	case domain.KindEvery:
		return "every " + s.Every.String()
	case domain.KindAt:
		return strings.TrimSpace("at " + s.At.String() + " " + s.Timezone)
	case domain.KindDelay:
		return "delay " + s.Delay.String()
	case domain.KindEvent:
		return strings.TrimSpace("event " + s.Event + " " + string(s.Filter))
	}
	return "-"
}

func instant(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
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
