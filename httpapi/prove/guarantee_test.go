package prove

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every line of the guarantee in the README links to tests, and they are there.
func TestEveryLineOfTheGuaranteeNamesItsTests(t *testing.T) {
	line := regexp.MustCompile(`^\| \d+ \|`)
	if n := linked(t, "README.md", line.MatchString); n != 7 {
		t.Errorf("%d lines, want 7", n)
	}
}

// So does every fault in docs/reliability.md.
func TestEveryFaultNamesItsTests(t *testing.T) {
	if n := linked(t, "docs/reliability.md", func(line string) bool {
		return strings.HasPrefix(line, "| ") && strings.Count(line, "|") == 4 && !strings.HasPrefix(line, "| fault |") // not of the figures
	}); n < 30 {
		t.Errorf("%d faults", n)
	}
}

var testLink = regexp.MustCompile(`\[(\w+(?:\.go)?)\]\(((?:\.\./)?[\w/.]+\.go)\)`)

// linked checks the links to tests in some lines of a page, and returns how many such lines there are.
func linked(t *testing.T, page string, chosen func(line string) bool) (lines int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !chosen(line) {
			continue
		}
		lines++
		links := testLink.FindAllStringSubmatch(line, -1)
		if len(links) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, l := range links {
			source, err := os.ReadFile(filepath.Join("../..", filepath.Dir(page), l[2]))
			if err != nil || strings.HasPrefix(l[1], "Test") && !strings.Contains(string(source), "func "+l[1]+"(t *testing.T)") {
				t.Errorf("%s is not in %s", l[1], l[2])
			}
		}
	}
	return lines
}
