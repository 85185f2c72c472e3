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
	return naming(server.Run(ctx, config))
}
