package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"time"

	"punctual/internal/process"
)

// report is the content of the file of figures. It prints the table as it grows.
type report struct {
	At       time.Time         `json:"at"`
	Punctual string            `json:"punctual"`
	Go       string            `json:"go"`
	Machine  machine           `json:"machine"`
	Postgres postgres          `json:"postgres"`
	Peers    []version         `json:"peers,omitempty"`
	Figures  []Figure          `json:"figures"`
	Failed   map[string]string `json:"failed,omitempty"` // benchmarks that could not measure, with the reason

	out io.Writer
}

type machine struct {
	OS     string `json:"os"`
	CPUs   int    `json:"cpus"`
	Model  string `json:"model,omitempty"`
	Memory int64  `json:"memory_bytes,omitempty"`
}

type postgres struct {
	Version  string            `json:"version"`
	Private  bool              `json:"private"`
	Settings map[string]string `json:"settings"`
}

// relevant lists the settings that figures depend on. Not every server has all of them.
var relevant = []string{
	"fsync", "synchronous_commit", "synchronous_standby_names", "full_page_writes", "wal_level", "wal_compression",
	"wal_buffers", "max_wal_size", "checkpoint_timeout", "shared_buffers", "effective_io_concurrency", "io_method",
	"autovacuum", "max_connections", "jit", "track_io_timing", "shared_preload_libraries", "data_checksums",
}

// newReport describes the machine and Postgres, and begins the table.
func newReport(ctx context.Context, c Config, db *scratch) (*report, error) {
	if c.JSON != "" {
		if err := writable(c.JSON); err != nil {
			return nil, fmt.Errorf("--json: %w", err)
		}
	}
	r := &report{
		At:       time.Now().UTC().Truncate(time.Second),
		Punctual: c.Version,
		Go:       runtime.Version(),
		Machine:  thisMachine(),
		out:      c.Out,
		Failed:   map[string]string{},
	}
	var err error
	if r.Postgres, err = db.describe(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(c.Out, "Punctual %s, Postgres %s, %s, %s\n\n", c.Version, r.Postgres.Version, r.Machine,
		r.At.Format(time.RFC3339))
	row(c.Out, "benchmark", "figure", "value", "unit", "target", "")
	return r, nil
}

// add prints a figure and stores it. Its Absent counts only if it could not be measured, and may then be empty.
func (r *report) add(f Figure) {
	f.Value = median(f.Rounds)
	if math.IsNaN(f.Value) {
		f.Absent = cmp.Or(f.Absent, "could not be measured here")
	} else {
		f.Absent = ""
	}
	r.Figures = append(r.Figures, f)
	row(r.out, f.Benchmark, f.Name, number(f.Value), f.Unit, f.Target.String(), f.verdict())
}

// failed records that a benchmark could not measure.
func (r *report) failed(name string, err error) {
	r.Failed[name] = err.Error()
	fmt.Fprintf(r.out, "%-10s  could not measure: %v\n", name, err)
}

// write writes the file.
func (r *report) write(path string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644) //nolint:gosec // for everybody to read
}

func (m machine) String() string {
	s := fmt.Sprintf("%s, %d CPUs", m.OS, m.CPUs)
	if m.Model != "" {
		s += " (" + m.Model + ")"
	}
	return s
}

// thisMachine describes this machine, as far as /proc tells.
func thisMachine() machine {
	m := machine{
		OS:    runtime.GOOS + "/" + runtime.GOARCH,
		CPUs:  runtime.NumCPU(),
		Model: process.Field("/proc/cpuinfo", "model name"),
	}
	m.Memory = process.FieldBytes("/proc/meminfo", "MemTotal")
	return m
}
