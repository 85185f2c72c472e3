package prove

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// numbered matches a line of a table of promises.
var numbered = regexp.MustCompile(`^\| \d+ \|`)

// Every promise in docs/guarantees.md links to tests that exist.
func TestEveryLineOfTheGuaranteeNamesItsTests(t *testing.T) {
	if n := linked(t, "docs/guarantees.md", numbered.MatchString); n != 7 {
		t.Errorf("%d lines, want 7", n)
	}
}

// Every fault in the README of this package does so too.
func TestEveryFaultNamesItsTests(t *testing.T) {
	if n := linked(t, "internal/prove/README.md", func(line string) bool {
		// Not the table of figures.
		return strings.HasPrefix(line, "| ") && strings.Count(line, "|") == 4 && !strings.HasPrefix(line, "| fault |") &&
			!strings.HasPrefix(line, "| | ") && !numbered.MatchString(line) // nor the tables of rules
	}); n < 30 {
		t.Errorf("%d faults", n)
	}
}

var testLink = regexp.MustCompile(`\[(\w+(?:\.go)?)\]\(((?:\.\./)*[\w/.]+\.go)\)`)

// linked checks the links to tests in the chosen lines of a page, and returns the number of these lines.
func linked(t *testing.T, page string, chosen func(line string) bool) (lines int) {
	t.Helper()
	text := readFile(t, filepath.Join("../..", page))
	for line := range strings.Lines(text) {
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
			if err != nil ||
				strings.HasPrefix(l[1], "Test") && !strings.Contains(string(source), "func "+l[1]+"(t *testing.T)") {
				t.Errorf("%s is not in %s", l[1], l[2])
			}
		}
	}
	return lines
}

// The README of this package describes every rule of the checker. Each of the eleven things that must hold is a rule.
func TestEveryRuleIsDocumented(t *testing.T) {
	t.Parallel()
	page := readFile(t, "README.md")
	name := regexp.MustCompile("`([A-Z]\\w+)`")
	known, told, promises := rules(t), map[string]bool{}, 0
	for line := range strings.Lines(page) {
		found := name.FindAllStringSubmatch(line, -1)
		for _, m := range found {
			told[m[1]] = true
		}
		if !numbered.MatchString(line) {
			continue
		}
		promises++
		if len(found) == 0 {
			t.Errorf("no rule: %s", line)
		}
		for _, m := range found {
			if _, ok := known[m[1]]; !ok {
				t.Errorf("there is no rule %s: %s", m[1], line)
			}
		}
	}
	if promises != 11 {
		t.Errorf("%d things must hold, want 11", promises)
	}
	for name := range known {
		if !told[name] {
			t.Errorf("README.md does not tell of %s", name)
		}
	}
}

// rules returns the constants of Rule by name.
func rules(t *testing.T) map[string]Rule {
	t.Helper()
	source := readFile(t, "checker.go")
	all := map[string]Rule{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+) +Rule = "(.*)"$`).FindAllStringSubmatch(source, -1) {
		all[m[1]] = Rule(m[2])
	}
	if len(all) < 11 {
		t.Fatalf("%d rules", len(all))
	}
	return all
}
