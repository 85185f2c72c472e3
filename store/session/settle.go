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
// told. Behind a pooler each transaction therefore sets what it needs. What cannot be set there is checked here: the
// default isolation, and how values are written that go as text. A hot standby answers no query of a serializable
// transaction, so this one is none.
const settle = `
SET LOCAL transaction_isolation = 'read committed'; SET LOCAL jit = off; SET LOCAL statement_timeout = 0;
WITH w(name, value, checked) AS (VALUES
    ('default_transaction_isolation', 'read committed', true), ('IntervalStyle', 'postgres', true),
    ('bytea_output', 'hex', true), ('array_nulls', 'on', true), ('extra_float_digits', '1', false),
    ('search_path', 'pg_catalog, pg_temp', false), ('row_security', 'on', false),
    ('session_replication_role', 'origin', false), ('jit', 'off', false), ('plan_cache_mode', 'auto', false),
    ('statement_timeout', '0', false), ('lock_timeout', '0', false), ('idle_session_timeout', '0', false),
    ('idle_in_transaction_session_timeout', '0', false), ('transaction_timeout', '0', false))
SELECT pg_catalog.pg_backend_pid() = %d,
       (SELECT s FROM pg_catalog.unnest(pg_catalog.current_schemas(true)) s WHERE s NOT LIKE 'pg_temp%%' LIMIT 1)::text,
       o.name, pg_catalog.current_setting(o.name), o.value,
       (SELECT pg_catalog.count(pg_catalog.set_config(w.name, w.value, false))
        FROM w
        WHERE pg_catalog.pg_backend_pid() = %[1]d AND pg_catalog.current_setting(w.name, true) IS NOT NULL
          AND (w.name <> 'plan_cache_mode' OR %t)
          AND (w.name <> 'session_replication_role' OR pg_catalog.current_setting(w.name) <> w.value))
FROM (SELECT) one
LEFT JOIN (SELECT name, value FROM w WHERE checked AND pg_catalog.current_setting(name) <> value LIMIT 1) o ON true`

// Settle checks that a new connection leads to a database that can be used, and gives the session its settings, in one
// round trip. After it, Direct is known.
func Settle(ctx context.Context, conn *pgx.Conn) error {
	server, c := conn.PgConn(), conn.Config()
	if encoding := server.ParameterStatus("server_encoding"); encoding != "" && encoding != "UTF8" {
		return &EncodingError{Database: c.Database, Encoding: encoding}
	}
	_, plans := c.RuntimeParams["plan_cache_mode"] // the URL may say how statements are planned
	// A pooler tells its clients a made-up process id, because the real one differs with each transaction.
	results, err := server.Exec(ctx, fmt.Sprintf(settle, server.PID(), !plans)).ReadAll()
	if err != nil {
		return fmt.Errorf("giving a session its settings: %w", err)
	}
	row := results[len(results)-1].Rows[0]
	same, first, other := string(row[0]) == "t", string(row[1]), string(row[2])
	switch {
	case same:
		server.CustomData()[direct] = true
	case other != "":
		return &PooledSettingError{other, string(row[3]), "'" + string(row[4]) + "'", c.User, c.Database}
	case first != "pg_catalog":
		return &PooledSettingError{"search_path", first + ", …", "pg_catalog", c.User, c.Database}
	}
	return nil
}
