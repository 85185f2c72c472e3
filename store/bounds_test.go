package store

import (
	"os"
	"strings"
	"testing"
)

// docs/operations.md must say of every table what keeps it from growing.
func TestEveryTableHasABound(t *testing.T) {
	c := newCRUD(t)
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Retention")
	section, _, _ = strings.Cut(section, "\n## ")
	tables := column[string](c, `SELECT relname
		FROM pg_class
		WHERE relnamespace = 'punctual'::regnamespace AND relkind IN ('r', 'p')
			AND NOT relispartition
			AND relname !~ '^goose'`)
	for _, table := range tables {
		if !strings.Contains(section, "`"+table+"`") {
			t.Errorf("docs/operations.md does not say what bounds %s", table)
		}
	}
	if len(tables) < 20 {
		t.Errorf("there are %d tables", len(tables))
	}
}
