package command

import (
	"cmp"
	"context"
	"os"
	"time"

	"punctual/internal/bench"
)

// Bench runs the benchmarks.
type Bench struct{ bench.Config }

// Validate is called by the flag parser.
func (c *Bench) Validate() error {
	return cmp.Or(within(c.Rounds >= 1 && c.Rounds <= 100, "--rounds", c.Rounds, "1 to 100"),
		within(c.For >= time.Minute && c.For <= 30*24*time.Hour, "--for", c.For, "1m to 720h"))
}

// Run returns no error, and so exits with 0, when it has measured, whether or not the figures reach their targets.
func (c *Bench) Run(ctx context.Context, version Version) error {
	c.Version, c.Out, c.Notes = string(version), os.Stdout, os.Stderr
	return bench.Run(ctx, c.Config)
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
