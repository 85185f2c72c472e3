package docs

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

var tableRow = regexp.MustCompile(`(?m)^\|.*$`)

// A page answers one question of one reader. The words of its text, without code, tables and the links to its
// neighbors, may not outgrow that.
func TestPagesStayShort(t *testing.T) {
	t.Parallel()
	for pattern, most := range map[string]int{
		"production.md": 900, "runbooks.md": 1910, "repair.md": 1000, "notices.md": 900, "export.md": 1050, "recipes.md": 900, "guarantees.md": 1200,
		"quickstart.md": 500, "sql-transactions.md": 560, "concepts.md": 700, "schedules.md": 1100, "receiving.md": 1200, "migrate.md": 900,
		"compare.md": 400, "faq.md": 400, "upgrading.md": 450, "performance.md": 900, "security/*.md": 650, "internals/*.md": 800,
	} {
		pages, err := fs.Glob(os.DirFS(Root), "docs/"+pattern)
		must(t, err)
		if len(pages) == 0 {
			t.Errorf("there is no docs/%s", pattern)
		}
		for _, page := range pages {
			if n := len(strings.Fields(tableRow.ReplaceAllString(neighbor.ReplaceAllString(withoutCode(t, page), ""), ""))); n > most {
				t.Errorf("%s has %d words: %d are enough", page, n, most)
			}
		}
	}
}
