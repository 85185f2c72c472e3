package pgtest_test

import (
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/migrations"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgtest.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func one[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestEachTestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 3 {
		conn := connect(t, pgtest.DSN(t))
		if v := one[int64](t, conn, "SELECT max(version_id) FROM punctual.goose_db_version"); v != migrations.Latest() {
			t.Errorf("the schema is version %d, want %d", v, migrations.Latest())
		}
		seen[one[string](t, conn, "SELECT current_database()")] = true
		if _, err := conn.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
			t.Errorf("what one test makes is in another's way: %v", err)
		}
	}
	if len(seen) != 3 {
		t.Errorf("databases: %v, want 3", seen)
	}
}

func TestDatabaseWithAnOpenConnectionGoesWithItsTest(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("the test", func(sub *testing.T) {
		conn := connect(t, pgtest.DSN(sub)) // left open on purpose
		name = one[string](t, conn, "SELECT current_database()")
	})
	admin := connect(t, pgtest.Server(t).DSN("postgres"))
	if one[bool](t, admin, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name) {
		t.Errorf("database %s is still there", name)
	}
}

func TestEmptyDatabaseHasNoSchema(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.EmptyDSN(t))
	if one[bool](t, conn, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'punctual')") {
		t.Error("the schema is there")
	}
}

func TestThroughReachesTheServerOverTCP(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.Server(t).TCP("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, pgtest.Through(t, pgtest.DSN(t), u.Host))
	host, _, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, conn, "SELECT host(inet_server_addr())"); got != host {
		t.Errorf("connected to %s, want %s", got, host)
	}
}

func TestPgBouncerPoolsByTransaction(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	dsn := pgtest.PgBouncer(t, server, pgtest.DSN(t), "default_pool_size = 1")
	dsn += "&default_query_exec_mode=exec"

	var clients [2]*pgx.Conn
	for i := range clients {
		var err error
		if clients[i], err = pgx.Connect(t.Context(), dsn); err != nil { // it knows few of the settings of pgtest.Connect
			t.Fatal(err)
		}
		defer clients[i].Close(t.Context())
	}
	const backend = "SELECT pg_backend_pid()"
	if a, b := one[int](t, clients[0], backend), one[int](t, clients[1], backend); a != b {
		t.Errorf("two clients have the backends %d and %d, want one: this is not transaction mode", a, b)
	}
}

func TestOwnServerKeepsCommittedRowsThroughACrash(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	dsn := pgtest.Database(t, server)
	if _, err := connect(t, dsn).Exec(t.Context(), "CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
		t.Fatal(err)
	}
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, connect(t, dsn), "SELECT n FROM kept"); n != 1 {
		t.Errorf("read %d, want 1", n)
	}
}

func BenchmarkDSN(b *testing.B) {
	pgtest.DSN(b) // makes the server and the template
	for b.Loop() {
		pgtest.DSN(b)
	}
}

func TestTheClockOfAServerCanBeStepped(t *testing.T) {
	t.Parallel()
	clock := pgtest.NewClock(t)
	server := pgtest.NewServer(t, privatepg.Config{Fast: true, Env: clock.Env})
	conn, other := connect(t, server.DSN("postgres")), connect(t, server.DSN("postgres"))
	for _, offset := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute, 0} {
		clock.Step(offset)
		for _, c := range []*pgx.Conn{conn, other} {
			before := time.Now()
			now := one[time.Time](t, c, "SELECT clock_timestamp()")
			if now.Before(before.Add(offset-2*time.Second)) || now.After(time.Now().Add(offset+2*time.Second)) {
				t.Errorf("stepped by %s, the clock is at %s, and was asked after %s", offset, now, before)
			}
		}
	}
}
