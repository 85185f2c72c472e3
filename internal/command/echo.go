package command

import (
	"context"
	"log/slog"

	"punctual/internal/server"
)

// Echo runs a target for trying things out. It answers every request with a copy of the request, and logs it.
type Echo struct {
	Listen string `default:"127.0.0.1:8081" help:"Address to listen on."`
}

// Run serves until the context ends.
func (c *Echo) Run(ctx context.Context, log *slog.Logger) error {
	return server.RunEcho(ctx, c.Listen, log)
}
