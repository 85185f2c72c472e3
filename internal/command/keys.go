package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/pg"
	"punctual/store/tenants"
)

// Keys administers API keys directly in the database.
type Keys struct {
	Create createKey `cmd:"" help:"Create a key. It is shown once, on stdout or in the file of --out, and not stored."`
	List   listKeys  `cmd:"" help:"List the keys of a tenant, newest first."`
	Revoke revokeKey `cmd:"" help:"Revoke a key for good. Replicas refuse it within two seconds."`
}

type createKey struct {
	database
	Tenant  string `default:"default" help:"Tenant that the key acts for."`
	Role    string `required:"" enum:"metrics,viewer,submitter,editor,admin,operator" help:"viewer reads; submitter also creates one-shots and triggers; editor changes jobs and runs; admin also changes keys and secrets of its tenant; operator administers all tenants; metrics only reads /metrics."`
	Name    string `required:"" help:"Name that says what the key is for."`
	Expires string `placeholder:"720h|never" help:"How long the key works; never: until it is revoked. Default: a year, or the tenant's longest time for keys if that is less."`
	Out     string `type:"path" placeholder:"FILE" help:"New file for the key, with mode 0600. The key's name goes to stdout."`
}

func (c *createKey) Run(ctx context.Context) error {
	asked, err := httpapi.NewKeyOf(c.Name, auth.Role(c.Role), c.Expires)
	if err != nil {
		return err
	}
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		id, err := tenantNamed(ctx, db, c.Tenant)
		if err != nil {
			return err
		}
		key, made, err := c.create(ctx, db, id, asked)
		if tooLong, is := errors.AsType[jobspec.Problem](err); is {
			return fmt.Errorf("--expires: %s", tooLong.Message)
		}
		if err != nil {
			return err
		}
		validity := "until it is revoked"
		if made.ExpiresAt != nil {
			validity = "until " + made.ExpiresAt.Format(time.RFC3339)
		}
		said, shown := "it is not shown again:", key
		if c.Out != "" {
			said, shown = "it is in "+c.Out+":", made.Name
		}
		fmt.Fprintf(os.Stderr, "key %s (%s) of tenant %s with the role %s, %s; %s\n", made.ID, made.Name,
			made.Tenant, made.Role, validity, said)
		return result(shown, nil)
	})
}

// create creates the key, and writes it to the file if there is to be one. The file is made first: a key that cannot be
// kept is not created.
func (c *createKey) create(
	ctx context.Context, db *store.Store, tenant int32, asked tenants.NewKey,
) (key string, made tenants.Key, err error) {
	if c.Out == "" {
		return db.Tenants.CreateKey(ctx, tenant, asked)
	}
	file, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return "", made, fmt.Errorf("--out %s: the file exists, and is not overwritten", c.Out)
	}
	if err != nil {
		return "", made, fmt.Errorf("--out: %w", err)
	}
	key, made, err = db.Tenants.CreateKey(ctx, tenant, asked)
	if err == nil {
		_, err = fmt.Fprintln(file, key)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(c.Out) // it was made just now, and is of no use
	}
	return key, made, err
}

func tenantNamed(ctx context.Context, db *store.Store, name string) (int32, error) {
	id, err := db.Tenants.TenantID(ctx, name)
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
		var all []tenants.Key
		page := pg.Page{Limit: 500}
		for {
			keys, next, err := db.Tenants.ListKeys(ctx, id, false, page)
			if err != nil {
				return err
			}
			all = append(all, keys...)
			if page.Cursor = next; next == "" {
				break
			}
		}
		return printTable(all, "ID\tPREFIX\tROLE\tNAME\tCREATED\tBY\tEXPIRES\tLAST USED\tREVOKED", func(k tenants.Key) []any {
			return []any{
				k.ID, k.Prefix, k.Role, k.Name, instant(&k.CreatedAt), k.CreatedBy, instant(k.ExpiresAt),
				instant(k.LastUsedAt), instant(k.RevokedAt),
			}
		})
	})
}

type revokeKey struct {
	database
	Key string `arg:"" name:"id|prefix" help:"Id or prefix of the key, as keys list shows them."`
}

func (c *revokeKey) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		tenant, id, err := db.Tenants.FindKey(ctx, c.Key)
		if errors.Is(err, store.ErrNotFound) {
			return errors.New("no key has this id or prefix; `punctual keys list` lists the keys of a tenant")
		}
		if err == nil {
			err = db.Tenants.RevokeKey(ctx, tenant, id)
		}
		return done(err, "key %s is revoked", id)
	})
}
