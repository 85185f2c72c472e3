package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"punctual/internal/server"
)

// Verify checks from the database that every slot was handled as promised.
type Verify struct {
	database
	From          string        `placeholder:"INSTANT" help:"First slot to look at, such as 2026-12-01T09:00:00Z. Default: 24 hours before the last one."`
	To            string        `placeholder:"INSTANT" help:"Last slot to look at. Default: now."`
	Job           string        `placeholder:"NAME|ID" help:"Only this job, deleted or not."`
	Tenant        string        `placeholder:"NAME" help:"Only this tenant's jobs."`
	Format        string        `default:"text" enum:"text,json" help:"Form of the report: text for people, json for machines, an object per line."`
	Grace         time.Duration `default:"1m" help:"How long a due slot may wait for its claim without being reported."`
	DefaultJitter time.Duration `default:"1s" help:"The replicas' --default-jitter."`
}

// Run exits with 0 when all is well, 1 when it found violations and 2 when it could not check.
func (c *Verify) Run(ctx context.Context, log *slog.Logger) error {
	if c.Grace < 0 || c.Grace > 24*time.Hour {
		return &server.VerifyError{Err: fmt.Errorf("--grace: %s is outside 0s to 24h", c.Grace)}
	}
	if c.DefaultJitter < 0 || c.DefaultJitter > time.Hour {
		return &server.VerifyError{Err: fmt.Errorf("--default-jitter: %s is outside 0s to 1h", c.DefaultJitter)}
	}
	config := server.VerifyConfig{
		DatabaseURL: c.DatabaseURL, From: c.From, To: c.To, Tenant: c.Tenant, Job: c.Job, Grace: max(c.Grace, 1),
		DefaultJitter: c.DefaultJitter, JSON: c.Format == "json", Out: os.Stdout, Log: log,
	}
	if terminal, err := os.Stderr.Stat(); err == nil && terminal.Mode()&os.ModeCharDevice != 0 {
		config.Progress = os.Stderr
	}
	return naming(server.Verify(ctx, config))
}
