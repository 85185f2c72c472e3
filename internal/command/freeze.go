package command

import (
	"context"
	"fmt"

	"punctual/scheduler"
	"punctual/store"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// freezing holds the flags that freeze and unfreeze share.
type freezing struct {
	database
	Tenant string `placeholder:"NAME" help:"Only this tenant. Default: the whole deployment."`
	Note   string `placeholder:"TEXT" help:"Reason, for the audit log and the API's answers."`
}

// Validate is called by the flag parser.
func (f *freezing) Validate() error {
	if len(f.Note) > 1024 {
		return fmt.Errorf("--note: %d bytes; at most 1024", len(f.Note))
	}
	return f.database.Validate()
}

// change freezes or unfreezes, and prints what to say of the new state.
func (f *freezing) change(
	ctx context.Context, to func(*freeze.Switch, context.Context, int32, string) (freeze.State, error),
	say func(freeze.State) string,
) error {
	return f.administer(ctx, func(ctx context.Context, db *store.Store) error {
		scope := freeze.Deployment
		if f.Tenant != "" {
			var err error
			if scope, err = tenantNamed(ctx, db, f.Tenant); err != nil {
				return err
			}
		}
		state, err := to(db.Freezes, ctx, scope, f.Note)
		if err != nil {
			return err
		}
		_, err = fmt.Println(say(state))
		return err
	})
}

// Freeze stops all claims, of the deployment or of one tenant.
type Freeze struct{ freezing }

// Run freezes, and reports what is in flight.
func (c *Freeze) Run(ctx context.Context) error {
	return c.change(ctx, (*freeze.Switch).Freeze, func(state freeze.State) string {
		frozen, what, how := state.Deployment, "the deployment", "punctual unfreeze"
		if c.Tenant != "" {
			frozen, what, how = state.Tenant, "tenant "+c.Tenant, "punctual unfreeze --tenant "+c.Tenant
		}
		return fmt.Sprintf("%s %s: nothing is claimed. %s.\nTo unfreeze: %s", what, said(frozen),
			inFlight(state.InFlight), how)
	})
}

// Unfreeze lifts a freeze.
type Unfreeze struct{ freezing }

// Run lifts the freeze.
func (c *Unfreeze) Run(ctx context.Context) error {
	return c.change(ctx, (*freeze.Switch).Unfreeze, func(state freeze.State) string {
		switch {
		case c.Tenant == "":
			return "the deployment is not frozen: replicas claim within three seconds"
		case state.Deployment != nil:
			return fmt.Sprintf("tenant %s is not frozen itself, but the deployment %s: nothing is claimed", c.Tenant,
				said(state.Deployment))
		}
		return fmt.Sprintf("tenant %s is not frozen: replicas claim within three seconds", c.Tenant)
	})
}

// said describes a freeze. A nil freeze was lifted by another operator in the meantime.
func said(f *scheduler.Freeze) string {
	if f == nil {
		return "is no longer frozen: another operator has just unfrozen it"
	}
	return "has been " + f.String()
}

func inFlight(n int) string {
	switch {
	case n == 0:
		return "Nothing is in flight"
	case n == 1:
		return "1 run is in flight and will end by itself"
	case n >= pg.DepthCap:
		return fmt.Sprintf("%d runs or more are in flight and will end by themselves", n)
	}
	return fmt.Sprintf("%d runs are in flight and will end by themselves", n)
}
