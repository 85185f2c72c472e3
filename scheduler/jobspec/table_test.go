package jobspec

import (
	"flag"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/cron"
)

var update = flag.Bool("update", false, "write what is said of each schedule into the table")

const tableFile = "../../testdata/schedules.txt"

// TestTheTableOfRealSchedules reads schedules of public files. A change of the table needs a look at each line: what
// did the author of the schedule mean, and does the answer help?
func TestTheTableOfRealSchedules(t *testing.T) {
	t.Parallel()
	var written strings.Builder
	rows := 0
	for line := range strings.Lines(readTable(t)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "# ") {
			written.WriteString(line + "\n")
			continue
		}
		rows++
		dialect, text := cells(line)
		got := strings.Join(strings.Split(line, "\t")[:2], "\t") + "\t" + said(dialect, text)
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

func readTable(t *testing.T) string {
	table, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(table)
}

// cells returns the first two columns of a row: the system, and the schedule as it is written there.
func cells(row string) (dialect, text string) {
	columns := strings.SplitN(row, "\t", 3)
	return columns[0], strings.ReplaceAll(columns[min(1, len(columns)-1)], `\t`, "\t")
}

// tableRows yields the systems and schedules of the table, but for zones and durations.
func tableRows(t *testing.T) iter.Seq2[string, string] {
	table := readTable(t)
	return func(yield func(dialect, text string) bool) {
		for line := range strings.Lines(table) {
			dialect, text := cells(strings.TrimSuffix(line, "\n"))
			if line[0] != '#' && dialect != "zone" && dialect != "duration" && !yield(dialect, text) {
				return
			}
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
			return answer + "\t" + translated(s, dialect)
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

func translated(s Schedule, dialect string) string {
	ours, err := s.Translate(dialect)
	if err != nil {
		return refusal(err.Error())
	}
	return answered(ours)
}

// TestTheTranslationsOfTheTableFireAsTheirs compares the slots of each translation with those that its system
// documents.
func TestTheTranslationsOfTheTableFireAsTheirs(t *testing.T) {
	t.Parallel()
	compared := 0
	for dialect, text := range tableRows(t) {
		if !slices.Contains(cron.Dialects, dialect) {
			continue
		}
		ours, err := Schedule{Cron: text}.Translate(dialect)
		if err != nil || len(ours.Validate()) > 0 || ours.Kind() != KindCron {
			continue
		}
		sameSlots(t, dialect, theirExpression(text), ours.Cron)
		compared++
	}
	if compared < 150 {
		t.Errorf("%d translations compared, want 150", compared)
	}
}

// TestAProposalForTheTableKeepsItsMeaning looks at what is proposed in place of each schedule.
func TestAProposalForTheTableKeepsItsMeaning(t *testing.T) {
	t.Parallel()
	proposals := 0
	for dialect, text := range tableRows(t) {
		meant, ok := scheduleMeant(text, "")
		if _, err := cron.Parse(text); !ok || err == nil {
			continue
		}
		proposals++
		if problems := meant.Validate(); len(problems) > 0 {
			t.Errorf("%s %q became %+v: %v", dialect, text, meant, problems)
		}
		if strings.Trim(text, "0123456789 \t") == "" {
			t.Errorf("%s %q is made of digits, and became %+v", dialect, text, meant)
		}
		if !slices.Contains(cron.Dialects, dialect) {
			continue
		}
		theirs, err := Schedule{Cron: text}.Translate(dialect)
		if err != nil {
			continue
		}
		if theirs.Kind() == KindCron && meant.Kind() == KindCron {
			a, b := cron.MustParse(theirs.Cron), cron.MustParse(meant.Cron)
			if a.Canonical() != b.Canonical() || theirs.Timezone != meant.Timezone {
				t.Errorf("%s %q became %+v, want %+v", dialect, text, meant, theirs)
			}
		} else if theirs != meant {
			t.Errorf("%s %q became %+v, want %+v", dialect, text, meant, theirs)
		}
	}
	if proposals < 200 {
		t.Errorf("%d proposals, want 200", proposals)
	}
}
