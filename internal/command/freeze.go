package command

import (
	"context"
	"fmt"

	"punctual/internal/server"
)

// freezing holds the flags that freeze and unfreeze share.
type freezing struct {
	database
	Tenant string `placeholder:"NAME" help:"Only this tenant. Default: the whole deployment."`
	Note   string `placeholder:"TEXT" help:"Reason to show in the audit log and in the API's answers."`
}

// Validate is called by the flag parser.
func (f *freezing) Validate() error {
	if len(f.Note) > 1024 {
		return fmt.Errorf("--note: %d bytes; at most 1024", len(f.Note))
	}
	return f.database.Validate()
}

// Freeze stops all claims, of the deployment or of one tenant.
type Freeze struct{ freezing }

// Run freezes, and reports what is in flight.
func (c *Freeze) Run(ctx context.Context) error {
	return naming(server.Freeze(ctx, c.admin(), c.Tenant, c.Note))
}

// Unfreeze lifts a freeze.
type Unfreeze struct{ freezing }

// Run lifts the freeze.
func (c *Unfreeze) Run(ctx context.Context) error {
	return naming(server.Unfreeze(ctx, c.admin(), c.Tenant, c.Note))
}
