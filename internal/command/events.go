package command

import (
	"context"
	"fmt"
	"os"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/store/events"
)

// Events works on events by the API.
type Events struct {
	Emit emitEvent  `cmd:"" help:"Emit an event, which runs each job that has subscribed. Its id goes to stdout."`
	List listEvents `cmd:"" help:"List the names of events with their subscribers, or the events of a name, newest first."`
	Get  getEvent   `cmd:"" help:"Show an event: its runs, their ends, and its progress to its subscribers."`
}

type emitEvent struct {
	api
	Name   string `arg:"" name:"name" help:"Name of the event, such as invoice.paid."`
	Body   string `type:"path" placeholder:"FILE" help:"Body of the event, for filters and runs; - reads standard input. JSON is sent as JSON, anything else as text. Default: none."`
	DryRun bool   `help:"Only say which jobs would run."`
}

func (c *emitEvent) Run(ctx context.Context, api *client.Client) error {
	var event httpapi.EmitInput
	if c.Body != "" {
		text, err := read(c.Body)
		if err != nil {
			return fmt.Errorf("--body: %w", err)
		}
		event.Body = client.BodyOf(text)
	}
	if event.DryRun = c.DryRun; c.DryRun {
		return tryEvent(ctx, api, c.Name, event)
	}
	emitted, err := client.EmitEvent.Do(ctx, api, event, c.Name)
	return done(result(emitted.ID, err), "%d jobs have subscribed to %s", emitted.Subscribed, c.Name)
}

func tryEvent(ctx context.Context, api *client.Client, name string, event httpapi.EmitInput) error {
	would, err := client.TryEvent.Do(ctx, api, event, name)
	if err != nil {
		return err
	}
	for _, job := range would.Runs {
		if _, err := fmt.Println(job); err != nil {
			return err
		}
	}
	return done(nil, "%d jobs would run; %d are paused, and %d have a filter that does not match",
		would.Made, would.Skipped, would.Unmatched)
}

type listEvents struct {
	newest
	Name string `arg:"" optional:"" name:"name" help:"Name of the events. Default: all names."`
}

func (c *listEvents) Run(ctx context.Context, api *client.Client) error {
	if c.Name == "" {
		list, err := client.EventNames.Do(ctx, api, c.query())
		return printFirst(c.newest, "first", list, err, "NAME\tSUBSCRIBERS\tLAST\tEVENTS 24H\tRUNS 24H\tPENDING",
			func(n events.EventName) []any {
				return []any{n.Name, n.Subscribers, instant(n.LastAt), n.Events, n.Runs, n.Pending}
			})
	}
	list, err := client.Events.Do(ctx, api, c.query(), c.Name)
	return printFirst(c.newest, "newest", list, err, "EMITTED\tSUBSCRIBED\tRUNS\tSKIPPED\tUNMATCHED\tFAN-OUT\tBY\tEVENT",
		func(e events.Event) []any {
			return []any{
				instant(&e.EmittedAt), e.Subscribed, e.Made, e.Skipped, e.Unmatched, fanOut(e),
				e.EmittedBy, e.ID,
			}
		})
}

func fanOut(e events.Event) string {
	if e.Pending {
		return "pending"
	}
	return "ended"
}

type getEvent struct {
	newest
	Name string `arg:"" name:"name" help:"Name of the event."`
	ID   string `arg:"" name:"id" help:"Its id."`
}

func (c *getEvent) Run(ctx context.Context, api *client.Client) error {
	e, err := client.Event.Do(ctx, api, c.query(), c.Name, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return printAsJSON(e)
	}
	fmt.Fprintf(os.Stdout, "%s %s, emitted %s by %s; its fan-out %s: %d runs, %d skipped, %d unmatched of %d\n",
		e.Name, e.ID, instant(&e.EmittedAt), e.EmittedBy, strings.Replace(fanOut(e.Event), "pending", "is pending", 1),
		e.Made, e.Skipped, e.Unmatched, e.Subscribed)
	runs := httpapi.List[events.EventRun]{Data: e.Runs, NextCursor: e.NextCursor}
	const header = "JOB\tSTATUS\tWHY\tENDED\tRUN"
	return printFirst(c.newest, "first", runs, nil, header, func(r events.EventRun) []any {
		return []any{r.Job, r.Status, orEmpty(r.Reason), instant(r.FinishedAt), r.ID}
	})
}
