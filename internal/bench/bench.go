package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Config says what to measure, against which Postgres, and where to write it.
type Config struct {
	DatabaseURL string        // an empty database; "": a private Postgres, which is removed at the end
	Only        []string      // names of benchmarks; none: all, except those that run only when named
	Full        bool          // use the large sizes
	Rounds      int           // rounds of each benchmark that compares; 0: 3
	For         time.Duration // length of the benchmark flat; 0: an hour
	JSON        string        // file for all figures; "": no file
	Plots       string        // directory for plots; "": no plots
	Peers       []string      // programs of the benchmark peers

	Binary  string // binary of the replicas, the target and the bare loop; "": this one
	Version string
	Sizes   Sizes     // zero: DefaultSizes
	Out     io.Writer // where the table of figures goes
	Notes   io.Writer // where progress is reported
}

// benchmark is one row of the table benchmarks.
type benchmark struct {
	name      string
	onlyNamed bool // takes too long to run by default
	run       func(context.Context, *lab) error
}

// benchmarks lists all benchmarks in the order in which they run.
var benchmarks = []benchmark{
	{name: "burst", run: runBurst},
	{name: "steady", run: runSteady},
	{name: "replicas", run: runReplicas},
	{name: "inflight", run: runInFlight},
	{name: "fair", run: runFair},
	{name: "limits", run: runLimits},
	{name: "idle", run: runIdle},
	{name: "bloat", run: runBloat},
	{name: "api", run: runAPI},
	{name: "register", run: runRegister},
	{name: "rest", run: runRest},
	{name: "history", run: runHistory},
	{name: "tenants", run: runTenants},
	{name: "flat", run: runFlat, onlyNamed: true},
	{name: "pages", run: runPages, onlyNamed: true},
	{name: "peers", run: runPeers, onlyNamed: true},
}

// Names returns the names of all benchmarks.
func Names() (names []string) {
	for _, b := range benchmarks {
		names = append(names, b.name)
	}
	return names
}

// choose returns the benchmarks to run.
func choose(only []string) (chosen []benchmark, err error) {
	for _, name := range only {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("--only: %q is none of the benchmarks %s", name, strings.Join(Names(), ", "))
		}
	}
	for _, b := range benchmarks {
		if slices.Contains(only, b.name) || len(only) == 0 && !b.onlyNamed {
			chosen = append(chosen, b)
		}
	}
	return chosen, nil
}

// Run measures and writes the figures. A figure that misses its target is not an error. A benchmark that could not
// measure, or in which a run went wrong, is an error; the other benchmarks still run. At the end Run removes everything
// that it made in the database, even if ctx has ended.
func Run(ctx context.Context, c Config) (err error) {
	chosen, err := choose(c.Only)
	if err != nil {
		return err
	}
	if err := c.checkPeers(chosen); err != nil {
		return err
	}
	if c.Binary == "" {
		if c.Binary, err = os.Executable(); err != nil {
			return err
		}
	}
	if c.Rounds == 0 {
		c.Rounds = 3
	}
	if c.For == 0 {
		c.For = time.Hour
	}
	if c.Sizes == (Sizes{}) {
		c.Sizes = DefaultSizes(c.Full)
	}
	db, err := openScratch(ctx, c.DatabaseURL, c.Notes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	r, err := newReport(ctx, c, db)
	if err != nil {
		return err
	}
	for _, b := range chosen {
		l := &lab{Config: c, db: db, report: r, name: b.name, perJob: 300 * time.Microsecond}
		if err := l.run(ctx, b.run); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("%s: interrupted", b.name)
			}
			r.failed(b.name, err)
		}
	}
	if c.JSON != "" {
		if err := r.write(c.JSON); err != nil {
			return err
		}
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("nothing is known of: %s", strings.Join(slices.Sorted(maps.Keys(r.Failed)), ", "))
	}
	return nil
}

// writable checks, before hours of work, that a file can be written. It does not change an existing file.
func writable(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	_, err := os.Stat(path)
	f, failed := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // likewise
	if failed != nil {
		return failed
	}
	if errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(path)
	}
	return f.Close()
}
