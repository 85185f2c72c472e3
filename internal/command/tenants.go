package command

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"punctual/httpapi"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/tenants"
)

// Tenants administers tenants directly in the database.
type Tenants struct {
	Create createTenant `cmd:"" help:"Create a tenant."`
	List   listTenants  `cmd:"" help:"List all tenants."`
	Set    setTenant    `cmd:"" help:"Change a tenant's limits. Limits that are not given stay as they are. Replicas apply the change within two seconds."`
	Delete deleteTenant `cmd:"" help:"Delete a tenant that has no active or paused jobs, and revoke its keys and grants."`
	Grant  grantTenant  `cmd:"" help:"Let a database role make runs of a tenant's jobs in its own transactions, through a schema of functions."`
	Revoke revokeTenant `cmd:"" help:"Take such a grant back, and drop its schema."`
}

// limits holds the settings of a tenant that operators decide. An absent flag changes nothing; none lifts a limit.
type limits struct {
	Weight               string `placeholder:"N" help:"Share of the concurrency while several tenants wait for it, 1 to 1000."`
	MaxJobs              string `placeholder:"N|none" help:"Most active and paused jobs."`
	MaxPendingRuns       string `placeholder:"N|none" help:"Most dated runs that may be pending, up to 1000000."`
	MaxConcurrentRuns    string `placeholder:"N|none" help:"Most runs that all replicas together send at once."`
	MaxRunsPerSecond     string `placeholder:"N|none" help:"Most attempts that all replicas together start in a second."`
	MaxRequestsPerSecond string `placeholder:"N|none" help:"Most API requests that all replicas together answer in a second."`
	MinInterval          string `placeholder:"1m|none" help:"Shortest time between two slots of one of its jobs."`
	MaxKeyAge            string `placeholder:"2160h|none" help:"How long a new API key may work. Earlier keys stay as they are."`
	ChangesKept          string `placeholder:"24h|none" help:"How long the feed of changes says which of its runs have ended, 1h to 720h."`
	AllowedTargets       string `placeholder:"CIDR,…|none" help:"Non-public networks that its jobs may call."`
	Notify               string `placeholder:"JSON|none" help:"Default recipients for jobs without notify: a list in the form of a job's notify."`
}

func (l limits) given() map[string]string {
	return map[string]string{
		"weight":                  l.Weight,
		"max_jobs":                l.MaxJobs,
		"max_pending_runs":        l.MaxPendingRuns,
		"max_concurrent_runs":     l.MaxConcurrentRuns,
		"max_runs_per_second":     l.MaxRunsPerSecond,
		"max_requests_per_second": l.MaxRequestsPerSecond,
		"min_interval":            l.MinInterval,
		"max_key_age":             l.MaxKeyAge,
		"changes_kept":            l.ChangesKept,
		"allowed_targets":         l.AllowedTargets,
		"notify":                  l.Notify,
	}
}

type createTenant struct {
	database
	limits
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
	limits
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
		if err := db.Tenants.DeleteTenant(ctx, c.Name); err != nil {
			return err
		}
		return note("tenant " + c.Name + " is deleted")
	})
}

type grantTenant struct {
	database
	Name   string `arg:"" help:"Name of the tenant."`
	Role   string `required:"" placeholder:"ROLE" help:"Role of the database that may call the functions. It must exist."`
	Schema string `required:"" placeholder:"SCHEMA" help:"Schema to make for the functions, such as shop_jobs. It may exist if it is empty."`
}

func (c *grantTenant) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		if _, _, err := db.Tenants.Grant(ctx, c.Name, tenants.NewGrant{Schema: c.Schema, Role: c.Role}); err != nil {
			return err
		}
		return note(fmt.Sprintf("role %s may run jobs of tenant %s: SELECT %s.run_in('job', interval '1 hour')", c.Role,
			c.Name, c.Schema))
	})
}

type revokeTenant struct {
	database
	Name   string `arg:"" help:"Name of the tenant."`
	Schema string `required:"" placeholder:"SCHEMA" help:"Schema that was made for the grant."`
}

func (c *revokeTenant) Run(ctx context.Context) error {
	return c.administer(ctx, func(ctx context.Context, db *store.Store) error {
		if err := db.Tenants.Revoke(ctx, c.Name, c.Schema); err != nil {
			return err
		}
		return note("schema " + c.Schema + " is dropped")
	})
}

func printTenants(tenants ...tenants.Tenant) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w,
		"NAME\tWEIGHT\tJOBS\tCONCURRENT RUNS\tRUNS/S\tREQUESTS/S\tMIN INTERVAL\tMAX KEY AGE\tALLOWED TARGETS\tNOTIFY")
	for _, t := range tenants {
		interval, keyAge, networks := "-", "-", "-"
		if t.MinInterval != nil {
			interval = t.MinInterval.String()
		}
		if t.MaxKeyAge != nil {
			keyAge = t.MaxKeyAge.String()
		}
		if len(t.AllowedTargets) > 0 {
			var list []string
			for _, network := range t.AllowedTargets {
				list = append(list, network.String())
			}
			networks = strings.Join(list, ",")
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, t.Weight, limit(t.MaxJobs),
			limit(t.MaxConcurrentRuns), limit(t.MaxRunsPerSecond), limit(t.MaxRequestsPerSecond), interval,
			keyAge, networks, told(t.Notify))
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
