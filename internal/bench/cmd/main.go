// Cmd measures Punctual: `make bench` runs it. The replicas are processes of the binary that users get.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"punctual/internal/bench"
)

// The linker sets version.
var version = "dev"

const description = `Measures throughput, lateness and cost, on a private Postgres or in an empty database of yours.

Every flag can be given as an environment variable, PUNCTUAL_ and its name: PUNCTUAL_ROUNDS=5. The exit status is 0 when
it has measured, whether or not the figures reach their targets.`

// cli is the command line.
type cli struct{ bench.Config }

// Validate is called by the flag parser.
func (c *cli) Validate() error {
	switch {
	case c.Rounds < 1 || c.Rounds > 100:
		return fmt.Errorf("--rounds: is %d, has to be 1 to 100", c.Rounds)
	case c.For < time.Minute || c.For > 30*24*time.Hour:
		return fmt.Errorf("--for: is %s, has to be 1m to 720h", c.For)
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	is, err := bench.Helper(ctx, version, os.Args[1:])
	if !is {
		c := cli{bench.Config{Version: version, Out: os.Stdout, Notes: os.Stderr}}
		kong.Parse(&c, kong.Name("bench"), kong.Description(description), kong.DefaultEnvars("PUNCTUAL"),
			kong.Vars{"benchmarks": strings.Join(bench.Names(), ", ")},
			kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
		err = bench.Run(ctx, c.Config)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
