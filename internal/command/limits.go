package command

import (
	"context"
	"errors"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/store/limits"
	"punctual/store/pg"
)

// Limits administers the limits that jobs share, over the API.
type Limits struct {
	List   listLimits  `cmd:"" help:"List the limits, with their holders and the number of waiting runs."`
	Set    setLimit    `cmd:"" help:"Create or change a limit. A flag that is absent sets no bound."`
	Delete deleteLimit `cmd:"" help:"Delete a limit that no job names."`
}

type listLimits struct {
	api
}

func (c *listLimits) Run(ctx context.Context, api *client.Client) error {
	list, err := client.Limits.Do(ctx, api, nil)
	if err != nil {
		return err
	}
	const header = "LIMIT\tAT ONCE\tPER SECOND\tRUNNING\tWAITING\tJOBS\tHELD BY"
	return printTable(list.Data, header, func(l limits.Limit) []any {
		by := ""
		if len(l.HeldBy) > 0 {
			by = l.HeldBy[0].Run.String() + " of " + l.HeldBy[0].Job
		}
		return []any{
			l.Name, orDash(l.MaxRunning), orDash(l.MaxStartsPerSecond), l.Running, l.Waiting, l.Jobs, by,
		}
	})
}

type setLimit struct {
	api
	Name               string `arg:"" help:"Name of the limit."`
	MaxRunning         int    `placeholder:"N" help:"Most runs that hold it at once, of all jobs that name it."`
	MaxStartsPerSecond int    `placeholder:"N" help:"Most runs that start in a second."`
}

// Validate is called by the flag parser.
func (c *setLimit) Validate() error {
	if c.MaxRunning == 0 && c.MaxStartsPerSecond == 0 {
		return errors.New("--max-running or --max-starts-per-second is required")
	}
	return c.api.Validate()
}

func (c *setLimit) Run(ctx context.Context, api *client.Client) error {
	_, err := client.PutLimit.Do(ctx, api, httpapi.LimitInput{
		MaxRunning: pg.OrNull(c.MaxRunning), MaxStartsPerSecond: pg.OrNull(c.MaxStartsPerSecond),
	}, c.Name)
	return err
}

type deleteLimit struct {
	api
	Name string `arg:"" help:"Name of the limit."`
}

func (c *deleteLimit) Run(ctx context.Context, api *client.Client) error {
	_, err := client.DeleteLimit.Do(ctx, api, nil, c.Name)
	return err
}
