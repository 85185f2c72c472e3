// Package migrations holds the database schema as goose SQL files, and applies them.
//
// Until the first release there is one migration. After that, migrations only expand: schema N serves binaries N-1 and
// N. So an upgrade migrates first and then replaces the replicas. What a release no longer needs is dropped one release
// later.
//
// A migration runs while replicas work. It begins with SET LOCAL lock_timeout = '500ms', and no other limit. If a lock
// is not free soon, the migration gives up before it deadlocks with a claim or makes others queue behind it, and Up
// tries it again. A migration that changes runs, attempts or run_data must also change the detached partitions, those
// whose removal has begun: they may be attached again.
package migrations

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"punctual/store/session"
)

// FS holds the migrations, numbered from 00001.
//
//go:embed *.sql
var FS embed.FS

const (
	versionTable = "punctual.goose_db_version"
	lockTable    = "punctual.goose_lock"
)

// Applied is a migration that Up has just applied.
type Applied struct {
	Version  int64
	Source   string
	Duration time.Duration
}

// Latest returns the newest schema version that this binary knows, which is the one it needs to serve.
func Latest() int64 {
	var latest int64
	names, _ := fs.Glob(FS, "*.sql") // the pattern is constant and valid
	for _, name := range names {
		if version, err := goose.NumericComponent(name); err == nil {
			latest = max(latest, version)
		}
	}
	return latest
}

// Edition identifies the first migration. Until the first release its file is edited in place, so a database of another
// edition cannot be migrated.
func Edition() string {
	text, _ := fs.ReadFile(FS, "00001_initial.sql") // it is embedded
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:4])
}

// Up brings the database of a URL to Latest: see UpOn.
func Up(ctx context.Context, url string) ([]Applied, error) {
	return UpOn(ctx, session.Database{URL: url})
}

// UpOn brings a database to Latest and returns what it applied, oldest first. Any number of processes may call it at
// once, also through a PgBouncer in transaction mode: a lock row in the schema, rather than a session lock, lets one of
// them work while the others wait.
func UpOn(ctx context.Context, d session.Database) ([]Applied, error) { return up(ctx, d, FS) }

func up(ctx context.Context, d session.Database, files fs.FS) ([]Applied, error) {
	config, err := d.Config()
	if err != nil {
		return nil, err
	}
	// A migration has several statements in one string, which only the simple protocol accepts.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	if params := config.ConnConfig.RuntimeParams; params["application_name"] == session.Name {
		params["application_name"] = session.Name + " migrate" // not to be taken for a replica
	}
	options := []stdlib.OptionOpenDB{stdlib.OptionAfterConnect(config.AfterConnect)}
	if config.BeforeConnect != nil {
		options = append(options, stdlib.OptionBeforeConnect(config.BeforeConnect))
	}
	db := stdlib.OpenDB(*config.ConnConfig, options...)
	defer db.Close()

	if err := createSchema(ctx, db); err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresTableLocker(lock.WithTableName(lockTable),
		lock.WithTableLeaseDuration(10*time.Second), lock.WithTableHeartbeatInterval(2*time.Second),
		lock.WithTableLockTimeout(500*time.Millisecond, 600))
	if err != nil {
		return nil, fmt.Errorf("preparing the migration lock: %w", err)
	}
	provider, err := goose.NewProvider(database.DialectPostgres, db, files, goose.WithTableName(versionTable),
		goose.WithLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("reading the migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	for deadline := time.Now().Add(patience); lockNotToBeHad(err) && time.Now().Before(deadline); {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
		var more []*goose.MigrationResult
		more, err = provider.Up(ctx)
		results = append(results, more...)
	}
	applied := make([]Applied, 0, len(results))
	for _, r := range results {
		applied = append(applied, Applied{Version: r.Source.Version, Source: r.Source.Path, Duration: r.Duration})
	}
	if err != nil {
		return applied, fmt.Errorf("migrating the schema: %w", err)
	}
	if _, err := db.ExecContext(ctx, guard); err != nil {
		return applied, fmt.Errorf("renewing the functions of grants, and who may call functions: %w", err)
	}
	return applied, nil
}

// guard makes the functions of all grants anew, and takes from PUBLIC the functions that a migration has added.
// Postgres cannot do that by default for one schema: default privileges of a schema only add to those of the database.
const guard = `
DO $$ BEGIN
    IF to_regprocedure('punctual.renew_grants()') IS NOT NULL THEN
        PERFORM punctual.renew_grants();
        PERFORM punctual.guard_functions();
    END IF;
END $$`

// patience is how long Up keeps trying a migration that cannot get its locks while replicas work.
const patience = 2 * time.Minute

// lockNotToBeHad reports whether a migration gave up waiting for a lock or was the victim of a deadlock. Either way
// nothing of it was applied.
func lockNotToBeHad(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01")
}

// createSchema creates the schema in which goose's own tables live, unless it exists: Postgres refuses IF NOT EXISTS to
// a role that may create no schema. When two processes create it at once, one fails on a unique index of the catalogue.
// By then the schema exists, so that failure is ignored.
func createSchema(ctx context.Context, db *sql.DB) error {
	var exists bool
	err := db.QueryRowContext(ctx, `SELECT to_regnamespace('punctual') IS NOT NULL`).Scan(&exists)
	if err == nil && !exists {
		_, err = db.ExecContext(ctx, `CREATE SCHEMA punctual`)
	}
	failed, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil, failed != nil && (failed.Code == "23505" || failed.Code == "42P06"):
		return nil
	case failed != nil && failed.Code == "42501":
		return lacksCreate(ctx, db, err)
	}
	return fmt.Errorf("creating schema punctual: %w", err)
}

// lacksCreate adds to an error which statements let the role create the schema.
func lacksCreate(ctx context.Context, db *sql.DB, denied error) error {
	var grant, schema string
	if err := db.QueryRowContext(ctx, `
		SELECT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), current_user),
		       format('CREATE SCHEMA punctual AUTHORIZATION %I', current_user)`).Scan(&grant, &schema); err != nil {
		return fmt.Errorf("creating schema punctual: %w", denied)
	}
	return fmt.Errorf("the role may not create the schema punctual: let the owner of the database run `%s`, or a "+
		"superuser `%s`: %w", grant, schema, denied)
}

// Querier is the part of a connection or pool that Current needs.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Current returns the schema version of a database; 0 if Punctual was never installed there.
func Current(ctx context.Context, db Querier) (int64, error) {
	var exists bool
	if err := db.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, versionTable).Scan(&exists); err != nil {
		return 0, fmt.Errorf("looking for the schema: %w", err)
	}
	if !exists {
		return 0, nil
	}
	var version int64
	err := db.QueryRow(ctx,
		`SELECT coalesce(max(version_id) FILTER (WHERE is_applied), 0) FROM `+versionTable).Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("reading the schema version: %w", err)
	}
	return version, nil
}
