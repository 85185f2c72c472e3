package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// fakeName is the name by which the binary of the tests is the program of a peer.
const fakeName = "fakepeer"

// fakePeer returns the path of the program of a peer.
func fakePeer(t *testing.T) string {
	t.Helper()
	itself, err := os.Executable()
	must(t, err)
	path := filepath.Join(t.TempDir(), fakeName)
	must(t, os.Symlink(itself, path))
	return path
}

// fake is the smallest queue that can be compared: a table whose rows are taken for two seconds at a time.
type fake struct {
	database, schema, target, due string
	jobs, slots, crons            int
	every                         float64
	tuned                         bool
	pool                          *pgxpool.Pool
}

// actAsFakePeer is the program of a peer.
func actAsFakePeer(command string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var f fake
	flags := flag.NewFlagSet(fakeName, flag.ContinueOnError)
	flags.StringVar(&f.database, "database-url", "", "")
	flags.StringVar(&f.schema, "schema", "", "")
	flags.StringVar(&f.target, "target", "", "")
	flags.StringVar(&f.due, "due", "-infinity", "")
	flags.IntVar(&f.jobs, "jobs", 0, "")
	flags.IntVar(&f.slots, "slots", 8, "")
	flags.IntVar(&f.crons, "crons", 0, "")
	flags.Float64Var(&f.every, "every", 0, "")
	flags.BoolVar(&f.tuned, "tuned", false, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if command == "describe" {
		return json.NewEncoder(os.Stdout).Encode(description{
			version: version{Name: "fake", Version: "v1"}, Unfinished: `SELECT EXISTS (SELECT FROM ` + f.schema + `.jobs)`,
		})
	}
	config, err := pgxpool.ParseConfig(f.database)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["search_path"] = f.schema
	if f.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer f.pool.Close()
	if command == "load" {
		return f.load(ctx)
	}
	return f.work(ctx)
}

func (f *fake) load(ctx context.Context) error {
	_, err := f.pool.Exec(ctx, `
		CREATE TABLE jobs (name text PRIMARY KEY, due timestamptz NOT NULL, taken timestamptz NOT NULL DEFAULT '-infinity')`)
	if err != nil {
		return err
	}
	_, err = f.pool.Exec(ctx, `
		INSERT INTO jobs
		SELECT 'job-' || i, $1::timestamptz + i * $2::float8 * interval '1 ms'
		FROM generate_series(1, $3) AS i`, f.due, f.every, f.jobs)
	return err
}

func (f *fake) work(ctx context.Context) error {
	var slots errgroup.Group
	for range f.slots {
		slots.Go(func() error {
			for ctx.Err() == nil {
				if err := f.one(ctx); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	if f.crons > 0 {
		slots.Go(func() error { return f.fire(ctx) })
	}
	fmt.Println("ready")
	return slots.Wait()
}

// one takes a job, posts it and deletes it.
func (f *fake) one(ctx context.Context) error {
	var name string
	var due *time.Time
	err := f.pool.QueryRow(ctx, `
		UPDATE jobs
		SET taken = now()
		WHERE name = (SELECT name FROM jobs
		              WHERE due <= now() AND taken < now() - interval '2 s'
		              ORDER BY due
		              LIMIT 1
		              FOR UPDATE SKIP LOCKED)
		RETURNING name, nullif(due, '-infinity')`).Scan(&name, &due)
	if errors.Is(err, pgx.ErrNoRows) {
		select {
		case <-time.After(20 * time.Millisecond): // it polls
		case <-ctx.Done():
		}
		return nil
	}
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.target, strings.NewReader(burstBody))
	if err != nil {
		return err
	}
	request.Header.Set("Punctual-Job", name)
	if due != nil {
		request.Header.Set("Punctual-Scheduled-For", due.Format(time.RFC3339Nano))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	_, err = f.pool.Exec(ctx, `DELETE FROM jobs WHERE name = $1`, name)
	return err
}

// fire makes a job of each cron at every whole minute.
func (f *fake) fire(ctx context.Context) error {
	for {
		next := time.Now().Truncate(time.Minute).Add(time.Minute)
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return nil
		}
		if _, err := f.pool.Exec(ctx, `
			INSERT INTO jobs
			SELECT 'cron-' || i, $1
			FROM generate_series(1, $2) AS i`, next, f.crons); err != nil {
			return err
		}
	}
}
