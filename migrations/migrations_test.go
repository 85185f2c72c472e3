package migrations_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"punctual/internal/pgtest"
	"punctual/migrations"
)

// at brings an empty database to a version.
func at(t *testing.T, dsn string, version int64) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	db := stdlib.OpenDB(*config)
	defer db.Close()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, conn, `CREATE SCHEMA punctual`)
	provider, err := goose.NewProvider(database.DialectPostgres, db, migrations.FS, goose.WithTableName("punctual.goose_db_version"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// A day whose removal has begun is detached while the schema changes, and attached again after that.
func TestADetachedDayIsMigratedToo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	conn := at(t, dsn, 1)
	defer conn.Close(t.Context())
	execute(t, conn, `DO $$
		DECLARE day text := to_char((now() AT TIME ZONE 'UTC')::date - 1, '_YYYYMMDD'); parent text;
		BEGIN
		    FOREACH parent IN ARRAY ARRAY['runs', 'attempts', 'run_data'] LOOP
		        EXECUTE format('ALTER TABLE punctual.%I DETACH PARTITION punctual.%I', parent, parent || day);
		    END LOOP;
		END $$`)
	if _, err := migrations.Up(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	var attached int
	if err := conn.QueryRow(t.Context(), `SELECT punctual.create_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date - 1)`).Scan(&attached); err != nil {
		t.Fatal(err)
	}
	if attached != 3 {
		t.Errorf("%d tables of the day were attached again, want 3", attached)
	}
}

// Replicas at work hold locks: a migration gives up one that is not to be had soon, and tries again.
func TestAMigrationWaitsForItsLocksWithoutAQueue(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	conn := at(t, dsn, 1)
	defer conn.Close(t.Context())
	execute(t, conn, `BEGIN; LOCK TABLE punctual.operations IN ACCESS SHARE MODE`)
	migrated := make(chan error, 1)
	go func() {
		_, err := migrations.Up(t.Context(), dsn)
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
