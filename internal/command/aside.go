package command

import (
	"context"
	"fmt"

	"punctual/httpapi/client"
	"punctual/store/aside"
)

// Aside shows what fails by itself and was set aside, over the API.
type Aside struct {
	List  listAside  `cmd:"" help:"List what is set aside, with the reasons."`
	Retry retryAside `cmd:"" help:"Try an item again at once, after its cause is fixed."`
	Drop  dropAside  `cmd:"" help:"Give an item up: a run is cancelled, or dead if its outcome cannot be written; an event creates no further runs; an operation fails; notices are forgotten."`
}

type listAside struct {
	api
}

func (c *listAside) Run(ctx context.Context, api *client.Client) error {
	list, err := client.SetAside.Do(ctx, api, nil)
	if err != nil {
		return err
	}
	return printTable(list.Data, "KIND\tITEM\tTENANT\tJOB\tTRIES\tSINCE\tNEXT TRY\tREASON", func(i aside.SetAside) []any {
		return []any{i.Kind, i.ID, orDash(i.Tenant), orDash(i.Job), i.Tries, instant(&i.Since), instant(&i.RetryAt), i.Reason}
	})
}

type asideRef struct {
	api
	Kind string `arg:"" help:"Kind of the item, as list shows it."`
	Item string `arg:"" help:"Id of the item."`
}

type retryAside struct{ asideRef }

func (c *retryAside) Run(ctx context.Context, api *client.Client) error {
	_, err := client.RetryAside.Do(ctx, api, nil, c.Kind, c.Item)
	return err
}

type dropAside struct{ asideRef }

func (c *dropAside) Run(ctx context.Context, api *client.Client) error {
	if _, err := client.DropAside.Do(ctx, api, nil, c.Kind, c.Item); err != nil {
		return err
	}
	fmt.Printf("%s %s is given up\n", c.Kind, c.Item)
	return nil
}
