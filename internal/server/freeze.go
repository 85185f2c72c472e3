package server

import (
	"context"
	"fmt"

	"punctual/scheduler"
	"punctual/store"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// Freeze freezes a tenant, or without a name the deployment, and reports what is in flight.
func Freeze(ctx context.Context, c AdminConfig, tenant, note string) error {
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		scope, err := scopeNamed(ctx, db, tenant)
		if err != nil {
			return err
		}
		state, err := db.Freeze(ctx, scope, note)
		if err != nil {
			return err
		}
		frozen, what, how := state.Deployment, "the deployment", "punctual unfreeze"
		if tenant != "" {
			frozen, what, how = state.Tenant, "tenant "+tenant, "punctual unfreeze --tenant "+tenant
		}
		_, err = fmt.Fprintf(c.Out, "%s is %s: nothing is claimed. %s.\nTo unfreeze: %s\n", what, said(frozen),
			inFlight(state.InFlight), how)
		return err
	})
}

// Unfreeze lifts the freeze of a tenant, or without a name of the deployment.
func Unfreeze(ctx context.Context, c AdminConfig, tenant, note string) error {
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		scope, err := scopeNamed(ctx, db, tenant)
		if err != nil {
			return err
		}
		state, err := db.Unfreeze(ctx, scope, note)
		if err != nil {
			return err
		}
		text := "the deployment is not frozen: replicas claim within three seconds"
		switch {
		case tenant != "" && state.Deployment != nil:
			text = fmt.Sprintf("tenant %s is not frozen itself, but the deployment is %s: nothing is claimed", tenant,
				said(state.Deployment))
		case tenant != "":
			text = fmt.Sprintf("tenant %s is not frozen: replicas claim within three seconds", tenant)
		}
		_, err = fmt.Fprintln(c.Out, text)
		return err
	})
}

// scopeNamed returns the id of the named tenant; without a name, the deployment.
func scopeNamed(ctx context.Context, db *store.Store, tenant string) (int32, error) {
	if tenant == "" {
		return freeze.Deployment, nil
	}
	return tenantNamed(ctx, db, tenant)
}

// said describes a freeze. A nil freeze was lifted by another operator in the meantime.
func said(f *scheduler.Freeze) string {
	if f == nil {
		return "no longer frozen: another operator has just unfrozen it"
	}
	return f.String()
}

func inFlight(n int) string {
	switch {
	case n == 0:
		return "Nothing is in flight"
	case n == 1:
		return "1 run is in flight and goes on"
	case n >= pg.DepthCap:
		return fmt.Sprintf("%d runs or more are in flight and go on", n)
	}
	return fmt.Sprintf("%d runs are in flight and go on", n)
}
