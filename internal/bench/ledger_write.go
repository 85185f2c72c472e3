package bench

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Lines below these are summed up in one.
const (
	leastMicros = 0.3 // of a piece of work
	mostLines   = 25
)

// writeLedger writes the ledgers as Markdown, to the file of the configuration or to its output.
func writeLedger(l *lab, all []costs) error {
	var to strings.Builder
	fmt.Fprintf(&to, "# Ledger\n\nWhat a piece of work costs. `make ledger` wrote this on %s, with Punctual %s and "+
		"Postgres %s on %s.\n", l.report.At.Format(time.DateOnly), l.Version, l.report.Postgres.Version, l.report.Machine)
	for _, of := range all {
		of.write(&to)
	}
	if l.Ledger == "" {
		_, err := io.WriteString(l.Out, to.String())
		return err
	}
	return os.WriteFile(l.Ledger, []byte(to.String()), 0o644) //nolint:gosec // for everybody to read
}

func (of costs) write(to io.Writer) {
	fmt.Fprintf(to, "\n## %s\n\n%d, %.0f a second. Processor time of a %s: Postgres %.1f µs, replica %.1f µs. The "+
		"replica allocates %.1f objects, %.0f bytes.\n", of.kind, of.n, of.perSecond, of.unit, of.postgres, of.replica,
		of.allocated.objects, of.allocated.bytes)
	fmt.Fprintf(to, "\n| statement | calls | µs | buffers | WAL |\n|---|---:|---:|---:|---:|\n")
	var rest statement
	for i, s := range of.statements {
		if i >= mostLines || s.Micros < leastMicros {
			rest.Calls, rest.Micros, rest.Buffers, rest.WAL =
				rest.Calls+s.Calls, rest.Micros+s.Micros, rest.Buffers+s.Buffers, rest.WAL+s.WAL
			continue
		}
		fmt.Fprintf(to, "| `%s` | %s | %.2f | %.1f | %.0f |\n", strings.ReplaceAll(s.Text, "|", `\|`),
			perPiece(s.Calls), s.Micros, s.Buffers, s.WAL)
	}
	fmt.Fprintf(to, "| all others | %s | %.2f | %.1f | %.0f |\n", perPiece(rest.Calls), rest.Micros, rest.Buffers,
		rest.WAL)
	fmt.Fprintf(to, "\n| function | µs |\n|---|---:|\n")
	var others float64
	for i, f := range of.functions {
		if i >= 2*mostLines || f.micros < leastMicros {
			others += f.micros
			continue
		}
		fmt.Fprintf(to, "| `%s` | %.2f |\n", f.name, f.micros)
	}
	fmt.Fprintf(to, "| all others | %.2f |\n", others)
}

// perPiece writes how often a statement is sent: once for many pieces of work, in most cases.
func perPiece(calls float64) string {
	return cmp.Or(strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", calls), "0"), "."), "0")
}
