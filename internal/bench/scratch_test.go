package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
	"punctual/internal/prove"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	lend(t, dsn, func(conn *pgx.Conn) {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	})
}

func one[T any](t *testing.T, dsn, sql string) (v T) {
	t.Helper()
	lend(t, dsn, func(conn *pgx.Conn) {
		if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	})
	return v
}

// lend lends a connection, and closes it again.
func lend(t *testing.T, dsn string, use func(*pgx.Conn)) {
	t.Helper()
	conn, err := pgtest.Connect(t.Context(), dsn)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	use(conn)
}

const (
	schemaExists = `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'punctual')`
	roleExists   = `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader')`
	// benchServes is true while a bench has a replica running, which means that it is in the middle of its work.
	benchServes = `
		SELECT to_regclass('punctual.replicas') IS NOT NULL
		    AND EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'punctual' AND datname = current_database())`
)

// gone checks that a bench has left nothing in a database: no schema, no session.
func gone(t *testing.T, dsn string) {
	t.Helper()
	sessionsEnd(t, dsn)
	if one[bool](t, dsn, schemaExists) {
		t.Error("the schema is still there")
	}
}

// sessionsEnd waits until a database has no session of a bench or of its replicas.
func sessionsEnd(t *testing.T, dsn string) {
	t.Helper()
	eventually(t, "the end of all sessions", func() bool {
		return one[int](t, dsn, `
			SELECT count(*)
			FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'punctual%'`) == 0
	})
}

// bounded returns a context that ends when a wait has taken too long.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := await(bounded(t), what, 10*time.Millisecond, func() (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("waited in vain for %s: %v", what, err)
	}
}

// begin runs a bench, which may be interrupted, until its end.
func begin(
	t *testing.T, c Config, run func(context.Context, Config) error,
) (interrupt func(), ended <-chan error) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	t.Cleanup(interrupt)
	result := make(chan error, 1)
	go func() { result <- run(ctx, c) }()
	return interrupt, result
}

// everything returns the whole content of an installation, and of the rest of its database.
const everything = `SELECT string_agg(x, ' ') FROM (
	SELECT query_to_xml('SELECT * FROM punctual.jobs UNION ALL SELECT * FROM punctual.jobs', true, true, '')::text AS x
	UNION ALL
	SELECT string_agg(oid || ':' || relname || ':' || relfilenode, ',' ORDER BY oid)
	FROM pg_class
	WHERE relnamespace IN ('punctual'::regnamespace, 'public'::regnamespace)
	UNION ALL
	SELECT coalesce(obj_description('punctual'::regnamespace, 'pg_namespace'), 'no comment')) s`

func TestABenchRefusesAnInstallationAndLeavesItAlone(t *testing.T) {
	measures(t)
	t.Parallel()
	dsn := pgtest.Database(t, pgtest.NewServer(t, privatepg.Config{}))
	execute(t, dsn, `CREATE TABLE public.mine AS SELECT 1;
		INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue)
		VALUES (gen_random_uuid(), 1, 1, 'dear', 'active', 'none', 1)`)
	before := one[string](t, dsn, everything)
	err := Run(t.Context(), tinyConfig(t, dsn, "idle"))
	var inUse *InUseError
	if !errors.As(err, &inUse) {
		t.Fatalf("it did not refuse: %v", err)
	}
	for _, said := range []string{
		"--database-url", "an installation of Punctual with 1 jobs", "createdb punctual_bench", "nothing was changed",
	} {
		if !strings.Contains(err.Error(), said) {
			t.Errorf("it does not say %q: %v", said, err)
		}
	}
	if one[string](t, dsn, everything) != before {
		t.Error("the installation has changed")
	}
	execute(t, dsn, `DROP SCHEMA punctual CASCADE; CREATE SCHEMA punctual; CREATE TABLE punctual.other ()`)
	if err := Run(t.Context(), tinyConfig(t, dsn, "idle")); !errors.As(err, &inUse) ||
		!strings.Contains(err.Error(), "which no bench has made") {
		t.Errorf("a schema of somebody else's: %v", err)
	}
	if !one[bool](t, dsn, `SELECT to_regclass('punctual.other') IS NOT NULL`) {
		t.Error("somebody else's table is gone")
	}
}

func TestABenchRefusesAPostgresThatCanLoseCommits(t *testing.T) {
	measures(t)
	t.Parallel()
	dsn := pgtest.EmptyDSN(t) // on the shared server, which has synchronous_commit off
	if err := Run(t.Context(), tinyConfig(t, dsn, "idle")); err == nil ||
		!strings.Contains(err.Error(), "synchronous_commit is off") {
		t.Errorf("it measures what can be lost: %v", err)
	}
	gone(t, dsn)
}

func TestABenchThatFailsRemovesItsSchema(t *testing.T) {
	measures(t)
	t.Parallel()
	dsn := empty(t, pgtest.NewServer(t, privatepg.Config{}))
	c := tinyConfig(t, dsn, "idle")
	c.Binary = "/bin/false"
	err := Run(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "idle") {
		t.Errorf("a replica that does not start: %v", err)
	}
	if !strings.Contains(fmt.Sprint(c.Out), "could not measure") {
		t.Errorf("it does not say so:\n%s", c.Out)
	}
	gone(t, dsn)
}

// launched starts a bench in a process of its own, and returns when it is at work.
// launched starts the program of the benchmarks, and waits until it measures.
func launched(t *testing.T, dsn string) *process.Process {
	t.Helper()
	program, err := prove.Build(t.Context(), prove.Variant{Package: "internal/bench/cmd"})
	must(t, err)
	p, err := process.Launch(program, nil, "--only=idle", "--punctual="+tinyConfig(t, dsn).Binary, "--database-url="+dsn)
	must(t, err)
	t.Cleanup(p.Kill)
	eventually(t, "the bench to be at work", func() bool {
		if p.Ended() {
			t.Fatalf("it has ended:\n%s", p.Output())
		}
		return one[bool](t, dsn, benchServes)
	})
	return p
}

func TestABenchThatIsInterruptedRemovesItsSchema(t *testing.T) {
	measures(t)
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dsn := empty(t, server)
		p := launched(t, dsn)
		if !one[bool](t, dsn, roleExists) {
			t.Fatal("the role that goes with the schema was not made: nothing is tested of its end")
		}
		must(t, p.Signal(signal))
		if code, err := p.Wait(bounded(t)); code == 0 || err != nil || !strings.Contains(p.Output(), "interrupted") {
			t.Errorf("%s: exit code %d, %v:\n%s", signal, code, err, p.Output())
		}
		gone(t, dsn)
		if one[bool](t, dsn, roleExists) {
			t.Errorf("%s: the role is still there", signal)
		}
	}
}

func TestABenchThatIsInterruptedWhileItBeginsRemovesItsSchema(t *testing.T) {
	measures(t)
	t.Parallel()
	dsn := empty(t, pgtest.NewServer(t, privatepg.Config{}))
	interrupt, ended := begin(t, tinyConfig(t, dsn, "idle"), Run)
	eventually(t, "the schema", func() bool { return one[bool](t, dsn, schemaExists) })
	interrupt()
	if err := <-ended; err == nil {
		t.Error("it has measured all the same: nothing is tested")
	}
	gone(t, dsn)
}

// A statement goes on in the server after its client has gone.
func TestABenchThatIsInterruptedWhileItCreatesItsSchemaRemovesIt(t *testing.T) {
	measures(t)
	t.Parallel()
	dsn := empty(t, pgtest.NewServer(t, privatepg.Config{}))
	other, err := pgtest.Connect(t.Context(), dsn)
	must(t, err)
	defer func() { _ = other.Close(context.WithoutCancel(t.Context())) }()
	tx, err := other.Begin(t.Context())
	must(t, err)
	if _, err := tx.Exec(t.Context(), `CREATE SCHEMA punctual`); err != nil {
		t.Fatal(err)
	}
	interrupt, ended := begin(t, tinyConfig(t, dsn, "idle"), Run)
	eventually(t, "the bench to wait for the schema's name", func() bool {
		return one[bool](t, dsn, `
			SELECT EXISTS (
			    SELECT FROM pg_stat_activity
			    WHERE datname = current_database() AND application_name = 'punctual bench' AND wait_event_type = 'Lock')`)
	})
	interrupt()
	select {
	case err := <-ended:
		t.Fatalf("it has ended (%v), and its server is still creating the schema", err)
	case <-time.After(time.Second): // it waits for the server
	}
	must(t, tx.Rollback(t.Context()))
	if err := <-ended; err == nil {
		t.Error("it has measured all the same: nothing is tested")
	}
	gone(t, dsn)
}

func TestOfTwoBenchesTheSecondIsRefusedAndWhatAKilledOneLeftIsRemoved(t *testing.T) {
	measures(t)
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{})
	dsn := empty(t, server)
	c := tinyConfig(t, dsn, "idle")
	c.Sizes.IdleFor = 100 * time.Millisecond
	p := launched(t, dsn)
	var inUse *InUseError
	if err := Run(t.Context(), c); !errors.As(err, &inUse) ||
		!strings.Contains(err.Error(), "in use by another punctual bench") {
		t.Errorf("the second bench: %v", err)
	}
	if !one[bool](t, dsn, benchServes) {
		t.Error("the second bench has disturbed the first")
	}
	p.Kill()
	sessionsEnd(t, dsn)
	if !one[bool](t, dsn, schemaExists) {
		t.Fatal("a killed bench has cleaned up: nothing is tested")
	}
	var notes bytes.Buffer
	c.Notes = &notes
	must(t, Run(t.Context(), c))
	if !strings.Contains(notes.String(), "that a former bench left behind") {
		t.Errorf("it does not say what it removed:\n%s", notes.String())
	}
	gone(t, dsn)
	if one[bool](t, dsn, roleExists) {
		t.Error("the role that the killed one made is still there")
	}
}
