package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"punctual/httpapi"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/pg"
	"punctual/store/tenants"
)

// Tenants administers tenants directly in the database.
type Tenants struct {
	Create createTenant `cmd:"" help:"Create a tenant."`
	List   listTenants  `cmd:"" help:"List all tenants."`
	Set    setTenant    `cmd:"" help:"Change a tenant's limits. Limits that are not given stay as they are. Replicas apply the change within two seconds."`
	Delete deleteTenant `cmd:"" help:"Delete a tenant that has no active or paused jobs, and revoke its keys and grants."`
	Grant  grantTenant  `cmd:"" help:"Let a database role create runs of a tenant's jobs in its own transactions, by functions."`
	Revoke revokeTenant `cmd:"" help:"Take such a grant back at once, and drop its functions and the schema that it created."`
}

// tenantLimits holds the settings of a tenant that operators decide. An absent flag changes nothing, none lifts a
// limit.
type tenantLimits struct {
	Weight               string `json:"weight" placeholder:"N" help:"Share of the concurrency while several tenants wait for it, 1 to 1000."`
	MaxJobs              string `json:"max_jobs" placeholder:"N|none" help:"Most active and paused jobs."`
	MaxPendingRuns       string `json:"max_pending_runs" placeholder:"N|none" help:"Most dated runs that may be pending, up to 1000000."`
	MaxConcurrentRuns    string `json:"max_concurrent_runs" placeholder:"N|none" help:"Most runs in flight, on all replicas."`
	MaxRunsPerSecond     string `json:"max_runs_per_second" placeholder:"N|none" help:"Most attempts started in a second, on all replicas."`
	MaxRequestsPerSecond string `json:"max_requests_per_second" placeholder:"N|none" help:"Most API requests in a second, on all replicas."`
	MinInterval          string `json:"min_interval" placeholder:"1m|none" help:"Shortest time between two slots of one of its jobs."`
	MaxKeyAge            string `json:"max_key_age" placeholder:"2160h|none" help:"How long a new API key may work. Earlier keys stay as they are."`
	ChangesKept          string `json:"changes_kept" placeholder:"24h|none" help:"How long the feed of changes keeps its ended runs, 1h to 720h."`
	AllowedTargets       string `json:"allowed_targets" placeholder:"CIDR,…|none" help:"Non-public networks that its jobs may call."`
	Notify               string `json:"notify" placeholder:"JSON|none" help:"Default recipients of notices, in the form of a job's notify."`
}

// given returns the flags by the names that the settings have in the API.
func (l tenantLimits) given() (flags map[string]string) {
	raw, _ := json.Marshal(l)
	_ = json.Unmarshal(raw, &flags) // texts are always JSON
	return flags
}

type createTenant struct {
	database
	tenantLimits
	Name string `arg:"" help:"Name: letters, digits, dots, underscores, colons and dashes."`
}

func (c *createTenant) Run(ctx context.Context) error {
	if err := httpapi.CheckTenantName(c.Name); err != nil {
		return err
	}
	asked := tenants.Tenant{Name: c.Name, Weight: 1}
	if err := httpapi.SetTenant(&asked, c.given()); err != nil {
		return err
	}
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		t, err := db.Tenants.CreateTenant(ctx, asked)
		if err != nil {
			return err
		}
		return printTenants(t)
	})
}

type listTenants struct{ database }

func (c *listTenants) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		var all []tenants.Tenant
		after := ""
		for {
			tenants, more, err := db.Tenants.ListTenants(ctx, after, 500)
			if err != nil {
				return err
			}
			all = append(all, tenants...)
			if !more {
				return printTenants(all...)
			}
			after = tenants[len(tenants)-1].Name
		}
	})
}

type setTenant struct {
	database
	tenantLimits
	Name string `arg:"" help:"Name of the tenant."`
}

func (c *setTenant) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		t, err := db.Tenants.EditTenant(ctx, c.Name, func(t *tenants.Tenant) error {
			return httpapi.SetTenant(t, c.given())
		})
		if err != nil {
			return err
		}
		return printTenants(t)
	})
}

type deleteTenant struct {
	database
	Name string `arg:"" help:"Name of the tenant."`
}

func (c *deleteTenant) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		left, err := db.Tenants.DeleteTenant(ctx, c.Name)
		return tellLeft(left, done(err, "tenant %s is deleted", c.Name))
	})
}

type grantTenant struct {
	database
	Name   string `arg:"" help:"Name of the tenant."`
	Role   string `required:"" placeholder:"ROLE" help:"Role of the database that may call the functions. It must exist."`
	Schema string `required:"" placeholder:"SCHEMA" help:"Schema to create for the functions, such as shop_jobs. It may exist if empty."`
}

func (c *grantTenant) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		_, _, err := db.Tenants.Grant(ctx, c.Name, tenants.NewGrant{Schema: c.Schema, Role: c.Role})
		return done(err, "role %s may run jobs of tenant %s: SELECT %s.run_in('job', interval '1 hour')", c.Role, c.Name,
			c.Schema)
	})
}

type revokeTenant struct {
	database
	Name   string `arg:"" help:"Name of the tenant."`
	Schema string `required:"" placeholder:"SCHEMA" help:"Schema of the grant."`
}

func (c *revokeTenant) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		left, err := db.Tenants.Revoke(ctx, c.Name, c.Schema)
		return tellLeft(left, done(err, "no role may call the functions of schema %s any more", c.Schema))
	})
}

// tellLeft prints what could not be dropped of grants that were taken back.
func tellLeft(left []string, err error) error {
	for _, thing := range left {
		fmt.Fprintln(os.Stderr, "left, drop it with psql (DROP … CASCADE):", thing)
	}
	return err
}

func printTenants(all ...tenants.Tenant) error {
	const header = "NAME\tWEIGHT\tJOBS\tCONCURRENT RUNS\tRUNS/S\tREQUESTS/S\tMIN INTERVAL\tMAX KEY AGE\t" +
		"ALLOWED TARGETS\tNOTIFY"
	return printTable(all, header, func(t tenants.Tenant) []any {
		return []any{
			t.Name, t.Weight, orDash(t.MaxJobs), orDash(t.MaxConcurrentRuns), orDash(t.MaxRunsPerSecond),
			orDash(t.MaxRequestsPerSecond), orDash(t.MinInterval), orDash(t.MaxKeyAge),
			listed(t.AllowedTargets, netip.Prefix.String), listed(t.Notify, formatOf),
		}
	})
}

// formatOf names the recipient of a notice without its URL, which may be a secret.
func formatOf(n jobspec.Notify) string { return string(n.Recipient().Format) }

func listed[T any](list []T, text func(T) string) string {
	return cmp.Or(strings.Join(pg.Column(list, text), ","), "-")
}
