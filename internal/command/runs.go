package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
)

// Runs works on runs: by the API, or directly on the database.
type Runs struct {
	Changes runChanges `cmd:"" help:"Print the runs that have ended, as NDJSON for a warehouse: one run a line, each at least once. The tenant needs a changes_kept."`
	Import  importRuns `cmd:"" help:"Read a day of runs back that --archive-command has archived, directly into the database."`
}

type runChanges struct {
	api
	Cursor string `type:"path" placeholder:"FILE" help:"File that keeps the position in the feed. It is written once the runs before it are printed. Default: print from the oldest change that is kept."`
	Follow bool   `help:"Do not end with the last change: ask for more each second."`
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
