package pgtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver that pgtestdb uses
	"github.com/peterldowns/pgtestdb"

	"punctual/internal/privatepg"
	"punctual/migrations"
)

// DSN returns a fresh, migrated database on the shared server. It is dropped
// at the end of the test, with whatever connections are left to it, but kept
// until the process ends if the test fails.
func DSN(t testing.TB) string {
	t.Helper()
	return Database(t, Server(t))
}

// EmptyDSN is DSN for a database without any schema.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	return create(t, Server(t), pgtestdb.NoopMigrator{})
}

// Database returns a fresh, migrated database on a server of the test's own.
// The connection goes over the Unix socket, as a role that owns the database
// and may create roles but is not a superuser: what production needs.
func Database(t testing.TB, server *privatepg.Server) string {
	t.Helper()
	return create(t, server, migrator{})
}

// Doomed is Database on a server that will not be there any more when the test ends: nothing is dropped.
func Doomed(t testing.TB, server *privatepg.Server) string {
	t.Helper()
	const name = "doomed"
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatalf("make a database: %v", err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{`CREATE ROLE ` + name + ` LOGIN CREATEROLE PASSWORD 'test'`, `CREATE DATABASE ` + name + ` OWNER ` + name} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("make a database: %s: %v", sql, err)
		}
	}
	u := parse(t, server.DSN(name))
	u.User = url.UserPassword(name, "test") // asked for over TCP only
	if _, err := migrations.Up(t.Context(), u.String()); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	return u.String()
}

func create(t testing.TB, server *privatepg.Server, m pgtestdb.Migrator) string {
	t.Helper()
	socket, port := server.Socket()
	config := pgtestdb.Custom(t, pgtestdb.Config{
		DriverName: "pgx",
		Port:       strconv.Itoa(port),
		User:       privatepg.Superuser,
		Database:   "postgres",
		Options:    url.Values{"host": {socket}, "sslmode": {"disable"}}.Encode(),
		TestRole: &pgtestdb.Role{
			Username:     roleOn(server),
			Password:     "test", // asked for over TCP only
			Capabilities: "NOSUPERUSER NOCREATEDB CREATEROLE",
		},
		ForceTerminateConnections: true,
	}, m)
	return config.URL()
}

// roleOn names the test role of a server. pgtestdb remembers for the whole
// process which roles and templates there are, for all servers alike, so each
// server must have a role, and by it templates, of its own.
func roleOn(server *privatepg.Server) string {
	sum := sha256.Sum256([]byte(server.Dir()))
	return "test_" + hex.EncodeToString(sum[:4])
}

// migrator makes pgtestdb's template by the embedded migrations.
type migrator struct{}

// Hash names the template: it covers the migrations' names and contents.
func (migrator) Hash() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(migrations.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.FS, path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the migrations: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Migrate makes the template.
func (migrator) Migrate(ctx context.Context, _ *sql.DB, config pgtestdb.Config) error {
	_, err := migrations.Up(ctx, config.URL())
	return err
}
