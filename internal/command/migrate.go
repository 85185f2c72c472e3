package command

import (
	"context"
	"log/slog"
	"time"

	"punctual/migrations"
)

// Migrate brings the schema up to date.
type Migrate struct{ database }

// Run applies the migrations.
func (c *Migrate) Run(ctx context.Context, log *slog.Logger) error {
	applied, err := migrations.Up(ctx, c.DatabaseURL)
	for _, m := range applied {
		log.Info("migrated", "version", m.Version, "took", m.Duration.Round(time.Millisecond))
	}
	if err != nil {
		return naming(err)
	}
	log.Info("the schema is up to date", "version", migrations.Latest())
	return nil
}
