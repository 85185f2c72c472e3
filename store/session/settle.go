package session

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// direct marks a connection that leads to the same backend as long as it lives.
const direct = "punctual.direct"

// Direct reports whether a connection that was settled leads to the same backend as long as it lives. Behind a pooler
// each transaction may have another backend.
func Direct(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[direct] != nil }

// EncodingError says that a database cannot hold every character.
type EncodingError struct{ Database, Encoding string }

func (e *EncodingError) Error() string {
	return fmt.Sprintf("the encoding of database %q is %s, and must be UTF8, as jobs hold any character: "+
		"create one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", e.Database, e.Encoding)
}

// PooledSettingError says that a setting is not what statements rely on, and that only an operator can change it.
type PooledSettingError struct{ Setting, Value, Want, User, Database string }

func (e *PooledSettingError) Error() string {
	return fmt.Sprintf("behind this pooler %[1]s is %[2]q, which statements cannot rely on; run: "+
		"ALTER ROLE %[3]s IN DATABASE %[4]s SET %[1]s = %[5]s",
		e.Setting, e.Value, pgx.Identifier{e.User}.Sanitize(), pgx.Identifier{e.Database}.Sanitize(), e.Want)
}

// The settings that statements rely on, whatever the defaults of the role and the database are. Time limits are those
// of the transactions themselves, and idle connections are a pool's. JIT compilation is off for every plan: a day
// without statistics makes a plan look expensive, and compiling it takes half a second of a processor, with rows
// locked, for a few rows. Only Postgres 17 and newer have transaction_timeout.
//
// A pooler refuses these at the start of a session, and a backend that it hands out knows nothing of what another was
// told. Behind a pooler each transaction therefore sets what it needs. What cannot be set there is checked here.
const settle = `
SET LOCAL jit = off; SET LOCAL statement_timeout = 0;
SELECT pg_catalog.pg_backend_pid() = %d, pg_catalog.current_setting('default_transaction_isolation'),
       (SELECT s FROM pg_catalog.unnest(pg_catalog.current_schemas(true)) s WHERE s NOT LIKE 'pg_temp%%' LIMIT 1)::text,
       (SELECT pg_catalog.count(pg_catalog.set_config(w.name, w.value, false))
        FROM (VALUES ('default_transaction_isolation', 'read committed'), ('search_path', 'pg_catalog, pg_temp'),
                     ('row_security', 'on'), ('session_replication_role', 'origin'), ('jit', 'off'),
                     ('statement_timeout', '0'), ('lock_timeout', '0'), ('idle_in_transaction_session_timeout', '0'),
                     ('idle_session_timeout', '0'), ('transaction_timeout', '0')) AS w(name, value)
        WHERE pg_catalog.pg_backend_pid() = %[1]d AND pg_catalog.current_setting(w.name, true) IS NOT NULL
          AND (w.name <> 'session_replication_role' OR pg_catalog.current_setting(w.name) <> w.value))`

// Settle checks that a new connection leads to a database that can be used, and gives the session its settings, in one
// round trip. After it, Direct is known.
func Settle(ctx context.Context, conn *pgx.Conn) error {
	server, c := conn.PgConn(), conn.Config()
	if encoding := server.ParameterStatus("server_encoding"); encoding != "" && encoding != "UTF8" {
		return &EncodingError{Database: c.Database, Encoding: encoding}
	}
	// A pooler tells its clients a made-up process id, because the real one differs with each transaction.
	results, err := server.Exec(ctx, fmt.Sprintf(settle, server.PID())).ReadAll()
	if err != nil {
		return fmt.Errorf("giving a session its settings: %w", err)
	}
	row := results[len(results)-1].Rows[0]
	same, isolation, first := string(row[0]) == "t", string(row[1]), string(row[2])
	switch {
	case same:
		server.CustomData()[direct] = true
	case isolation != "read committed":
		return &PooledSettingError{"default_transaction_isolation", isolation, "'read committed'", c.User, c.Database}
	case first != "pg_catalog":
		return &PooledSettingError{"search_path", first + ", …", "pg_catalog", c.User, c.Database}
	}
	return nil
}
