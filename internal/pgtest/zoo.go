package pgtest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/privatepg"
)

// inhabitants are defaults that the role of tests has, and those of Postgres. Each of the former exists somewhere.
// Whatever works in a test works whatever the defaults of a role are. [Connect] makes a session with Postgres' own.
const inhabitants = `
default_transaction_isolation = serializable | read committed
default_transaction_deferrable = on | off
row_security = off | on
search_path = hostile, pg_catalog | "$user", public
client_encoding = LATIN1 | UTF8
DateStyle = German | ISO, MDY
IntervalStyle = sql_standard | postgres
TimeZone = Pacific/Kiritimati | UTC
standard_conforming_strings = off | on
backslash_quote = on | safe_encoding
bytea_output = escape | hex
extra_float_digits = 0 | 1
array_nulls = off | on
transform_null_equals = on | off
xmloption = document | content
check_function_bodies = off | on
client_min_messages = debug1 | notice
statement_timeout = 1s | 0
lock_timeout = 1ms | 0
idle_in_transaction_session_timeout = 1ms | 0
idle_session_timeout = 5s | 0
default_tablespace = nowhere |
temp_tablespaces = nowhere |
default_table_access_method = another | heap
jit = on | off
jit_above_cost = 0 | 100000
plan_cache_mode = force_custom_plan | auto`

// hostile is what a careful, or an odd, administrator has done to a database before Punctual comes. If the search_path
// is not Punctual's own, a statement calls the functions of the schema hostile.
const hostile = `
ALTER DEFAULT PRIVILEGES FOR ROLE test REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE test REVOKE USAGE ON TYPES FROM PUBLIC;
CREATE SCHEMA hostile;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1999-12-31 UTC' $$;
CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1999-12-31 UTC' $$;
CREATE FUNCTION hostile.lower(text) RETURNS text LANGUAGE sql AS $$ SELECT upper($1) $$;
CREATE FUNCTION hostile.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT 'hostile' $$`

// closed leaves the role nothing but a schema that is there already, bad plans, and names in quotes.
const closed = `
ALTER DATABASE zoo OWNER TO postgres;
REVOKE ALL ON DATABASE zoo FROM PUBLIC;
GRANT CONNECT ON DATABASE zoo TO test;
DROP SCHEMA public;
ALTER ROLE test SET enable_indexscan = off;
ALTER ROLE test SET enable_hashjoin = off;
ALTER ROLE test SET quote_all_identifiers = on;
CREATE SCHEMA punctual AUTHORIZATION test;
CREATE ACCESS METHOD another TYPE TABLE HANDLER heap_tableam_handler`

// eachInhabitant calls do with each setting, its odd value and its ordinary one.
func eachInhabitant(do func(name, odd, ordinary string)) {
	for line := range strings.Lines(strings.TrimSpace(inhabitants)) {
		name, values, _ := strings.Cut(line, " = ")
		odd, ordinary, _ := strings.Cut(values, "|")
		do(name, strings.TrimSpace(odd), strings.TrimSpace(ordinary))
	}
}

// settle gives the role of tests its defaults.
func settle(t testing.TB, server *privatepg.Server) {
	t.Helper()
	var statements strings.Builder
	eachInhabitant(func(name, odd, _ string) {
		if name != "search_path" { // a list of names
			odd = `'` + odd + `'`
		}
		statements.WriteString(`ALTER ROLE ` + owner + ` SET ` + name + ` = ` + odd + `;`)
	})
	execute(t, server, "postgres", statements.String())
}

// Connect is pgx.Connect for what a test itself asks of its database, with the defaults of Postgres.
func Connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := Config(dsn)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config)
}

// Config is pgx.ParseConfig for what a test itself asks of its database, with the defaults of Postgres.
func Config(dsn string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	eachInhabitant(func(name, _, ordinary string) {
		if _, given := config.RuntimeParams[name]; !given {
			config.RuntimeParams[name] = ordinary
		}
	})
	return config, nil
}

// Zoo returns an empty database on a server of its own, in which the role may create no schema: Punctual's is there
// already. super is the database's DSN for a superuser.
func Zoo(t testing.TB) (dsn, super string) {
	t.Helper()
	server := NewServer(t, privatepg.Config{Fast: true})
	dsn = create(t, server, "zoo", "")
	execute(t, server, "zoo", hostile)
	execute(t, server, "zoo", closed)
	return dsn, server.DSN("zoo")
}
