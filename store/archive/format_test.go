package archive

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

// Runs and attempts are archived by row. The columns of the others are named, and a new one must not be forgotten.
func TestArchivesHaveEachColumn(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for table, columns := range map[string][]string{
		"run_data": slices.Concat([]string{"run_id", "body"}, plainColumns, textColumns),
		"job_versions": {
			"job_id", "version", "valid_from", "state", "definition", "note", "tenant", "event", "rerun_at",
		},
	} {
		rows, _ := conn.Query(t.Context(), `SELECT attname::text FROM pg_attribute
			WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attname <> ALL($2)`,
			"punctual."+table, columns)
		if left, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(left) > 0 {
			t.Errorf("of %s archives lack %v (%v)", table, left, err)
		}
	}
}
