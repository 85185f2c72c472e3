package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/store"
)

// Runs works on runs: by the API, or directly on the database.
type Runs struct {
	Changes runChanges `cmd:"" help:"Print ended runs as NDJSON for a warehouse, each at least once. The tenant needs changes_kept."`
	Import  importRuns `cmd:"" help:"Read a day of runs back that --archive-command has archived, directly into the database."`
}

type runChanges struct {
	api
	Cursor string `type:"path" placeholder:"FILE" help:"File that keeps the position in the feed, written once the runs before it are printed. Default: print from the oldest change that is kept."`
	Follow bool   `help:"Ask for more each second, after the last change too."`
}

func (c *runChanges) Run(ctx context.Context, api *client.Client) error {
	after, err := c.position()
	if err != nil {
		return err
	}
	for {
		var page httpapi.RunChanges[json.RawMessage]
		query := url.Values{"after": {after}, "limit": {"500"}}
		if _, err := api.Do(ctx, http.MethodGet, "/v1/runs/changes?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		if err := c.print(page); err != nil {
			return err
		}
		after = page.Next
		switch {
		case page.More:
			continue
		case !c.Follow:
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// position reads the position in the feed; empty: its beginning.
func (c *runChanges) position() (string, error) {
	if c.Cursor == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.Cursor)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("--cursor: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}

// print prints runs, and then keeps the position behind them: in a file that is replaced whole.
func (c *runChanges) print(page httpapi.RunChanges[json.RawMessage]) error {
	var lines bytes.Buffer
	for _, run := range page.Data {
		if err := json.Compact(&lines, run); err != nil {
			return err
		}
		lines.WriteByte('\n')
	}
	if _, err := os.Stdout.Write(lines.Bytes()); err != nil || c.Cursor == "" {
		return err
	}
	fresh := c.Cursor + ".new"
	if err := os.WriteFile(fresh, []byte(page.Next+"\n"), 0o600); err != nil {
		return fmt.Errorf("--cursor: %w", err)
	}
	return os.Rename(fresh, c.Cursor)
}

type importRuns struct {
	database
	Keep time.Duration `default:"168h" help:"How long the day stays before it is dropped again. It is not archived again."`
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
