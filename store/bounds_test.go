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
	rows, err := c.db.Pool().Query(t.Context(), `SELECT relname::text
		FROM pg_class
		WHERE relnamespace = 'punctual'::regnamespace AND relkind IN ('r', 'p')
			AND NOT relispartition
			AND relname !~ '^goose'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		if n++; !strings.Contains(section, "`"+table+"`") {
			t.Errorf("docs/operations.md does not say what bounds %s", table)
		}
	}
	if n < 20 {
		t.Errorf("there are %d tables", n)
	}
}
