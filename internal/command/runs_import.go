package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"punctual/store"
)

type importRuns struct {
	database
	Keep time.Duration `default:"168h" help:"How long the day stays in the database, before it is dropped again. It is not archived again."`
	File string        `arg:"" help:"An archive, or - for the standard input: zstd -dc FILE | punctual runs import -"`
}

// mostKept is how long an imported day may stay at most: longer is a typing error.
const mostKept = 366 * 24 * time.Hour

func (c *importRuns) Run(ctx context.Context, log *slog.Logger) error {
	if err := within(c.Keep >= time.Minute && c.Keep <= mostKept, "--keep", c.Keep, "1m to %s", mostKept); err != nil {
		return err
	}
	from := io.Reader(os.Stdin)
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	return naming(onDatabase(ctx, c.on(store.Options{MaxConns: 2, Log: log}), func(db *store.Store) error {
		done, err := db.Archives.Import(ctx, from, c.Keep)
		if err != nil {
			return fmt.Errorf("%s: nothing was imported: %w", c.File, err)
		}
		if done.Gone > 0 {
			log.Warn("runs of jobs that have been removed were left out", "runs", done.Gone)
		}
		log.Info("a day of runs was imported", "day", done.Day, "runs", done.Runs, "new", done.New, "until", done.Until)
		return nil
	}))
}
