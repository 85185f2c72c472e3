package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/pg"
	"punctual/store/tenants"
)

// Keys administers API keys directly in the database.
type Keys struct {
	Create createKey `cmd:"" help:"Create a key. Only the key goes to stdout. It is shown once and not stored."`
	List   listKeys  `cmd:"" help:"List the keys of a tenant, newest first."`
	Revoke revokeKey `cmd:"" help:"Revoke a key for good. It stops working on every replica within two seconds."`
}

type createKey struct {
	database
	Tenant  string        `default:"default" help:"Tenant that the key acts for."`
	Role    string        `required:"" enum:"metrics,viewer,submitter,editor,admin,operator" help:"viewer reads; submitter also creates one-shots and triggers; editor changes jobs and runs; admin also changes keys and secrets of its tenant; operator administers all tenants; metrics only reads /metrics."`
	Name    string        `required:"" help:"Name that says what the key is for."`
	Expires time.Duration `placeholder:"720h" help:"How long the key works. Default: until it is revoked."`
}

func (c *createKey) Run(ctx context.Context) error {
	expires := domain.Duration{}
	if c.Expires != 0 {
		expires = domain.DurationOf(c.Expires)
	}
	if err := httpapi.CheckNewKey(c.Name, auth.Role(c.Role), expires); err != nil {
		return err
	}
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		id, err := tenantNamed(ctx, db, c.Tenant)
		if err != nil {
			return err
		}
		key, made, err := db.CreateKey(ctx, id, tenants.NewKey{Name: c.Name, Role: c.Role, Lifetime: c.Expires})
		if err != nil {
			return err
		}
		validity := "until it is revoked"
		if made.ExpiresAt != nil {
			validity = "until " + made.ExpiresAt.Format(time.RFC3339)
		}
		fmt.Fprintf(os.Stderr, "key %s (%s) of tenant %s with the role %s, %s; it is not shown again:\n", made.ID, made.Name,
			made.Tenant, made.Role, validity)
		_, err = fmt.Println(key)
		return err
	})
}

func tenantNamed(ctx context.Context, db *store.Store, name string) (int32, error) {
	id, err := db.TenantID(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return 0, fmt.Errorf("--tenant: there is no tenant %q; `punctual tenants list` lists all tenants", name)
	}
	return id, err
}

type listKeys struct {
	database
	Tenant string `default:"default" help:"Tenant whose keys to list."`
}

func (c *listKeys) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		id, err := tenantNamed(ctx, db, c.Tenant)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tPREFIX\tROLE\tNAME\tCREATED\tBY\tEXPIRES\tLAST USED\tREVOKED")
		page := pg.Page{Limit: 500}
		for {
			keys, next, err := db.ListKeys(ctx, id, page)
			if err != nil {
				return err
			}
			for _, k := range keys {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
					k.ID, k.Prefix, k.Role, k.Name, orDash(&k.CreatedAt), k.CreatedBy,
					orDash(k.ExpiresAt), orDash(k.LastUsedAt), orDash(k.RevokedAt))
			}
			if next == "" {
				return w.Flush()
			}
			page.Cursor = next
		}
	})
}

func orDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

type revokeKey struct {
	database
	Key string `arg:"" name:"id|prefix" help:"Id or prefix of the key, as keys list shows them."`
}

func (c *revokeKey) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		tenant, id, err := db.FindKey(ctx, c.Key)
		if errors.Is(err, store.ErrNotFound) {
			return errors.New("no key has this id or prefix; `punctual keys list` lists the keys of a tenant")
		}
		if err == nil {
			err = db.RevokeKey(ctx, tenant, id)
		}
		if err != nil {
			return err
		}
		return note(fmt.Sprintf("key %s is revoked", id))
	})
}
