package command

import (
	"context"

	"punctual/httpapi/server"
)

// Tenants is what there is to do to tenants in the database itself.
type Tenants struct {
	Create createTenant `cmd:"" help:"Make a tenant."`
	List   listTenants  `cmd:"" help:"List all tenants."`
	Set    setTenant    `cmd:"" help:"Change a tenant's limits; what is not given stays. Replicas go by it within two seconds."`
	Delete deleteTenant `cmd:"" help:"Delete a tenant that has no active or paused jobs, and revoke its keys."`
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
	Notify               string `placeholder:"JSON|none" help:"Who is told of what happens to jobs that do not say so themselves: a list in the form of a job's notify."`
}

func (l limits) given() map[string]string {
	return map[string]string{
		"weight": l.Weight, "max_jobs": l.MaxJobs, "max_concurrent_runs": l.MaxConcurrentRuns, "max_runs_per_second": l.MaxRunsPerSecond,
		"max_requests_per_second": l.MaxRequestsPerSecond, "min_interval": l.MinInterval, "allowed_targets": l.AllowedTargets, "notify": l.Notify,
	}
}

type createTenant struct {
	database
	limits
	Name string `arg:"" help:"Its name: letters, digits, dots, underscores, colons and dashes."`
}

func (c *createTenant) Run(ctx context.Context) error {
	return naming(server.CreateTenant(ctx, c.admin(), c.Name, c.given()))
}

type listTenants struct{ database }

func (c *listTenants) Run(ctx context.Context) error {
	return naming(server.ListTenants(ctx, c.admin()))
}

type setTenant struct {
	database
	limits
	Name string `arg:"" help:"Which tenant."`
}

func (c *setTenant) Run(ctx context.Context) error {
	return naming(server.SetTenant(ctx, c.admin(), c.Name, c.given()))
}

type deleteTenant struct {
	database
	Name string `arg:"" help:"Which tenant."`
}

func (c *deleteTenant) Run(ctx context.Context) error {
	return naming(server.DeleteTenant(ctx, c.admin(), c.Name))
}
