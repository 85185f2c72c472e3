package main

import (
	"context"
	"os"
	"time"

	"punctual/httpapi/server"
)

type keysCmd struct {
	Create createKeyCmd `cmd:"" help:"Make a key. It alone is printed on stdout, once; it is not stored."`
	List   listKeysCmd  `cmd:"" help:"List the keys of a tenant, newest first."`
	Revoke revokeKeyCmd `cmd:"" help:"Revoke a key for good. It ceases to work on every replica within two seconds."`
}

type createKeyCmd struct {
	database
	Tenant  string        `default:"default" help:"Whom the key acts for."`
	Role    string        `required:"" enum:"viewer,submitter,editor,admin,operator" help:"viewer reads; submitter also creates one-shots and triggers; editor changes jobs and runs; admin also keys and secrets of its tenant; operator administers all tenants."`
	Name    string        `required:"" help:"What it is for, for people."`
	Expires time.Duration `placeholder:"720h" help:"How long it works. Default: until it is revoked."`
}

func (c *createKeyCmd) Run(ctx context.Context) error {
	return naming(server.CreateKey(ctx, c.admin(), server.NewKey{Tenant: c.Tenant, Role: c.Role, Name: c.Name, Expires: c.Expires}))
}

// admin is the database, and where to say what was done.
func (d database) admin() server.AdminConfig {
	return server.AdminConfig{DatabaseURL: d.DatabaseURL, Out: os.Stdout, Notes: os.Stderr}
}

type listKeysCmd struct {
	database
	Tenant string `default:"default" help:"Whose keys."`
}

func (c *listKeysCmd) Run(ctx context.Context) error {
	return naming(server.ListKeys(ctx, c.admin(), c.Tenant))
}

type revokeKeyCmd struct {
	database
	Key string `arg:"" name:"id|prefix" help:"Id of the key, or how it begins: as keys list shows them."`
}

func (c *revokeKeyCmd) Run(ctx context.Context) error {
	return naming(server.RevokeKey(ctx, c.admin(), c.Key))
}

type tenantsCmd struct {
	Create createTenantCmd `cmd:"" help:"Make a tenant."`
	List   listTenantsCmd  `cmd:"" help:"List all tenants."`
	Set    setTenantCmd    `cmd:"" help:"Change a tenant's limits; what is not given stays. Replicas go by it within two seconds."`
	Delete deleteTenantCmd `cmd:"" help:"Delete a tenant that has no active or paused jobs, and revoke its keys."`
}

// limits are what operators decide about a tenant. Absent, nothing changes; none lifts a limit.
type limits struct {
	Weight               string `placeholder:"N" help:"Share of the worker slots while several tenants wait for them, 1 to 1000."`
	MaxJobs              string `placeholder:"N|none" help:"How many active and paused jobs it may have."`
	MaxConcurrentRuns    string `placeholder:"N|none" help:"How many of its runs all replicas together may be sending at once."`
	MaxRunsPerSecond     string `placeholder:"N|none" help:"How many of its attempts all replicas together may start in a second."`
	MaxRequestsPerSecond string `placeholder:"N|none" help:"How many API requests all replicas together answer it in a second."`
	MinInterval          string `placeholder:"1m|none" help:"Shortest time between two slots of one of its jobs."`
	AllowedTargets       string `placeholder:"CIDR,…|none" help:"Networks that its jobs may call although they are not public."`
}

func (l limits) given() map[string]string {
	return map[string]string{
		"weight": l.Weight, "max_jobs": l.MaxJobs, "max_concurrent_runs": l.MaxConcurrentRuns, "max_runs_per_second": l.MaxRunsPerSecond,
		"max_requests_per_second": l.MaxRequestsPerSecond, "min_interval": l.MinInterval, "allowed_targets": l.AllowedTargets,
	}
}

type createTenantCmd struct {
	database
	limits
	Name string `arg:"" help:"Its name: letters, digits, dots, underscores, colons and dashes."`
}

func (c *createTenantCmd) Run(ctx context.Context) error {
	return naming(server.CreateTenant(ctx, c.admin(), c.Name, c.given()))
}

type listTenantsCmd struct{ database }

func (c *listTenantsCmd) Run(ctx context.Context) error {
	return naming(server.ListTenants(ctx, c.admin()))
}

type setTenantCmd struct {
	database
	limits
	Name string `arg:"" help:"Which tenant."`
}

func (c *setTenantCmd) Run(ctx context.Context) error {
	return naming(server.SetTenant(ctx, c.admin(), c.Name, c.given()))
}

type deleteTenantCmd struct {
	database
	Name string `arg:"" help:"Which tenant."`
}

func (c *deleteTenantCmd) Run(ctx context.Context) error {
	return naming(server.DeleteTenant(ctx, c.admin(), c.Name))
}
