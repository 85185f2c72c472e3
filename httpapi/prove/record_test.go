package prove

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// results is the file of the latest figures: one JSON object a line, one line a benchmark.
const results = "../../testdata/bench/latest.json"

// record reports the figures of a benchmark, and writes them to the file in place of its former line.
func record(b *testing.B, figures map[string]float64) {
	b.Helper()
	for _, unit := range slices.Sorted(maps.Keys(figures)) {
		b.ReportMetric(figures[unit], unit)
	}
	line := map[string]any{"bench": b.Name(), "at": time.Now().UTC().Format(time.RFC3339), "cpus": runtime.NumCPU(), "go": runtime.Version()}
	for unit, figure := range figures {
		line[unit] = math.Round(figure*1000) / 1000
	}
	if err := replaceLine(results, b.Name(), line); err != nil {
		b.Error(err)
	}
}

func replaceLine(path, name string, line map[string]any) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var lines [][]byte
	for other := range bytes.Lines(old) {
		var entry struct{ Bench string }
		if json.Unmarshal(other, &entry) == nil && entry.Bench != name {
			lines = append(lines, bytes.TrimSpace(other))
		}
	}
	raw, err := json.Marshal(line)
	if err != nil {
		return err
	}
	lines = append(lines, raw)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(bytes.Join(lines, []byte("\n")), '\n'), 0o644)
}
