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
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\[(Test\w+)\]\(([\w/.]+)\)`)
	lines := 0
	for line := range strings.Lines(string(readme)) {
		if !regexp.MustCompile(`^\| \d+ \|`).MatchString(line) {
			continue
		}
		lines++
		links := link.FindAllStringSubmatch(line, -1)
		if len(links) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, l := range links {
			source, err := os.ReadFile(filepath.Join("../..", l[2]))
			if err != nil || !strings.Contains(string(source), "func "+l[1]+"(t *testing.T)") {
				t.Errorf("%s is not in %s", l[1], l[2])
			}
		}
	}
	if lines != 7 {
		t.Errorf("%d lines, want 7", lines)
	}
}

// So does every fault in docs/reliability.md.
func TestEveryFaultNamesItsTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\[(\w+(?:\.go)?)\]\(\.\./([\w/.]+)\)`)
	faults := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| fault |") {
			continue
		}
		faults++
		links := link.FindAllStringSubmatch(line, -1)
		if len(links) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, l := range links {
			source, err := os.ReadFile(filepath.Join("../..", l[2]))
			if err != nil || strings.HasPrefix(l[1], "Test") && !strings.Contains(string(source), "func "+l[1]+"(t *testing.T)") {
				t.Errorf("%s is not in %s", l[1], l[2])
			}
		}
	}
	if faults < 30 {
		t.Errorf("%d faults", faults)
	}
}
