package pgtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

// one returns the value that a statement yields in a database.
func one[T any](t *testing.T, dsn, sql string) (v T) {
	t.Helper()
	conn, err := Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// did has a test do something in its database, and returns the database.
func did(t *testing.T, sql string) string {
	t.Helper()
	server, name := Server(t), next()
	clone(t, server, name)
	t.Cleanup(func() { drop(t, server, name) })
	conn, err := Connect(t.Context(), as(t, server, name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return server.DSN(name)
}

// recycled recycles a database, and once more on the same connection, as when it has been handed on.
func recycled(t *testing.T, dsn string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	return errors.Join(recycle(t.Context(), conn), recycle(t.Context(), conn))
}

func TestARecycledDatabaseIsLikeAClone(t *testing.T) {
	t.Parallel()
	const holds = `SELECT ARRAY[
		(SELECT count(*) FROM punctual.queues), (SELECT max(weight) FROM punctual.tenants),
		(SELECT count(*) FROM punctual.run_token_key),
		(SELECT count(*) FROM punctual.deployment WHERE tidied_at > '-infinity'),
		nextval('punctual.fences'), (SELECT count(*) FROM pg_class WHERE relispartition)]`
	fresh := one[[]int64](t, did(t, `SELECT`), holds)
	for name, sql := range map[string]string{
		"nothing":                 `SELECT`,
		"rows":                    `INSERT INTO punctual.queues (name) SELECT 'q' || i FROM generate_series(1, 50) i`,
		"rows that were updated":  `INSERT INTO punctual.queues (name) VALUES ('q'); UPDATE punctual.queues SET name = name || id`,
		"rows of a failed write":  `BEGIN; INSERT INTO punctual.queues (name) VALUES ('q'); ROLLBACK`,
		"the template's, changed": `UPDATE punctual.tenants SET weight = 7; UPDATE punctual.deployment SET tidied_at = now()`,
		"the template's, gone":    `DELETE FROM punctual.run_token_key`,
		"a fencing token":         `SELECT nextval('punctual.fences')`,
		"a table that is gone":    `CREATE TABLE punctual.mine (); DROP TABLE punctual.mine`,
		"a day":                   `SELECT punctual.create_partitions(current_date - 100, current_date - 100)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := did(t, sql)
			if err := recycled(t, dsn); err != nil {
				t.Fatal(err)
			}
			if got := one[[]int64](t, dsn, holds); !slices.Equal(got, fresh) {
				t.Errorf("queues, weight, keys, freezes, token, partitions: %v, in a clone %v", got, fresh)
			}
		})
	}
}

func TestADatabaseThatIsNotLikeACloneIsNotHandedOn(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"a table":               `CREATE TABLE punctual.mine ()`,
		"a table elsewhere":     `CREATE SCHEMA elsewhere CREATE TABLE mine ()`,
		"a function":            `CREATE FUNCTION punctual.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		"a right":               `GRANT SELECT ON punctual.jobs TO PUBLIC`,
		"a right to a database": `DO $$ BEGIN EXECUTE 'GRANT TEMP ON DATABASE ' || current_database() || ' TO PUBLIC'; END $$`,
		"a default":             `ALTER TABLE punctual.tenants ALTER weight SET DEFAULT 3`,
		"many days":             `SELECT punctual.create_partitions(current_date + 100, current_date + 120)`,
		"no day":                `DO $$ BEGIN EXECUTE 'DROP TABLE punctual.runs_' || to_char(current_date, 'YYYYMMDD'); END $$`,
		"statistics":            `ANALYZE punctual.tenants`,
		"a vacuum":              `VACUUM punctual.tenants`,
		"truncation":            `TRUNCATE punctual.ready`,
		"a setting":             `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET jit = on'; END $$`,
		"a large table":         `INSERT INTO punctual.tenants (name) SELECT 'tenant-' || i FROM generate_series(1, 2000) i`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := recycled(t, did(t, sql)); err == nil {
				t.Error("it would be handed on")
			}
		})
	}
	t.Run("a connection", func(t *testing.T) {
		t.Parallel()
		dsn := did(t, `SELECT`)
		conn, err := Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		if err := recycled(t, dsn); err == nil {
			t.Error("it would be handed on")
		}
	})
}

// failed is a test that fails.
type failed struct{ testing.TB }

func (failed) Failed() bool { return true }

func TestAFailedTestKeepsItsDatabase(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("it", func(t *testing.T) { name = one[string](t, DSN(failed{t}), `SELECT current_database()`) })
	if !one[bool](t, Server(t).DSN("postgres"), `SELECT EXISTS (SELECT FROM pg_database WHERE datname = '`+name+`')`) {
		t.Error("it is gone")
	}
	for other := handedOn(); other.name != ""; other = handedOn() { // no other test waits for one
		if other.name == name {
			t.Error("it was handed on")
		}
	}
}
