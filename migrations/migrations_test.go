package migrations_test

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/migrations"
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
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	execute(t, conn, `BEGIN; LOCK TABLE punctual.operations IN ACCESS SHARE MODE`)
	migrated := make(chan error, 1)
	go func() {
		_, err := migrations.UpFrom(t.Context(), dsn, nextRelease(t))
		migrated <- err
	}()
	watcher, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close(t.Context())
	const gaveUp = `SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()`
	var before, now int64
	if err := watcher.QueryRow(t.Context(), gaveUp).Scan(&before); err != nil {
		t.Fatal(err)
	}
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
