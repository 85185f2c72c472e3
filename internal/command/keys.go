package command

import (
	"context"
	"os"
	"time"

	"punctual/internal/server"
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
	key := tenants.NewKey{Name: c.Name, Role: c.Role, Lifetime: c.Expires}
	return naming(server.CreateKey(ctx, c.admin(), c.Tenant, key))
}

// admin returns the database and the writers for results and notes.
func (d database) admin() server.AdminConfig {
	return server.AdminConfig{DatabaseURL: d.DatabaseURL, Out: os.Stdout, Notes: os.Stderr}
}

type listKeys struct {
	database
	Tenant string `default:"default" help:"Tenant whose keys to list."`
}

func (c *listKeys) Run(ctx context.Context) error {
	return naming(server.ListKeys(ctx, c.admin(), c.Tenant))
}

type revokeKey struct {
	database
	Key string `arg:"" name:"id|prefix" help:"Id or prefix of the key, as keys list shows them."`
}

func (c *revokeKey) Run(ctx context.Context) error {
	return naming(server.RevokeKey(ctx, c.admin(), c.Key))
}
