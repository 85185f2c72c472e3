package command

import (
	"context"

	"punctual/internal/server"
)

// Tenants administers tenants directly in the database.
type Tenants struct {
	Create createTenant `cmd:"" help:"Create a tenant."`
	List   listTenants  `cmd:"" help:"List all tenants."`
	Set    setTenant    `cmd:"" help:"Change a tenant's limits. Limits that are not given stay as they are. Replicas apply the change within two seconds."`
	Delete deleteTenant `cmd:"" help:"Delete a tenant that has no active or paused jobs, and revoke its keys."`
}

// limits holds the settings of a tenant that operators decide. An absent flag changes nothing; none lifts a limit.
type limits struct {
	Weight               string `placeholder:"N" help:"Share of the worker slots while several tenants wait for them, 1 to 1000."`
	MaxJobs              string `placeholder:"N|none" help:"Most active and paused jobs."`
	MaxConcurrentRuns    string `placeholder:"N|none" help:"Most runs that all replicas together send at once."`
	MaxRunsPerSecond     string `placeholder:"N|none" help:"Most attempts that all replicas together start in a second."`
	MaxRequestsPerSecond string `placeholder:"N|none" help:"Most API requests that all replicas together answer in a second."`
	MinInterval          string `placeholder:"1m|none" help:"Shortest time between two slots of one of its jobs."`
	AllowedTargets       string `placeholder:"CIDR,…|none" help:"Non-public networks that its jobs may call."`
	Notify               string `placeholder:"JSON|none" help:"Default recipients for jobs without notify: a list in the form of a job's notify."`
}

func (l limits) given() map[string]string {
	return map[string]string{
		"weight":                  l.Weight,
		"max_jobs":                l.MaxJobs,
		"max_concurrent_runs":     l.MaxConcurrentRuns,
		"max_runs_per_second":     l.MaxRunsPerSecond,
		"max_requests_per_second": l.MaxRequestsPerSecond,
		"min_interval":            l.MinInterval,
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
	return naming(server.CreateTenant(ctx, c.admin(), c.Name, c.given()))
}

type listTenants struct{ database }

func (c *listTenants) Run(ctx context.Context) error {
	return naming(server.ListTenants(ctx, c.admin()))
}

type setTenant struct {
	database
	limits
	Name string `arg:"" help:"Name of the tenant."`
}

func (c *setTenant) Run(ctx context.Context) error {
	return naming(server.SetTenant(ctx, c.admin(), c.Name, c.given()))
}

type deleteTenant struct {
	database
	Name string `arg:"" help:"Name of the tenant."`
}

func (c *deleteTenant) Run(ctx context.Context) error {
	return naming(server.DeleteTenant(ctx, c.admin(), c.Name))
}
