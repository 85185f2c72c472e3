package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink   = regexp.MustCompile(`\]\(([^)\s#]*)(?:#([^)\s]+))?\)`)
	fence      = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	heading    = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notInNames = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every link of the pages leads to a file or a directory that exists, and to a heading of the page that it names.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	all := Pages(t)
	readmes, err := fs.Glob(os.DirFS(Root), "testdata/*/README.md")
	must(t, err)
	all = append(append(all, readmes...), "internal/prove/README.md")
	links := 0
	for _, page := range all {
		for _, link := range pageLink.FindAllStringSubmatch(withoutCode(t, page), -1) {
			to, name := link[1], link[2]
			if strings.Contains(to, ":") { // an address elsewhere
				continue
			}
			links++
			target := page
			if to != "" {
				target = filepath.Join(filepath.Dir(page), to)
			}
			if _, err := os.Stat(filepath.Join(Root, target)); err != nil {
				t.Errorf("%s: %s: %v", page, link[0], err)
				continue
			}
			if name != "" && strings.HasSuffix(target, ".md") && !headings(t, target)[name] {
				t.Errorf("%s: %s: there is no such heading", page, link[0])
			}
		}
	}
	if len(all) < 10 || links < 100 {
		t.Errorf("%d links in %d pages", links, len(all))
	}
}

// headings returns the names by which links lead to the headings of a page.
func headings(t *testing.T, page string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(withoutCode(t, page), -1) {
		name := notInNames.ReplaceAllString(strings.ToLower(h[1]), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}

// withoutCode returns the text of a page with empty lines in place of its blocks of code.
func withoutCode(t *testing.T, page string) string {
	t.Helper()
	return fence.ReplaceAllStringFunc(Read(t, page), func(block string) string {
		return strings.Repeat("\n", strings.Count(block, "\n"))
	})
}
