package command

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"punctual/internal/pgtest"
)

func TestDurationsInJSONAreSeconds(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{ReplaceAttr: inSeconds}))
	log.Info("m", "took", 1500*time.Millisecond, slog.Group("g", "wait", time.Minute), "count", 3)
	var line struct {
		Took  *float64 `json:"took_s"`
		Count int
		G     struct {
			Wait float64 `json:"wait_s"`
		}
	}
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line.Took == nil || *line.Took != 1.5 || line.G.Wait != 60 ||
		line.Count != 3 || strings.Contains(b.String(), `"took"`) {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestTheLogIsForMachinesOrForPeople(t *testing.T) {
	drives(t)
	t.Parallel()
	for format, want := range map[string]func(string) bool{
		"json": func(line string) bool {
			var entry struct {
				Took *float64 `json:"took_s"`
			}
			return json.Unmarshal([]byte(line), &entry) == nil && entry.Took != nil && *entry.Took < patience.Seconds()
		},
		"text": func(line string) bool { return strings.Contains(line, "took=") && !strings.Contains(line, "took_s") },
	} {
		code, _, notes := apart(t, []string{"DATABASE_URL=" + pgtest.EmptyDSN(t)}, "migrate", "--log-format="+format)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, notes)
		}
		seen := 0
		for line := range strings.Lines(notes) {
			if strings.Contains(line, "took") {
				seen++
				if !want(line) {
					t.Errorf("%s: %s", format, line)
				}
			}
		}
		if seen == 0 {
			t.Errorf("%s: no line has a duration:\n%s", format, notes)
		}
	}
}
