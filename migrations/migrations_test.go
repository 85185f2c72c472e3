package migrations_test

import (
	"context"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"punctual/internal/pgtest"
	"punctual/migrations"
	"punctual/store/session"
)

// nextRelease returns the migrations of this binary, and one more.
func nextRelease(t *testing.T) fs.FS {
	t.Helper()
	const name = "00001_initial.sql"
	initial, err := fs.ReadFile(migrations.FS, name)
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{name: {Data: initial}, "00002_next.sql": {Data: []byte(`-- +goose Up
		SET LOCAL lock_timeout = '500ms';
		ALTER TABLE punctual.operations ADD COLUMN of_next_release text;`)}}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgtest.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// read returns the value of a query for one row with one column.
func read[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Replicas at work hold locks. A migration gives up if it cannot get a lock soon, and tries again.
func TestAMigrationWaitsForItsLocksWithoutAQueue(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	if _, err := migrations.Up(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	conn, watcher := connect(t, dsn), connect(t, dsn)
	execute(t, conn, `BEGIN; LOCK TABLE punctual.operations IN ACCESS SHARE MODE`)
	migrated := make(chan error, 1)
	go func() {
		_, err := migrations.UpFrom(t.Context(), session.Database{URL: dsn}, nextRelease(t))
		migrated <- err
	}()
	const gaveUp = `SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()`
	before, now := read[int64](t, watcher, gaveUp), int64(0)
	for deadline := time.Now().Add(30 * time.Second); now <= before+1; {
		if err := watcher.QueryRow(t.Context(), `SELECT pg_stat_clear_snapshot(), (`+gaveUp+`)`).Scan(nil, &now); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the migration does not give up")
		}
	}
	execute(t, conn, `COMMIT`)
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
}

func TestEveryMigrationCanBeUndoneAndDoneAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	if _, err := migrations.Up(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	config, err := pgtest.Config(dsn + "&default_query_exec_mode=simple_protocol")
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
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
