// Command peers measures Punctual beside the programs of peers that it is given: see testdata/peers. Then it writes the
// table in docs/performance.md from testdata/bench/peers.json. `make bench-peers` runs it, and `make generate` runs it
// without programs, so that it only writes the table.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"punctual/internal/bench"
)

//go:generate go run .

const (
	figures  = "../../../testdata/bench/peers.json"
	document = "../../../docs/performance.md"

	begin = "<!-- Written by make bench-peers from testdata/bench/peers.json: -->\n"
	end   = "<!-- Until here. -->\n"
)

// version is set at build time.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	is, err := bench.Helper(ctx, version, os.Args[1:])
	if !is {
		if err = measure(ctx); err == nil {
			err = write()
		}
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// measure measures Punctual beside the programs of the command line.
func measure(ctx context.Context) error {
	c := bench.Config{Version: version, Out: os.Stdout, Notes: os.Stderr}
	only := flag.String("only", "peers", "peers or peers-burst")
	flag.IntVar(&c.Rounds, "rounds", 3, "number of measurements of each figure; the median counts")
	flag.StringVar(&c.JSON, "json", figures, "file for the figures")
	flag.StringVar(&c.Binary, "punctual", "../../../bin/punctual", "binary of Punctual")
	flag.StringVar(&c.DatabaseURL, "database-url", "", "an empty database; default: a private Postgres")
	flag.Parse()
	if flag.NArg() == 0 {
		return nil
	}
	c.Only = []string{*only}
	return bench.RunPeers(ctx, c, flag.Args()...)
}

func write() error {
	raw, err := os.ReadFile(figures)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	updated, err := update(text, raw)
	if err != nil {
		return err
	}
	return os.WriteFile(document, updated, 0o644) //nolint:gosec // for everybody to read
}

// update replaces the block between begin and end.
func update(text, raw []byte) ([]byte, error) {
	var m measured
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", figures, err)
	}
	before, rest, found := bytes.Cut(text, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return nil, fmt.Errorf("%s has no lines %q and %q", document, begin, end)
	}
	return bytes.Join([][]byte{before, []byte(begin), []byte(m.block()), []byte(end), after}, nil), nil
}

// measured is the part of the file of figures that the table shows.
type measured struct {
	At       time.Time
	Punctual string
	Machine  struct {
		OS, Model string
		CPUs      int
	}
	Postgres struct{ Version string }
	Peers    []struct{ Name, Version, Runtime string }
	Figures  []figure
}

type figure struct {
	Name   string
	Unit   string
	Value  *float64
	Rounds []float64
	Cap    float64
}

// of returns a figure of a contender, or nil.
func (m measured) of(name, contender string) *figure {
	for i, f := range m.Figures {
		if f.Name == name+": "+contender && f.Value != nil {
			return &m.Figures[i]
		}
	}
	return nil
}

// rows are the rows of the table. A row shows one figure, or several with a slash between them.
var rows = []struct {
	title, suffix string
	figures       []string
	ranged        bool // with the range of the rounds
}{
	{"burst, jobs/s", "", []string{"burst"}, true},
	{"ratio to the bare loop of the round", "", []string{"burst, ratio to the bare loop"}, true},
	{"Punctual's ratio to it in the round", "", []string{"burst, Punctual's ratio to it"}, true},
	{"processor time of Postgres, µs a job", "", []string{"burst, CPU of Postgres"}, true},
	{"processor time of the worker, µs a job", "", []string{"burst, CPU of the worker"}, true},
	{"WAL, bytes a job", "", []string{"burst, WAL"}, false},
	{"memory of the worker after it, MB", "", []string{"burst, memory of the worker after it"}, false},
	{"lateness: p50 / p99, ms", "", []string{"lateness, p50", "lateness, p99"}, false},
	{"the same, as it comes", asItComes, []string{"lateness, p50", "lateness, p99"}, false},
	{"earliest arrival, ms after due", "", []string{"lateness, earliest"}, false},
	{"`kill -9`: the last lost job is tried again after, s", "", []string{"kill, last lost job tried again"}, true},
	{"the same, as it comes", asItComes, []string{"kill, last lost job tried again"}, true},
	{"lost requests / jobs without an answer by then / answered twice", "", killed, false},
	{"the same, as it comes", asItComes, killed, false},
	{"herd: the last cron arrives after, s", "", []string{"herd, last arrival"}, true},
	{"crons that arrived in the minute", "", []string{"herd, arrived in the minute"}, false},
}

const asItComes = ", as it comes"

var killed = []string{"kill, lost jobs", "kill, not answered by then", "kill, answered twice"}

// block writes the table.
func (m measured) block() string {
	var b strings.Builder
	names, heads := []string{"Punctual"}, []string{"Punctual"}
	for _, p := range m.Peers {
		names, heads = append(names, p.Name), append(heads, p.Name+" "+p.Version)
	}
	fmt.Fprintf(&b, "\n| | %s |\n|---|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for _, row := range rows {
		cells := make([]string, len(names))
		for i, name := range names {
			suffix := row.suffix
			if i == 0 {
				suffix = "" // Punctual has no settings for it
			}
			cells[i] = m.cell(row.figures, name+suffix, row.ranged)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", row.title, strings.Join(cells, " | "))
	}
	m.loops(&b)
	return b.String()
}

// cell writes figures of a contender; a dash if it has none of them.
func (m measured) cell(names []string, contender string, ranged bool) string {
	var texts []string
	for _, name := range names {
		f := m.of(name, contender)
		if f == nil {
			return "–"
		}
		texts = append(texts, f.text(ranged))
	}
	return strings.Join(texts, " / ")
}

// loops writes what the bare loops did, and where it was measured.
func (m measured) loops(b *strings.Builder) {
	loop := func(name string) string {
		return m.cell([]string{"burst"}, name, true) + " requests/s with " +
			m.cell([]string{"burst, CPU of the worker"}, name, false) + " µs of processor time each"
	}
	fmt.Fprintf(b, "\nThe bare loop made %s; with our own client, %s.\n", loop("bare loop"), loop("bare loop, own client"))
	rounds := 0
	if f := m.of("burst", "Punctual"); f != nil {
		rounds = len(f.Rounds)
	}
	fmt.Fprintf(b, "Medians, with the least and the greatest, of %d rounds on %s:\n", rounds, m.At.Format(time.DateOnly))
	fmt.Fprintf(b, "%s with %d CPUs (%s), Postgres %s, Punctual %s", m.Machine.OS, m.Machine.CPUs, m.Machine.Model,
		m.Postgres.Version, m.Punctual)
	for _, p := range m.Peers {
		fmt.Fprintf(b, ", %s on %s", p.Name, p.Runtime)
	}
	b.WriteString(".\n\n")
}

// text writes the median and, if asked for, the range of the rounds.
func (f figure) text(ranged bool) string {
	text := f.number(*f.Value)
	least, most := f.number(slices.Min(f.Rounds)), f.number(slices.Max(f.Rounds))
	if !ranged || least == most {
		return text
	}
	return text + " (" + least + "–" + most + ")"
}

// number writes a number, or more than which it is.
func (f figure) number(v float64) string {
	if f.Cap != 0 && v >= f.Cap {
		return "> " + number(f.Cap)
	}
	if f.Unit == "×" {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return number(v)
}

// number writes v with two or three significant digits.
func number(v float64) string {
	size := math.Abs(v)
	switch {
	case size >= 1000:
		rounded := strconv.FormatFloat(math.Round(v/10)*10, 'f', 0, 64)
		return rounded[:len(rounded)-3] + "," + rounded[len(rounded)-3:]
	case size >= 10 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 1:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}
