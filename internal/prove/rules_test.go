//prove:other

package prove

import (
	"regexp"
	"strings"
	"testing"
)

// numbered matches a line of a table of what must hold.
var numbered = regexp.MustCompile(`^\| \d+ \|`)

// The list above describes each rule of the checker.
//
// Each of the eleven things that must hold is a rule.
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
