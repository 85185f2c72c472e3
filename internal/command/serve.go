package command

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"punctual/internal/server"
	"punctual/store/archive"
)

// Version is the version of the binary.
type Version string

// Serve runs a replica.
type Serve struct {
	database
	standby
	masterKey
	replica
	authentication
	mail
	Migrate      bool          `help:"Bring the schema up to date first."`
	DatabaseWait time.Duration `default:"30s" help:"How long each step of the start waits for a database that does not answer, or takes no writes."`

	ShutdownGrace *time.Duration `placeholder:"8s" help:"How long a stopping replica still answers requests, not ready and with Connection: close, before it closes the port. Set it longer than load balancers need to notice. At most --drain-timeout. Default: 8s, or --drain-timeout if that is shorter. Ctrl-C does not wait for it."`

	Frozen         bool   `help:"Freeze the deployment at the start, for all replicas: nothing is sent until punctual unfreeze. Each start with this flag freezes again."`
	AdoptDatabase  bool   `help:"Dispatch from a database whose name or system identifier has changed, as after pg_upgrade or a blue/green upgrade. Without this flag such a database is frozen until punctual unfreeze, as it may be a restored dump."`
	ArchiveCommand string `placeholder:"COMMAND" help:"Command that archives each day of runs before it is dropped, from its standard input; %d stands for the day: 'zstd -q > /archive/%d.ndjson.zst' is run by sh, '[\"/upload\", \"%d\"]' without a shell. A day stays until the command has exited with 0. none: days are no longer archived. Default: as the last replica said that had the flag; this one runs no command. The same on every replica."`
	Dispatch       string `default:"on" enum:"on,off" help:"off: the replica serves only the API. It claims and sends nothing, and serves no queue."`
}

// Validate is called by the flag parser.
func (c *Serve) Validate() error {
	for _, part := range []interface{ Validate() error }{c.database, c.standby, c.replica, c.authentication} {
		if err := part.Validate(); err != nil {
			return err
		}
	}
	if err := c.checkPages(c.replica); err != nil {
		return err
	}
	if err := archive.CheckCommand(c.ArchiveCommand); err != nil {
		return fmt.Errorf("--archive-command: %w", err)
	}
	grace, most := c.grace(), c.DrainTimeout
	return cmp.Or(
		within(grace >= 0 && grace <= most, "--shutdown-grace", grace, "0s to --drain-timeout (%s)", most),
		server.CheckExposure(c.Listen, c.noAuth(), c.InsecureNoAuth))
}

// defaultGrace is enough for three health checks two seconds apart, as HAProxy makes them, and leaves room within the
// ten seconds of docker stop.
const defaultGrace = 8 * time.Second

// grace returns how long a replica keeps answering after it was asked to stop.
func (c *Serve) grace() time.Duration {
	if c.ShutdownGrace != nil {
		return *c.ShutdownGrace
	}
	return min(defaultGrace, c.DrainTimeout)
}

// Run serves until the context ends.
func (c *Serve) Run(ctx context.Context, hurry Hurry, log *slog.Logger, version Version) error {
	if err := c.use(log); err != nil {
		return err
	}
	master, err := c.read()
	if err != nil {
		return err
	}
	config := c.replica.config(log, version)
	if config.SignIn, err = c.signIn(); err != nil {
		return err
	}
	if config.Mail, err = c.mail.config(); err != nil {
		return err
	}
	config.NoAuth = c.noAuth()
	config.Store = c.beside(c.on(config.Store))
	config.Store.ArchiveCommand = c.ArchiveCommand
	config.Store.Master, config.Migrate, config.DatabaseWait = master, c.Migrate, c.DatabaseWait
	config.OnlyLocal = c.Auth == "none" && !c.InsecureNoAuth
	config.Frozen, config.Store.Adopt = c.Frozen, c.AdoptDatabase
	config.ShutdownGrace, config.Hurry = c.grace(), hurry
	if c.Dispatch == "off" {
		config.Queues = nil
	}
	return naming(server.Run(ctx, config))
}
