package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// numbered matches a line of a table of promises.
var numbered = regexp.MustCompile(`^\| \d+ \|`)

// Every promise in docs/guarantees.md links to tests that exist. One of them runs in `make test`.
func TestEveryLineOfTheGuaranteeNamesItsTests(t *testing.T) {
	t.Parallel()
	_, list, _ := strings.Cut(Read(t, "internal/prove/prove_test.go"), "var core = []string{")
	list, _, _ = strings.Cut(list, "}")
	core := regexp.MustCompile(`Test\w+`).FindAllString(list, -1)
	n := 0
	linked(t, "docs/guarantees.md", func(line string) bool {
		if strings.HasPrefix(line, "- Promise ") || strings.HasPrefix(line, "  [Test") { // further tests
			return true
		}
		if !numbered.MatchString(line) {
			return false
		}
		if n++; n > len(core) || !strings.Contains(line, "["+core[n-1]+"](../internal/prove/") {
			t.Errorf("promise %d does not name its test of %q", n, core)
		}
		return true
	})
	if n != 7 || len(core) != n {
		t.Errorf("%d promises, and %d tests of them, want 7", n, len(core))
	}
}

var testLink = regexp.MustCompile(`\[(\w+(?:\.go)?)\]\(((?:\.\./)*[\w/.]+\.go)\)`)

// linked checks the links to tests in the chosen lines of a page, and returns the number of these lines.
func linked(t *testing.T, page string, chosen func(line string) bool) (lines int) {
	t.Helper()
	text := Read(t, page)
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
			source, err := os.ReadFile(filepath.Join(Root, filepath.Dir(page), l[2]))
			if err != nil ||
				strings.HasPrefix(l[1], "Test") && !strings.Contains(string(source), "func "+l[1]+"(t *testing.T)") {
				t.Errorf("%s is not in %s", l[1], l[2])
			}
		}
	}
	return lines
}
