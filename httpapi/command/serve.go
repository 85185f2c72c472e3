package command

import (
	"context"
	"log/slog"
	"time"

	"punctual/httpapi/server"
)

// Version is that of the binary.
type Version string

// Serve runs a replica.
type Serve struct {
	database
	masterKey
	replica
	authentication
	Migrate      bool          `help:"Bring the schema up to date first."`
	DatabaseWait time.Duration `default:"30s" help:"How long to wait at the start for a database that does not answer."`

	Frozen        bool   `help:"Freeze the deployment at the start, for all replicas: nothing is sent until punctual unfreeze. Each start with it freezes again."`
	AdoptDatabase bool   `help:"Dispatch from a database of another name or system identifier than before, as after pg_upgrade or a blue/green upgrade. Without it such a database, which may be a restored dump, is frozen until punctual unfreeze."`
	Dispatch      string `default:"on" enum:"on,off" help:"off: a replica for the API only, which claims and sends nothing and serves none of --queues."`
}

// Validate is called by the flag parser.
func (c *Serve) Validate() error {
	for _, part := range []interface{ Validate() error }{c.database, c.replica, c.authentication} {
		if err := part.Validate(); err != nil {
			return err
		}
	}
	return server.CheckExposure(c.Listen, c.noAuth(), c.InsecureNoAuth)
}

// Run serves until the context ends.
func (c *Serve) Run(ctx context.Context, log *slog.Logger, version Version) error {
	master, err := c.read()
	if err != nil {
		return err
	}
	config := c.config(log, version)
	config.NoAuth, config.OIDC = c.noAuth(), c.oidc()
	config.Master = master
	config.DatabaseURL, config.Migrate, config.DatabaseWait = c.DatabaseURL, c.Migrate, c.DatabaseWait
	config.OnlyLocal = c.Auth == "none" && !c.InsecureNoAuth
	config.Frozen, config.AdoptDatabase = c.Frozen, c.AdoptDatabase
	if c.Dispatch == "off" {
		config.Queues = nil
	}
	return naming(server.Run(ctx, config))
}
