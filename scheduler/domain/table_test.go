package domain

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/cron"
)

var update = flag.Bool("update", false, "write what is said of each schedule into the table")

const tableFile = "../../testdata/schedules.txt"

// TestTheTableOfRealSchedules reads schedules of public files. A change of the table needs a look at each line: what did
// the author of the schedule mean, and does the answer help?
func TestTheTableOfRealSchedules(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	var written strings.Builder
	rows := 0
	for line := range strings.Lines(string(table)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "# ") {
			written.WriteString(line + "\n")
			continue
		}
		rows++
		columns := strings.Split(line, "\t")
		if len(columns) < 2 {
			t.Fatalf("%q has no columns", line)
		}
		got := strings.Join(columns[:2], "\t") + "\t" + said(columns[0], strings.ReplaceAll(columns[1], `\t`, "\t"))
		if got != line && !*update {
			t.Errorf("\n got %s\nwant %s", got, line)
		}
		written.WriteString(got + "\n")
	}
	if rows < 1000 {
		t.Errorf("%d schedules, want 1,000", rows)
	}
	if *update {
		if err := os.WriteFile(tableFile, []byte(written.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// said returns the columns of a row after the first two: is, with the words; use, with what is proposed; or no, with
// the reason. The schedules of a dialect that is translated have a column more.
func said(dialect, text string) string {
	switch dialect {
	case "zone":
		if _, err := cron.LoadZone(text); err != nil {
			return "no\t" + err.Error()
		}
		return "is\t" + text
	case "duration":
		if d, err := time.ParseDuration(text); err == nil {
			return "is\t" + Short(d)
		}
		return refusal(NotADuration(text))
	}
	s := Schedule{Cron: text}
	answer := answered(s)
	for _, known := range cron.Dialects {
		if dialect == known {
			ours, err := s.Translate(dialect)
			if err != nil {
				return answer + "\t" + refusal(err.Error())
			}
			return answer + "\t" + answered(ours)
		}
	}
	return answer
}

// answered returns the words of a schedule and its warnings, or what is wrong with it.
func answered(s Schedule) string {
	var problems []string
	for _, p := range s.Validate() {
		problems = append(problems, p.Message)
	}
	switch {
	case len(problems) > 0:
		return refusal(strings.Join(problems, " | "))
	case s.Kind() == KindEvery:
		return "is\tevery " + Short(s.Every.Value())
	case s.Kind() != KindCron:
		return "is\t" + s.Instant().Format(time.RFC3339)
	}
	words, err := cron.Words(s.Cron)
	warnings, failed := cron.Warnings(s.Cron, "Europe/Berlin")
	if err != nil || failed != nil {
		return "no\tits words or warnings cannot be told"
	}
	for _, warning := range warnings {
		words += " (" + warning + ")"
	}
	return "is\t" + words
}

func refusal(message string) string {
	message = strings.ReplaceAll(message, "\n", " | ") // an error for each field
	if strings.Contains(message, "; use {") || strings.Contains(message, `; use "`) {
		return "use\t" + message
	}
	return "no\t" + message
}
