package command

import (
	"context"
	"fmt"
	"os"
	"time"

	"punctual/internal/bench"
)

// Bench runs the benchmarks.
type Bench struct {
	DatabaseURL string        `placeholder:"postgres://…" help:"An empty database, with a direct connection. The schema punctual is created in it and removed at the end. Default: a private Postgres, removed when the command ends."`
	Only        []string      `placeholder:"NAME,…" help:"Only these benchmarks, of: ${benchmarks}."`
	Full        bool          `help:"Use the large sizes, up to 10 million jobs and 20 million runs. Takes half an hour."`
	Rounds      int           `default:"3" help:"Number of measurements of each compared figure; the median counts."`
	For         time.Duration `default:"1h" help:"How long the benchmark flat runs. It runs only if it is named."`
	JSON        string        `name:"json" type:"path" placeholder:"FILE" help:"Also write all figures to a file, with every round and the environment."`
	Plots       string        `type:"path" placeholder:"DIR" help:"Also write plots to a directory."`
	Peers       []string      `type:"path" placeholder:"PROGRAM,…" help:"Programs that work the jobs of the benchmark peers, such as those that make bench-peers builds. It runs only if it is named."`
}

// Validate is called by the flag parser.
func (c *Bench) Validate() error {
	if c.Rounds < 1 || c.Rounds > 100 {
		return fmt.Errorf("--rounds: %d is outside 1 to 100", c.Rounds)
	}
	if c.For < time.Minute || c.For > 30*24*time.Hour {
		return fmt.Errorf("--for: %s is outside 1m to 720h", c.For)
	}
	return nil
}

// Run returns no error, and so exits with 0, when it has measured, whether or not the figures reach their targets.
func (c *Bench) Run(ctx context.Context, version Version) error {
	return bench.Run(ctx, bench.Config{
		DatabaseURL: c.DatabaseURL, Only: c.Only, Full: c.Full, Rounds: c.Rounds, For: c.For, JSON: c.JSON, Plots: c.Plots,
		Peers: c.Peers, Version: string(version), Out: os.Stdout, Notes: os.Stderr,
	})
}

// BenchTarget runs the target of Bench, in a process of its own.
type BenchTarget struct{}

// Run answers until the context ends.
func (BenchTarget) Run(ctx context.Context) error { return bench.Target(ctx) }

// BenchBare runs the bare loop of Bench, in a process of its own.
type BenchBare struct{ bench.BareConfig }

// Run posts until all requests are answered.
func (c *BenchBare) Run(ctx context.Context, version Version) error {
	c.Version = string(version)
	return bench.Bare(ctx, c.BareConfig)
}
