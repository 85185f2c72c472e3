package migrations_test

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"punctual/internal/pgtest"
	"punctual/migrations"
)

func TestEveryMigrationCanBeUndoneAndDoneAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	if _, err := migrations.Up(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", dsn+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	provider, err := goose.NewProvider(database.DialectPostgres, db, migrations.FS,
		goose.WithTableName("punctual.goose_db_version"))
	if err != nil {
		t.Fatal(err)
	}
	for version := migrations.Latest() - 1; version >= 0; version-- {
		if _, err := provider.DownTo(t.Context(), version); err != nil {
			t.Fatalf("down to %d: %v", version, err)
		}
		if _, err := migrations.Up(t.Context(), dsn); err != nil {
			t.Fatalf("up again from %d: %v", version, err)
		}
	}
}
