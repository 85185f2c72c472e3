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
	DatabaseURL string        `placeholder:"postgres://…" help:"An empty database, with a direct connection. The schema punctual is created in it and removed at the end. Default: a private Postgres, removed when the command ends."`
	Only        []string      `placeholder:"NAME,…" help:"Only these benchmarks, of: ${benchmarks}."`
	Full        bool          `help:"Use the large sizes, up to 10 million jobs and 20 million runs. Takes half an hour."`
	Rounds      int           `default:"3" help:"Number of measurements of each compared figure; the median counts."`
	For         time.Duration `default:"1h" help:"How long the benchmark flat runs. It runs only if it is named."`
	JSON        string        `name:"json" type:"path" placeholder:"FILE" help:"Also write all figures to a file, with every round and the environment."`

	Ledger string `type:"path" placeholder:"FILE" help:"Write the ledger to a file. The benchmark ledger runs only if it is named."`

	Binary string `name:"punctual" type:"path" default:"bin/punctual" placeholder:"FILE" help:"The binary of the replicas."`

	Version string    `kong:"-"`
	Sizes   Sizes     `kong:"-"` // zero: DefaultSizes
	Out     io.Writer `kong:"-"` // where the table of figures goes
	Notes   io.Writer `kong:"-"` // where progress is reported
}

// benchmark is one row of the table benchmarks.
type benchmark struct {
	name      string
	onlyNamed bool // takes too long to run by default
	run       func(context.Context, *lab)
}

// benchmarks lists the benchmarks of Run in the order in which they run.
var benchmarks = []benchmark{
	{name: "burst", run: runBurst},
	{name: "steady", run: runSteady},
	{name: "replicas", run: runReplicas},
	{name: "inflight", run: runInFlight},
	{name: "fair", run: runFair},
	{name: "limits", run: runLimits},
	{name: "workflows", run: runWorkflows},
	{name: "hops", run: runHops},
	{name: "idle", run: runIdle},
	{name: "bloat", run: runBloat},
	{name: "api", run: runAPI},
	{name: "register", run: runRegister},
	{name: "rest", run: runRest},
	{name: "history", run: runHistory},
	{name: "tenants", run: runTenants},
	{name: "flat", run: runFlat, onlyNamed: true},
	{name: "traces", run: runTraces, onlyNamed: true},
	{name: "pages", run: runPages, onlyNamed: true},
	{name: "ledger", run: runLedger, onlyNamed: true},
}

// Names returns the names of all benchmarks of Run.
func Names() []string { return namesOf(benchmarks) }

func namesOf(all []benchmark) (names []string) {
	for _, b := range all {
		names = append(names, b.name)
	}
	return names
}

// choose returns the benchmarks to run.
func choose(all []benchmark, only []string) (chosen []benchmark, err error) {
	names := namesOf(all)
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("--only: %q is none of the benchmarks %s", name, strings.Join(names, ", "))
		}
	}
	for _, b := range all {
		if slices.Contains(only, b.name) || len(only) == 0 && !b.onlyNamed {
			chosen = append(chosen, b)
		}
	}
	return chosen, nil
}

// Run measures and writes the figures. A figure that misses its target is not an error. A benchmark that could not
// measure, or in which a run went wrong, is an error; the other benchmarks still run. At the end Run removes everything
// that it made in the database, even if ctx has ended.
func Run(ctx context.Context, c Config) error { return run(ctx, c, benchmarks) }

func run(ctx context.Context, c Config, all []benchmark) (err error) {
	chosen, err := choose(all, c.Only)
	if err != nil {
		return err
	}
	if c.Sizes == (Sizes{}) {
		c.Sizes = DefaultSizes(c.Full)
	}
	var settings map[string]string
	if slices.Contains(c.Only, "ledger") {
		settings = preload
	}
	db, err := openScratch(ctx, c.DatabaseURL, settings, c.Notes)
	if err != nil && ctx.Err() != nil {
		return errors.New("making the database: interrupted")
	}
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
