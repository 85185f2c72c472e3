package bench

import (
	"context"
	"flag"
	"fmt"
)

// The processes that a benchmark starts besides replicas. Each is the benchmark's own program, with one of these as its
// first argument. A replica of the ledger is one too: see serveProfiled.
const (
	targetHelper = "target"
	bareHelper   = "bare"
	floorHelper  = "floor"
)

// Helper is what the program of a benchmark does first: if its arguments ask for one of these processes, it is that.
func Helper(ctx context.Context, version string, args []string) (is bool, err error) {
	switch {
	case len(args) > 0 && args[0] == "serve": // a replica of the ledger
		if status := serveProfiled(args); status != 0 {
			return true, fmt.Errorf("the replica ended with status %d", status)
		}
		return true, nil
	case len(args) == 1 && args[0] == targetHelper:
		return true, Target(ctx)
	case len(args) > 1 && args[0] == floorHelper:
		flags := flag.NewFlagSet(floorHelper, flag.ContinueOnError)
		dsn := flags.String("dsn", "", "the database")
		conns := flags.Int("conns", 1, "how many connections to it")
		if err := flags.Parse(args[1:]); err != nil {
			return true, err
		}
		return true, Floor(ctx, *dsn, *conns)
	case len(args) > 1 && args[0] == bareHelper:
		c := BareConfig{Version: version}
		flags := flag.NewFlagSet(bareHelper, flag.ContinueOnError)
		flags.StringVar(&c.URL, "url", "", "where to post to")
		flags.IntVar(&c.Requests, "requests", 0, "how many")
		flags.IntVar(&c.Slots, "slots", 1, "how many at a time")
		flags.BoolVar(&c.Own, "own", false, "post with the client of a replica, in place of net/http")
		if err := flags.Parse(args[1:]); err != nil {
			return true, err
		}
		return true, Bare(ctx, c)
	}
	return false, nil
}
