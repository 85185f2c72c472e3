package pgtest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/privatepg"
)

// inhabitants are defaults of a role that differ from those of Postgres. Each of them exists somewhere.
const inhabitants = `
default_transaction_isolation = serializable
default_transaction_deferrable = on
row_security = off
search_path = hostile, pg_catalog
client_encoding = LATIN1
DateStyle = German
IntervalStyle = sql_standard
TimeZone = Pacific/Kiritimati
standard_conforming_strings = off
backslash_quote = on
bytea_output = escape
extra_float_digits = 0
array_nulls = off
transform_null_equals = on
quote_all_identifiers = on
xmloption = document
check_function_bodies = off
client_min_messages = debug1
statement_timeout = 200ms
lock_timeout = 1ms
idle_in_transaction_session_timeout = 1ms
idle_session_timeout = 700ms
default_tablespace = nowhere
temp_tablespaces = nowhere
default_table_access_method = another
jit = on
jit_above_cost = 0
plan_cache_mode = force_custom_plan
enable_indexscan = off
enable_hashjoin = off`

// unusual is what a careful, or an odd, administrator has done to a database before Punctual comes. The role may create
// no schema, so its schema is there already. If the search_path is not Punctual's own, a statement calls the functions
// of the schema hostile.
const unusual = `
ALTER DEFAULT PRIVILEGES FOR ROLE test REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE test REVOKE USAGE ON TYPES FROM PUBLIC;
REVOKE ALL ON DATABASE zoo FROM PUBLIC;
GRANT CONNECT ON DATABASE zoo TO test;
DROP SCHEMA public;
CREATE SCHEMA punctual AUTHORIZATION test;
CREATE ACCESS METHOD another TYPE TABLE HANDLER heap_tableam_handler;
CREATE SCHEMA hostile;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1999-12-31 UTC' $$;
CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1999-12-31 UTC' $$;
CREATE FUNCTION hostile.lower(text) RETURNS text LANGUAGE sql AS $$ SELECT upper($1) $$;
CREATE FUNCTION hostile.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT 'hostile' $$`

// Zoo returns an empty database on a server of its own, whose role has all the settings that a role can have and that
// are not Postgres' own defaults. super is the database's DSN for a superuser without any of them.
func Zoo(t testing.TB) (dsn, super string) {
	t.Helper()
	server := NewServer(t, privatepg.Config{Fast: true})
	dsn = create(t, server, "zoo", "")
	super = server.DSN("zoo")
	execute(t, server, `ALTER DATABASE zoo OWNER TO postgres`)
	conn, err := pgx.Connect(t.Context(), super)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	statements := []string{unusual}
	for line := range strings.Lines(strings.TrimSpace(inhabitants)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		if name != "search_path" { // a list of names
			value = `'` + value + `'`
		}
		statements = append(statements, `ALTER ROLE `+owner+` SET `+name+` = `+value)
	}
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return dsn, super
}
