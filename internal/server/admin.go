package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/pg"
	"punctual/store/tenants"
	"punctual/store/vault"
)

// AdminConfig is the configuration of the commands that administer keys and tenants directly in the database.
type AdminConfig struct {
	DatabaseURL string
	Out, Notes  io.Writer // the results, and remarks beside them
}

// administer runs work on the database, on behalf of the logged-in user.
func administer(ctx context.Context, c AdminConfig, work func(context.Context, *store.Store) error) error {
	options := store.Options{DatabaseURL: c.DatabaseURL, MaxConns: 2, Log: slog.New(slog.DiscardHandler)}
	return onDatabase(ctx, options, func(db *store.Store) error {
		return work(audit.WithActor(ctx, audit.Actor{Kind: audit.Command, Name: login()}), db)
	})
}

// onDatabase runs work on a database whose schema fits.
func onDatabase(ctx context.Context, options store.Options, work func(*store.Store) error) error {
	db, err := store.Open(ctx, options)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.CheckSchema(ctx); err != nil {
		return err
	}
	return work(db)
}

// login returns the name of the operating system's user.
func login() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

// CreateKey creates an API key of a tenant and prints it.
func CreateKey(ctx context.Context, c AdminConfig, tenant string, n tenants.NewKey) error {
	expires := domain.Duration{}
	if n.Lifetime != 0 {
		expires = domain.DurationOf(n.Lifetime)
	}
	if err := httpapi.CheckNewKey(n.Name, auth.Role(n.Role), expires); err != nil {
		return err
	}
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		id, err := tenantNamed(ctx, db, tenant)
		if err != nil {
			return err
		}
		key, made, err := db.CreateKey(ctx, id, n)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Notes, "key %s (%s) of tenant %s with the role %s, %s; it is not shown again:\n", made.ID, made.Name,
			made.Tenant, made.Role, validity(made))
		_, err = fmt.Fprintln(c.Out, key)
		return err
	})
}

func validity(k tenants.Key) string {
	if k.ExpiresAt == nil {
		return "until it is revoked"
	}
	return "until " + k.ExpiresAt.Format(time.RFC3339)
}

func tenantNamed(ctx context.Context, db *store.Store, name string) (int32, error) {
	id, err := db.TenantID(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return 0, fmt.Errorf("--tenant: there is no tenant %q; `punctual tenants list` lists all tenants", name)
	}
	return id, err
}

// ListKeys prints the keys of a tenant.
func ListKeys(ctx context.Context, c AdminConfig, tenant string) error {
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		id, err := tenantNamed(ctx, db, tenant)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
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

// RevokeKey revokes the key with an id or prefix.
func RevokeKey(ctx context.Context, c AdminConfig, ref string) error {
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		tenant, id, err := db.FindKey(ctx, ref)
		if errors.Is(err, store.ErrNotFound) {
			return errors.New("no key has this id or prefix; `punctual keys list` lists the keys of a tenant")
		}
		if err == nil {
			err = db.RevokeKey(ctx, tenant, id)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Notes, "key %s is revoked\n", id)
		return nil
	})
}

// CreateTenant creates a tenant with the given limits, by their names in the API.
func CreateTenant(ctx context.Context, c AdminConfig, name string, limits map[string]string) error {
	if err := httpapi.CheckTenantName(name); err != nil {
		return err
	}
	asked := tenants.Tenant{Name: name, Weight: 1}
	if err := httpapi.SetTenant(&asked, limits); err != nil {
		return err
	}
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		t, err := db.CreateTenant(ctx, asked)
		if err != nil {
			return err
		}
		return printTenants(c.Out, t)
	})
}

// SetTenant changes the given limits of a tenant.
func SetTenant(ctx context.Context, c AdminConfig, name string, limits map[string]string) error {
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		t, err := db.EditTenant(ctx, name, func(t *tenants.Tenant) error {
			return httpapi.SetTenant(t, limits)
		})
		if err != nil {
			return err
		}
		return printTenants(c.Out, t)
	})
}

// ListTenants prints all tenants.
func ListTenants(ctx context.Context, c AdminConfig) error {
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		var all []tenants.Tenant
		after := ""
		for {
			tenants, more, err := db.ListTenants(ctx, after, 500)
			if err != nil {
				return err
			}
			all = append(all, tenants...)
			if !more {
				return printTenants(c.Out, all...)
			}
			after = tenants[len(tenants)-1].Name
		}
	})
}

func printTenants(out io.Writer, tenants ...tenants.Tenant) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tWEIGHT\tJOBS\tCONCURRENT RUNS\tRUNS/S\tREQUESTS/S\tMIN INTERVAL\tALLOWED TARGETS\tNOTIFY")
	for _, t := range tenants {
		interval, networks := "-", "-"
		if t.MinInterval != nil {
			interval = t.MinInterval.String()
		}
		if len(t.AllowedTargets) > 0 {
			var list []string
			for _, network := range t.AllowedTargets {
				list = append(list, network.String())
			}
			networks = strings.Join(list, ",")
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, t.Weight, limit(t.MaxJobs), limit(t.MaxConcurrentRuns),
			limit(t.MaxRunsPerSecond), limit(t.MaxRequestsPerSecond), interval, networks, told(t.Notify))
	}
	return w.Flush()
}

// told lists the formats of a tenant's notices without the URLs, some of which are secrets.
func told(list []domain.Notify) string {
	if len(list) == 0 {
		return "-"
	}
	names := make([]string, len(list))
	for i, entry := range list {
		names[i] = string(entry.Recipient().Format)
	}
	return strings.Join(names, ",")
}

func limit(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// Rotate encrypts all secrets with a new data key. The master key decrypts the data keys; next encrypts them from now
// on, or the master key if next is nil.
func Rotate(ctx context.Context, log *slog.Logger, databaseURL string, master, next *vault.Master) error {
	options := store.Options{DatabaseURL: databaseURL, MaxConns: 4, Log: log, Master: master}
	return onDatabase(ctx, options, func(db *store.Store) error {
		done, err := db.RotateSecrets(ctx, next)
		if err != nil {
			return fmt.Errorf("secrets rotate: %w", err)
		}
		log.Info("secrets rotated", "data_key", done.Key, "encrypted_anew", done.Values, "keys_dropped", done.Dropped)
		return nil
	})
}

// DeleteTenant deletes a tenant that has no jobs left.
func DeleteTenant(ctx context.Context, c AdminConfig, name string) error {
	return administer(ctx, c, func(ctx context.Context, db *store.Store) error {
		if err := db.DeleteTenant(ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(c.Notes, "tenant %s is deleted\n", name)
		return nil
	})
}
