package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
)

// Defaults of the role, the database or the URL do not change settings that Punctual relies on.
//
//prove:database
func TestSettingsOfOthersDoNotMatter(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, test := range []struct{ name, others, want string }{
		{"transaction_isolation", "default_transaction_isolation=serializable", "read committed"},
		{"transaction_isolation", "default_transaction_isolation=repeatable%20read", "read committed"},
		{"row_security", "row_security=off", "on"},
		{"search_path", "search_path=punctual,pg_catalog", "pg_catalog, pg_temp"},
		{"client_encoding", "client_encoding=LATIN1", "UTF8"},
		{"datestyle", "DateStyle=German", "ISO, MDY"},
		{"timezone", "TimeZone=Asia/Kolkata", "UTC"},
		{"standard_conforming_strings", "standard_conforming_strings=off", "on"},
		{"statement_timeout", "statement_timeout=60000", "0"},
		{"lock_timeout", "lock_timeout=60000", "0"},
		{"idle_session_timeout", "idle_session_timeout=60000", "0"},
		{"jit", "jit=on", "off"},
		{"IntervalStyle", "IntervalStyle=iso_8601", "postgres"},
		{"bytea_output", "bytea_output=escape", "hex"},
		{"array_nulls", "array_nulls=off", "on"},
		{"extra_float_digits", "extra_float_digits=-15", "1"},
		{"plan_cache_mode", "", "auto"}, // the role has another
		{"plan_cache_mode", "plan_cache_mode=force_generic_plan", "force_generic_plan"},
	} {
		t.Run(test.others, func(t *testing.T) {
			t.Parallel()
			db := open(t, dsn+"&"+test.others, false)
			check := func(where string, q Querier) error {
				var got string
				if err := q.QueryRow(t.Context(), `SELECT current_setting('`+test.name+`')`).Scan(&got); err != nil {
					return err
				}
				if got != test.want {
					t.Errorf("%s: %s is %q, want %q", where, test.name, got, test.want)
				}
				return nil
			}
			must(t, check("a session", db.Callers))
			must(t, check("a read for a tenant", db.Callers.Reader(1)))
			must(t, db.Callers.InTx(t.Context(), 1, func(tx *Tx) error { return check("a transaction for a tenant", tx) }))
			if test.name != "transaction_isolation" {
				must(t, db.Callers.ReadOnly(t.Context(), 1, func(tx pgx.Tx) error { return check("a snapshot", tx) }))
			}
		})
	}
}

// superuser runs statements on the server of a database, as one.
func superuser(t *testing.T, statements ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it has ended when a test cleans up
	conn, err := pgx.Connect(ctx, pgtest.Server(t).DSN("postgres"))
	must(t, err)
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// Some settings cannot be made up for. Whoever connects is told what to do, and in one sentence.
func TestADatabaseThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		database, set string // how it is made
		pooled        bool
		says          string
	}{
		"LATIN1":    {database: `ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`, says: "is LATIN1, and must be UTF8"},
		"SQL_ASCII": {database: `ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0`, says: "is SQL_ASCII, and must be UTF8"},
		"triggers are off": {
			set:  `session_replication_role = replica`,
			says: `permission denied to set parameter "session_replication_role"`,
		},
		"intervals behind a pooler": {
			set: `default_transaction_isolation = 'read committed'; IntervalStyle = sql_standard`, pooled: true,
			says: ` SET IntervalStyle = 'postgres'`,
		},
		"serializable behind a pooler": {
			set: `default_transaction_isolation = serializable`, pooled: true,
			says: ` SET default_transaction_isolation = 'read committed'`,
		},
		"other functions behind a pooler": {
			set: `default_transaction_isolation = 'read committed'; IntervalStyle = postgres; bytea_output = hex; ` +
				`array_nulls = on; search_path = elsewhere, pg_catalog`,
			pooled: true, says: ` SET search_path = pg_catalog`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.EmptyDSN(t)
			own, err := pgx.ParseConfig(dsn)
			must(t, err)
			if test.database != "" {
				other := own.Database + "_other"
				superuser(t, fmt.Sprintf(`CREATE DATABASE %s %s`, other, test.database))
				t.Cleanup(func() { superuser(t, `DROP DATABASE `+other+` WITH (FORCE)`) })
				dsn = strings.Replace(dsn, own.Database, other, 1)
				own.Database = other
			}
			for set := range strings.SplitSeq(test.set, "; ") {
				if set != "" {
					superuser(t, `ALTER ROLE `+own.User+` IN DATABASE `+own.Database+` SET `+set)
				}
			}
			if strings.Contains(test.set, "elsewhere") {
				conn, err := pgx.Connect(t.Context(), pgtest.Server(t).DSN(own.Database))
				must(t, err)
				_, err = conn.Exec(t.Context(), `CREATE SCHEMA elsewhere; GRANT USAGE ON SCHEMA elsewhere TO PUBLIC`)
				must(t, errors.Join(err, conn.Close(t.Context())))
			}
			if test.pooled {
				dsn = pgtest.PgBouncer(t, pgtest.Server(t), dsn)
			}
			_, err = Open(t.Context(), Config{URL: dsn})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

func TestThePasswordIsReadWheneverAConnectionIsMade(t *testing.T) {
	t.Parallel()
	dsn, file := pgtest.DSN(t), filepath.Join(t.TempDir(), "password")
	own, err := pgx.ParseConfig(dsn)
	must(t, err)
	superuser(t, `CREATE ROLE renewed LOGIN PASSWORD 'first'`, `GRANT CONNECT ON DATABASE `+own.Database+` TO renewed`)
	t.Cleanup(func() {
		superuser(t, `REVOKE ALL ON DATABASE `+own.Database+` FROM renewed`, `DROP ROLE renewed`)
	})
	u, err := url.Parse(pgtest.TCP(t, pgtest.Server(t), dsn))
	must(t, err)
	u.User = url.User("renewed")
	config := Config{URL: u.String(), PasswordFile: file}
	if _, err := Open(t.Context(), config); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	must(t, os.WriteFile(file, []byte("first\n"), 0o600))
	db, err := Open(t.Context(), config)
	must(t, err)
	t.Cleanup(db.Close)
	superuser(t, `ALTER ROLE renewed PASSWORD 'second'`)
	db.Callers.Reset()
	if err := db.Callers.Ping(t.Context()); Code(err) != "28P01" {
		t.Errorf("with a password that is no longer valid: %v", err)
	}
	must(t, os.WriteFile(file, []byte("second"), 0o600))
	if err := db.Callers.Ping(t.Context()); err != nil {
		t.Errorf("with the new password: %v", err)
	}
}
