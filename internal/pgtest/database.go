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

// DSN returns a fresh, migrated database on the shared server. At the end of the test the database is dropped, even if
// connections to it are open. If the test failed, the database is kept until the process ends.
func DSN(t testing.TB) string {
	t.Helper()
	return Database(t, Server(t))
}

// EmptyDSN is DSN for a database without any schema.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	return create(t, Server(t), pgtestdb.NoopMigrator{})
}

// Database returns a fresh, migrated database on a server that is the test's own. The connection goes over the Unix
// socket. Its role owns the database and may create roles, but is not a superuser, as production needs.
func Database(t testing.TB, server *privatepg.Server) string {
	t.Helper()
	return create(t, server, migrator{})
}

// Doomed is Database for a server that will be gone before the test ends: it drops nothing.
func Doomed(t testing.TB, server *privatepg.Server) string {
	t.Helper()
	const name = "doomed"
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatalf("make a database: %v", err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{
		`CREATE ROLE ` + name + ` LOGIN CREATEROLE PASSWORD 'test'`,
		`CREATE DATABASE ` + name + ` OWNER ` + name,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("make a database: %s: %v", sql, err)
		}
	}
	u := parse(t, server.DSN(name))
	u.User = url.UserPassword(name, "test") // needed over TCP only
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
			Password:     "test", // needed over TCP only
			Capabilities: "NOSUPERUSER NOCREATEDB CREATEROLE",
		},
		ForceTerminateConnections: true,
	}, m)
	return config.URL()
}

// roleOn names the test role of a server. pgtestdb keeps one list of existing roles and templates per process, for all
// servers together. So each server needs a role, and with it templates, of its own.
func roleOn(server *privatepg.Server) string {
	sum := sha256.Sum256([]byte(server.Dir()))
	return "test_" + hex.EncodeToString(sum[:4])
}

// migrator fills pgtestdb's template with the embedded migrations.
type migrator struct{}

// Hash names the template. It covers the migrations' names and contents.
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

// Migrate applies the migrations to the template.
func (migrator) Migrate(ctx context.Context, _ *sql.DB, config pgtestdb.Config) error {
	_, err := migrations.Up(ctx, config.URL())
	return err
}
