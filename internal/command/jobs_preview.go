package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
)

type previewSchedule struct {
	api
	Schedule string         `arg:"" help:"Cron expression in quotes, or a schedule as JSON, such as '{\"every\":\"5m\"}'."`
	Timezone string         `placeholder:"ZONE" help:"Time zone of a cron expression, such as Europe/Berlin. Default: UTC."`
	Dialect  string         `placeholder:"SYSTEM" help:"System whose form the schedule has: quartz, spring, kubernetes or aws. It is translated."`
	From     domain.Instant `placeholder:"INSTANT" help:"Only slots after this instant. Default: now."`
	Slots    int            `default:"5" help:"How many slots, up to 100."`
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
	shown, err := api.PreviewSchedule(ctx, ask)
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
