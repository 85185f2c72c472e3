// Command river-bench runs a number of HTTP jobs with River, for `punctual bench` to compare itself with. It creates
// River's tables in a schema of their own, inserts the jobs, works them and drops the schema. It prints one line of
// JSON. It is a module of its own, so that Punctual's module does not depend on River.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// options holds the flags.
type options struct {
	databaseURL, target string
	jobs, workers       int
	cooldown            time.Duration
}

// figures is the content of the line of JSON.
type figures struct {
	Jobs    int `json:"jobs"`
	Workers int `json:"workers"`
	// Seconds runs from just before the start of the client until the last job is completed in the database.
	Seconds       float64 `json:"seconds"`
	JobsPerSecond float64 `json:"jobs_per_second"` // jobs / seconds
	CPU           float64 `json:"cpu"`             // user and system time of this process during Seconds, in seconds
}

func main() {
	var o options
	flag.StringVar(&o.databaseURL, "database-url", "", "the Postgres to work on")
	flag.StringVar(&o.target, "target", "", "URL that each job posts to")
	flag.IntVar(&o.jobs, "jobs", 50_000, "how many jobs")
	flag.IntVar(&o.workers, "workers", 256, "how many of them at a time")
	flag.DurationVar(&o.cooldown, "fetch-cooldown", time.Millisecond,
		"River's FetchCooldown: the least time between two fetches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "river-bench:", err)
		os.Exit(1) //nolint:gocritic // the signal handler goes with the process
	}
}

func run(ctx context.Context, o options) error {
	if o.databaseURL == "" || o.target == "" || o.jobs < 1 || o.workers < 1 {
		return errors.New("--database-url and --target are needed; --jobs and --workers must be at least 1")
	}
	pool, err := open(ctx, o.databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := prepare(ctx, pool); err != nil {
		return err
	}
	result, err := measure(ctx, pool, o)
	if err := errors.Join(err, drop(context.WithoutCancel(ctx), pool)); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// open connects with so many connections that River never waits for one, and opens them all before the clock starts.
func open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = 10, 10
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var durable string
	if err := pool.QueryRow(ctx, "SHOW synchronous_commit").Scan(&durable); err != nil {
		pool.Close()
		return nil, err
	}
	if durable != "on" {
		pool.Close()
		return nil, fmt.Errorf("synchronous_commit is %s: this would measure nothing; it must be on", durable)
	}
	return pool, nil
}

const (
	schema = "punctual_bench_river"
	mark   = "left by river-bench: may be dropped"
)

// prepare creates the schema. An existing schema is dropped if a former river-bench made it, and otherwise left alone.
func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	var comment *string
	err := pool.QueryRow(ctx, `
		SELECT max(coalesce(obj_description(oid, 'pg_namespace'), ''))
		FROM pg_namespace
		WHERE nspname = $1`, schema).Scan(&comment)
	switch {
	case err != nil:
		return err
	case comment != nil && *comment != mark:
		return fmt.Errorf("--database-url: the database has a schema %s that is not river-bench's: use another database",
			schema)
	case comment != nil:
		if err := drop(ctx, pool); err != nil {
			return err
		}
	}
	if _, err := pool.Exec(ctx, `CREATE SCHEMA `+schema+`; COMMENT ON SCHEMA `+schema+` IS '`+mark+`'`); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema, Logger: logger})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("making River's tables: %w", err), drop(context.WithoutCancel(ctx), pool))
	}
	return nil
}

func drop(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `DROP SCHEMA `+schema+` CASCADE`)
	return err
}
