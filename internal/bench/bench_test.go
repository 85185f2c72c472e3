package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/prove"
)

// TestMain runs the tests, or is what a benchmark starts beside replicas, or the program of a peer if that is its name.
func TestMain(m *testing.M) {
	if is, err := Helper(context.Background(), prove.BinaryVersion, os.Args[1:]); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if filepath.Base(os.Args[0]) == fakeName {
		if err := actAsFakePeer(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	prove.RemoveBinaries()
	os.Exit(code)
}

// tiny are sizes with which every benchmark takes seconds.
var tiny = Sizes{
	BurstJobs: 200, Slots: 20, SteadyRate: 50, SteadySeconds: 2, LoneJobs: 2, InFlight: 10, ReplicasMost: 4,
	NoisyJobs: 300, UrgentJobs: 3, LimitedJobs: 200, Workflows: 3, Hops: 2, IdleFor: time.Second,
	GrowthJobs: 500, RestLeast: 50, RestMost: 1000, HistoryLeast: 1000, HistoryMost: 1000, TenantsMost: 10,
	DeadRows: 1000, Claims: 2, APIFor: 300 * time.Millisecond, APIClients: 4, RegisterAll: 2500,
	PeerRate: 20, PeerSeconds: 2, PeerKilled: 60, PeerSlots: 10, PeerKillAfter: time.Second,
	PeerKillFor: 20 * time.Second, PeerCrons: 30,
	PageJobs: 200, PageRuns: 2000, PageDeaths: 20, PageTimes: 2,
	FlatRate: 5, FlatEvery: 2 * time.Second,
}

func tinyConfig(t *testing.T, dsn string, only ...string) Config {
	t.Helper()
	binary, err := prove.Build(t.Context(), prove.Variant{})
	must(t, err)
	return Config{
		DatabaseURL: dsn, Only: only, Rounds: 1, For: 4 * time.Second, Binary: binary, Version: prove.BinaryVersion,
		Sizes: tiny, JSON: filepath.Join(t.TempDir(), "made", "figures.json"), Out: &bytes.Buffer{}, Notes: t.Output(),
	}
}

// databases numbers the databases of this process.
var databases atomic.Int32

// empty returns an empty database, whose owner may create roles and nothing more. It goes with its server.
func empty(t *testing.T, server *privatepg.Server) string {
	t.Helper()
	name := fmt.Sprint("empty_", databases.Add(1))
	execute(t, server.DSN("postgres"), `CREATE ROLE `+name+` LOGIN CREATEROLE`)
	execute(t, server.DSN("postgres"), `CREATE DATABASE `+name+` OWNER `+name)
	u, err := url.Parse(server.DSN(name))
	must(t, err)
	u.User = url.User(name)
	return u.String()
}

// measures begins a test that runs benchmarks, or begins to: `make prove` runs it.
func measures(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a benchmark: `make prove` does")
	}
}

func TestEveryBenchmarkMeasures(t *testing.T) {
	measures(t)
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	// For each benchmark the figure that shows that it measured what it should.
	figures := map[string]string{
		"burst":     "recurring, CPU of the vacuum afterwards",
		"steady":    "50 fires/s for 2 s, p99",
		"replicas":  "4 replicas, ratio to 1",
		"inflight":  "10 in flight, errors",
		"fair":      "urgent jobs, p99",
		"workflows": "steps of workflows, ratio to plain jobs",
		"limits":    "limits that never bind, ratio to none",
		"hops":      "a queued run, half within",
		"idle":      "resident",
		"bloat":     "claim of 100, 1000 dead rows, median",
		"api":       "get a job, 4 clients",
		"rest":      "CPU of Postgres, ratio of 1 k to 50",
		"history":   "CPU of Postgres, ratio of 1 k to 0",
		"tenants":   "CPU of Postgres, ratio of 10 to 1",
		"register":  "batch create, WAL",
		"flat":      "goroutines, last quarter over first",
		"pages":     "dead letters, p95",
		"traces":    "with traces of 1 %, exported",
		"peers":     "burst, Punctual's ratio to it: fake",

		"peers-burst": "burst, Punctual's ratio to it: fake",
	}
	t.Run("all", func(t *testing.T) {
		names := slices.DeleteFunc(Names(), func(name string) bool { return name == "ledger" }) // it has a test of its own
		for _, name := range append(names, "peers", "peers-burst") {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dsn := empty(t, server)
				c := tinyConfig(t, dsn, name)
				measure := Run
				if strings.HasPrefix(name, "peers") {
					measure = besideFake(t)
				}
				if err := measure(t.Context(), c); err != nil {
					t.Fatalf("%v\n%s", err, c.Out)
				}
				got := written(t, c.JSON)
				if !slices.ContainsFunc(got, func(f figure) bool { return f.Name == figures[name] && f.Benchmark == name }) {
					t.Fatalf("there is no figure %q:\n%s", figures[name], c.Out)
				}
				for _, f := range got {
					if (f.Value == nil) != (f.Absent != "") || (f.Value != nil && f.Target != nil) != (f.Reached != nil) ||
						f.Value != nil && len(f.Rounds) == 0 {
						t.Errorf("%s: value %v, absent %q, target %v, reached %v, rounds %v", f.Name, f.Value, f.Absent, f.Target,
							f.Reached, f.Rounds)
					}
					if strings.Contains(f.Name, "CPU of Postgres") && f.Value == nil {
						t.Errorf("%s: %s, although Postgres is on this machine", f.Name, f.Absent)
					}
				}
				t.Logf("\n%s", c.Out)
				gone(t, dsn)
			})
		}
	})
}

func TestABenchOfItsOwnPostgresLeavesNothingBehind(t *testing.T) {
	measures(t)
	t.Parallel()
	c := tinyConfig(t, "", "idle")
	c.Sizes.IdleFor = 100 * time.Millisecond
	must(t, Run(t.Context(), c))
	var r report
	read(t, c.JSON, &r)
	if !r.Postgres.Private || r.Postgres.Settings["synchronous_commit"] != "on" || r.Postgres.Settings["fsync"] != "on" ||
		r.Machine.CPUs == 0 || r.Punctual != prove.BinaryVersion {
		t.Errorf("it ran on %+v, %+v, version %q", r.Postgres, r.Machine, r.Punctual)
	}
	if !slices.ContainsFunc(r.Figures, func(f Figure) bool { return f.Name == "statements" }) {
		t.Errorf("statements were not counted:\n%s", c.Out)
	}
}

// What a run and a request take can be counted, on any machine.
func TestTheLedgerCountsNoMoreThanItsBounds(t *testing.T) {
	measures(t)
	t.Parallel()
	c := tinyConfig(t, "", "ledger")
	c.Sizes.BurstJobs, c.Sizes.Slots, c.Sizes.APIFor, c.Sizes.APIClients = 5000, 500, 2*time.Second, 8
	c.Ledger = filepath.Join(t.TempDir(), "ledger.md")
	must(t, Run(t.Context(), c))
	figures := written(t, c.JSON)
	if len(figures) != 4*len(mostOf) {
		t.Errorf("there are %d figures:\n%s", len(figures), c.Out)
	}
	for _, f := range figures {
		if f.Reached == nil || !*f.Reached {
			t.Errorf("%s: %v %s", f.Name, *f.Value, f.Unit)
		}
	}
	text, err := os.ReadFile(c.Ledger)
	must(t, err)
	for _, has := range []string{"## Reads of a job", "INSERT INTO punctual.runs", "store/claim.", "scheduler/delivery."} {
		if !strings.Contains(string(text), has) {
			t.Errorf("the ledger says nothing of %s", has)
		}
	}
	t.Logf("%s\n%s", c.Out, text)
}

// figure is a figure as the file has it.
type figure struct {
	Benchmark, Name, Unit, Absent string
	Value                         *float64
	Rounds                        []float64
	Target                        *Goal
	Reached                       *bool
}

func written(t *testing.T, path string) []figure {
	t.Helper()
	var r struct{ Figures []figure }
	read(t, path, &r)
	return r.Figures
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	must(t, json.Unmarshal(raw, into))
}
