package pg

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

func TestRowsAreGivenAsTheirColumnsSay(t *testing.T) {
	t.Parallel()
	type row struct {
		ID   int64
		Note *string
	}
	columns := Columns[row]{
		Col("id", "bigint", func(r row) int64 { return r.ID }),
		Col("note", "text", func(r row) *string { return r.Note }),
	}
	db := open(t, pgtest.DSN(t), false)
	rows := []row{{1, new("one")}, {2, nil}}
	got, err := All(t.Context(), db.Callers, pgx.RowToStructByPos[row],
		`SELECT u.id, u.note FROM `+columns.Unnest("u")+` ORDER BY u.id`, columns.Args(rows)...)
	must(t, err)
	if diff := cmp.Diff(rows, got); diff != "" {
		t.Error(diff)
	}
}
