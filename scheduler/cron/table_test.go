package cron

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const tables = "../../testdata/cron/"

// rows reads a table of columns separated by " | ". Blank lines and lines that start with # are comments.
func rows(tb testing.TB, name string, columns int) (rows [][]string) {
	tb.Helper()
	text, err := os.ReadFile(tables + name)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		row := strings.Split(line, " | ")
		if len(row) != columns {
			tb.Fatalf("%s: %q has %d columns, want %d", name, line, len(row), columns)
		}
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	return rows
}

func TestSlots(t *testing.T) {
	for _, row := range rows(t, "slots.txt", 4) {
		zoneName, expr, after, slots := row[0], row[1], row[2], strings.Split(row[3], ", ")
		t.Run(zoneName+" "+expr+" after "+after, func(t *testing.T) {
			zone := mustZone(t, zoneName)
			e, err := Parse(expr)
			if err != nil {
				t.Fatal(err)
			}
			at := parseTime(t, after)
			for _, want := range slots {
				slot, ok := e.Next(at, zone)
				if !ok {
					t.Fatalf("Next(%s) = never, want %s", at.In(zone).Format(time.RFC3339), want)
				}
				got := slot.At.In(zone).Format(time.RFC3339)
				if strings.HasSuffix(strings.Fields(want)[0], "Z") {
					got = slot.At.Format(time.RFC3339)
				}
				if kind := []string{"", " moved", " merged", " repeated"}[slot.Note.Kind]; got+kind != want {
					t.Fatalf("Next(%s) = %s%s, want %s", at.In(zone).Format(time.RFC3339), got, kind, want)
				}
				if back, ok := e.Prev(slot.At, zone); !ok || back != slot {
					t.Fatalf("Prev(%s) = %+v, want the same slot", got, back)
				}
				if back, ok := e.Prev(slot.At.Add(-time.Second), zone); ok && back.At.After(at) {
					t.Fatalf("Prev of just before %s = %s: Next passed over it", got, back.At)
				}
				at = slot.At
			}
		})
	}
}

func TestBadExpressionsNameTheField(t *testing.T) {
	for _, row := range rows(t, "bad.txt", 3) {
		expr, fields, reason := row[0], strings.Split(row[1], ", "), row[2]
		t.Run(expr, func(t *testing.T) {
			e, err := Parse(expr)
			if err == nil {
				t.Fatalf("accepted, as %q", e.text)
			}
			if diff := cmp.Diff(fields, badFields(t, err)); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if !strings.Contains(err.Error(), reason) {
				t.Errorf("got  %s\nwant %s", err, reason)
			}
		})
	}
}

func TestBadBytesAreRefusedAtOnce(t *testing.T) {
	for name, expr := range map[string]string{
		"nothing":            "",
		"only spaces":        "    ",
		"a letter of Europe": "0 0 * * mön",
		"a wide digit":       "０ 0 * * *",
		"a no-break space":   "0 0\u00a0* * *",
		"a line break":       "0 0 * *\n*",
		"a zero byte":        "0 0 * * \x00",
		"not even UTF-8":     "\xff\xfe * * * *",
		"10 kB of list":      strings.Repeat("1,", 5000) + "1 * * * *",
		"10 kB of spaces":    "*" + strings.Repeat(" ", 10_000) + "* * * *",
		"257 bytes":          "* * * * " + strings.Repeat("1,", 124) + "1",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(expr)
			if err == nil {
				t.Fatal("accepted")
			}
			if got := badFields(t, err); !slices.Equal(got, []string{"expression"}) {
				t.Errorf("fields %q, want the expression as a whole", got)
			}
			if len(err.Error()) > 250 {
				t.Errorf("the message is %d bytes long", len(err.Error()))
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("the message is not printable ASCII: %q", err)
			}
		})
	}
	if _, err := Parse("* * * * " + strings.Repeat("1,", 123) + "1 "); err != nil {
		t.Errorf("256 bytes: %v", err)
	}
}

// badFields returns the fields that an error of Parse names. Each is in a SyntaxError.
func badFields(t *testing.T, err error) (fields []string) {
	t.Helper()
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Fatalf("%T is no SyntaxError: %v", err, err)
		}
		fields = append(fields, syntax.Field)
	}
	return fields
}
