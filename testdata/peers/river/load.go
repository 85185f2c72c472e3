package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

var logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// load makes River's tables, and writes the jobs by COPY. Without a due time they are available when a worker starts:
// jobs scheduled for an instant would cost River one more update each, and up to five seconds, because its scheduler
// looks every five seconds.
func load(ctx context.Context, pool *pgxpool.Pool, o options) error {
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: o.schema, Logger: logger})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("making River's tables: %w", err)
	}
	client, err := river.NewClient(driver, &river.Config{Schema: o.schema, Logger: logger})
	if err != nil {
		return err
	}
	const batch = 5_000
	for first := 0; first < o.jobs; first += batch {
		many := make([]river.InsertManyParams, min(batch, o.jobs-first))
		for i := range many {
			many[i].Args = newCallback(fmt.Sprintf("job-%d", first+i), o.target)
			if !o.due.IsZero() {
				many[i].InsertOpts = &river.InsertOpts{ScheduledAt: o.due.Add(time.Duration(first+i) * o.every)}
			}
		}
		if _, err := client.InsertManyFast(ctx, many); err != nil {
			return fmt.Errorf("inserting jobs: %w", err)
		}
	}
	return nil
}

func newCallback(name, url string) callback {
	return callback{Name: name, URL: url, Body: json.RawMessage(`{"range":"yesterday","kind":"invoices"}`)}
}
