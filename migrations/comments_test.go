package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

// ours selects the tables and views of the schema, without goose's own and without partitions, which are like their
// parents.
const ours = `c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p', 'v')
	AND c.relname NOT LIKE 'goose%' AND NOT c.relispartition`

// texts returns the values of a query for any number of rows with one column.
func texts(t *testing.T, conn *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func TestSchemaExplainsItself(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.DSN(t))
	if n := len(texts(t, conn, `SELECT relname::text FROM pg_class c WHERE `+ours)); n < 15 {
		t.Fatalf("only %d tables and views were looked at", n)
	}
	for what, sql := range map[string]string{
		"table or view without a comment": `
			SELECT relname::text
			FROM pg_class c
			WHERE ` + ours + ` AND obj_description(c.oid, 'pg_class') IS NULL`,
		"column without a comment": `
			SELECT c.relname || '.' || a.attname
			FROM pg_class c
			JOIN pg_attribute a ON a.attrelid = c.oid
			WHERE ` + ours + ` AND a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL`,
		"function without a comment": `
			SELECT proname::text
			FROM pg_proc
			WHERE pronamespace = 'punctual'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL`,
		// Postgres' own names begin with the table's and end in _check or _check1.
		"check constraint without a name of its own": `
			SELECT c.relname || ': ' || k.conname
			FROM pg_constraint k
			JOIN pg_class c ON c.oid = k.conrelid
			WHERE ` + ours + ` AND k.contype = 'c' AND (k.conname LIKE c.relname || '%' AND k.conname ~ '_check[0-9]*$')`,
	} {
		if found := texts(t, conn, sql); len(found) > 0 {
			t.Errorf("%s: %s", what, strings.Join(found, ", "))
		}
	}
}

func TestCommentsAreSentences(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.DSN(t))
	for _, comment := range texts(t, conn, `
		SELECT d.description
		FROM pg_description d
		JOIN pg_class c ON c.oid = d.objoid AND d.classoid = 'pg_class'::regclass
		WHERE `+ours) {
		if len(comment) < 7 || !strings.HasSuffix(comment, ".") {
			t.Errorf("no sentence: %q", comment)
		}
	}
}
