// Command peer works the jobs of `make bench` with River. ../README.md has the protocol and the settings. It is a
// module of its own, so that Punctual's module does not depend on River.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// options holds the flags.
type options struct {
	databaseURL, schema, target string
	jobs                        int
	due                         time.Time     // zero: at once
	every                       time.Duration // from one job to the next
	slots, crons                int
	tuned                       bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer of River:", err)
		os.Exit(1) //nolint:gocritic // the signal handler goes with the process
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("describe, load or work?")
	}
	o, err := parse(args[1:])
	if err != nil {
		return err
	}
	if args[0] == "describe" {
		return describe(o)
	}
	pool, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer pool.Close()
	switch args[0] {
	case "load":
		return load(ctx, pool, o)
	case "work":
		return work(ctx, pool, o)
	default:
		return fmt.Errorf("unknown command %s", args[0])
	}
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	flags.StringVar(&o.databaseURL, "database-url", "", "the Postgres to work on")
	flags.StringVar(&o.schema, "schema", "", "schema of the tables")
	flags.StringVar(&o.target, "target", "", "URL that each job posts to")
	flags.IntVar(&o.jobs, "jobs", 0, "load: how many jobs")
	due := flags.String("due", "", "load: when the first is due")
	every := flags.Float64("every", 0, "load: milliseconds from one job to the next")
	flags.IntVar(&o.slots, "slots", 500, "work: how many jobs at a time")
	flags.IntVar(&o.crons, "crons", 0, "work: how many recurring jobs to fire each minute")
	flags.BoolVar(&o.tuned, "tuned", false, "with the settings that are best for the measurement")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.every = time.Duration(*every * float64(time.Millisecond))
	if *due != "" {
		o.due, err = time.Parse(time.RFC3339, *due)
	}
	return o, err
}

func describe(o options) error {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/riverqueue/river" {
				version = module.Version
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]string{
		"name": "River", "version": version, "runtime": runtime.Version(),
		// Cheap, because the state is the first column of River's index for fetching.
		"unfinished": `SELECT EXISTS (SELECT FROM ` + o.schema +
			`.river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', 'pending'))`,
	})
}

// open connects; tuned, with so many connections that River never waits for one, all of them open before it works.
func open(ctx context.Context, o options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(o.databaseURL)
	if err != nil {
		return nil, err
	}
	if o.tuned {
		config.MaxConns, config.MinConns = 10, 10
	}
	return pgxpool.NewWithConfig(ctx, config)
}
