package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/privatepg"
	"punctual/migrations"
	"punctual/store/vault"
)

// DSN returns a migrated database on the shared server, as good as a fresh one. If the test fails, the database is kept
// until the process ends. Otherwise another test may get it, or it is dropped, even if connections to it are open.
func DSN(t testing.TB) string {
	t.Helper()
	server := Server(t)
	d := handedOn()
	if d.name == "" {
		d.name = next()
		clone(t, server, d.name)
	}
	handsOn(t, server, d)
	return shared.sessions.through(t, as(t, server, d.name))
}

// Clone is DSN for a test of plans, statistics or the sizes of tables: no other test has written to the database, and
// connections to it are new.
func Clone(t testing.TB) string {
	t.Helper()
	server, name := Server(t), next()
	clone(t, server, name)
	handsOn(t, server, handed{name: name})
	return as(t, server, name)
}

// clone creates a database as a copy of the migrated one.
func clone(t testing.TB, server *privatepg.Server, name string) {
	t.Helper()
	// Postgres copies files in half the time that it takes to copy page by page.
	create(t, server, name, "TEMPLATE "+migrated+" STRATEGY file_copy")
}

// EmptyDSN is DSN for a database without any schema.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	server := Server(t)
	return dropped(t, server, create(t, server, next(), ""))
}

// Database returns a fresh, migrated database on a server that is the test's own. The connection goes over the Unix
// socket. Its role owns the database and may create roles, but is not a superuser, as production needs.
func Database(t testing.TB, server *privatepg.Server) string {
	t.Helper()
	return dropped(t, server, Doomed(t, server))
}

// Doomed is Database for a server that will be gone before the test ends: it drops nothing.
func Doomed(t testing.TB, server *privatepg.Server) string {
	t.Helper()
	return migrate(t, server, create(t, server, next(), ""))
}

// prepare makes the migrated database on a server.
func prepare(t testing.TB, server *privatepg.Server) {
	t.Helper()
	migrate(t, server, create(t, server, migrated, ""))
	remember(t, server)
}

// owner is the role of tests, and migrated the database that those of DSN are copies of.
const owner, migrated = "test", "migrated"

var (
	owners    sync.Map // a *sync.Once for each server that has the owner, by its directory
	databases atomic.Int64
)

func next() string { return fmt.Sprint("test_", databases.Add(1)) }

// ownerOnce is done when a server has the role of tests.
func ownerOnce(server *privatepg.Server) *sync.Once {
	once, _ := owners.LoadOrStore(server.Dir(), new(sync.Once))
	return once.(*sync.Once)
}

// create creates a database and returns its DSN.
func create(t testing.TB, server *privatepg.Server, name, how string) string {
	t.Helper()
	ownerOnce(server).Do(func() {
		execute(t, server, "postgres", `CREATE ROLE `+owner+` LOGIN CREATEROLE PASSWORD 'test'`) // the password is for TCP
		settle(t, server)
	})
	execute(t, server, "postgres", `CREATE DATABASE `+name+` OWNER `+owner+` `+how)
	return as(t, server, name)
}

func migrate(t testing.TB, server *privatepg.Server, dsn string) string {
	t.Helper()
	execute(t, server, parse(t, dsn).Path[1:], hostile)
	if _, err := migrations.Up(t.Context(), dsn); err != nil {
		t.Fatalf("migrate a database: %v", err)
	}
	return dsn
}

// dropped drops a database when the test has passed.
func dropped(t testing.TB, server *privatepg.Server, dsn string) string {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the database is %s", dsn)
			return
		}
		drop(t, server, parse(t, dsn).Path[1:])
	})
	return dsn
}

// drop drops a database, even if connections to it are open.
func drop(t testing.TB, server *privatepg.Server, name string) {
	t.Helper()
	execute(t, server, "postgres", `DROP DATABASE `+name+` WITH (FORCE)`)
}

// as returns the DSN of a database for the role of tests.
func as(t testing.TB, server *privatepg.Server, database string) string {
	t.Helper()
	u := parse(t, server.DSN(database))
	u.User = url.UserPassword(owner, "test")
	return u.String()
}

// execute runs statements in a database, as a superuser.
func execute(t testing.TB, server *privatepg.Server, database, sql string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it has ended when databases are dropped
	conn, err := pgx.Connect(ctx, server.DSN(database))
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Master returns a new master key, as every deployment has one of its own.
func Master(t testing.TB) *vault.Master {
	t.Helper()
	m, err := vault.ParseMaster(vault.NewMasterKey())
	if err != nil {
		t.Fatalf("make a master key: %v", err)
	}
	return m
}
