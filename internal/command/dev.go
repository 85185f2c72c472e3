package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"punctual/internal/server"
)

// SampleJobs holds the jobs that Dev starts with, as JSON.
type SampleJobs []byte

// Dev runs a scheduler with a private Postgres, for trying Punctual out.
type Dev struct {
	replica
	Dir string `type:"path" placeholder:"DIR" help:"Data directory of the private Postgres. Default: punctual-dev in the user's cache directory, for root in /var/lib."`
}

// Validate is called by the flag parser.
func (c *Dev) Validate() error {
	if err := c.replica.Validate(); err != nil {
		return err
	}
	return server.CheckExposure(c.Listen, true, false)
}

// Run serves until the context ends.
func (c *Dev) Run(ctx context.Context, hurry Hurry, log *slog.Logger, version Version, sample SampleJobs) error {
	if err := c.use(log); err != nil {
		return err
	}
	if c.Dir == "" {
		var err error
		if c.Dir, err = devDir(os.Geteuid()); err != nil {
			return err
		}
	}
	config := c.config(log, version)
	config.Hurry = hurry
	return server.RunDev(ctx, server.DevConfig{
		Config: config, Dir: c.Dir, Binary: os.Args[0], Sample: sample, Out: os.Stdout,
	})
}

// devDir returns the directory of a user's private Postgres. For root, Postgres runs as another user, who cannot enter
// root's home; so root's directory is elsewhere.
func devDir(uid int) (string, error) {
	if uid == 0 {
		return "/var/lib/punctual-dev", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("--dir: there is no cache directory to default to: %w", err)
	}
	return filepath.Join(cache, "punctual-dev"), nil
}

// Echo runs a target for trying things out. It answers every request with a copy of the request, and logs it.
type Echo struct {
	Listen string `default:"127.0.0.1:8081" help:"Address to listen on."`
}

// Run serves until the context ends.
func (c *Echo) Run(ctx context.Context, log *slog.Logger) error {
	return server.RunEcho(ctx, c.Listen, log)
}
