package migrations_test

import (
	"net/url"
	"regexp"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/migrations"
)

// A role that may create no schema is told the statements that let it. Either one does.
func TestARoleThatMayCreateNoSchemaIsToldWhichGrantIsMissing(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{Fast: true})
	super := connect(t, server.DSN("postgres"))
	execute(t, super, `CREATE ROLE "poor-man" LOGIN PASSWORD 'test'`)
	for i, name := range []string{"first", "second"} {
		execute(t, super, `CREATE DATABASE `+name)
		dsn, err := url.Parse(server.DSN(name))
		if err != nil {
			t.Fatal(err)
		}
		dsn.User = url.UserPassword("poor-man", "test")
		_, err = migrations.Up(t.Context(), dsn.String())
		if err == nil {
			t.Fatal("it may")
		}
		told := regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(err.Error(), -1)
		if len(told) != 2 {
			t.Fatalf("it does not tell two statements: %v", err)
		}
		execute(t, connect(t, server.DSN(name)), told[i][1])
		if _, err := migrations.Up(t.Context(), dsn.String()); err != nil {
			t.Errorf("after %s: %v", told[i][1], err)
		}
	}
}

// A user who may not create roles can still migrate. Triggers then protect the audit log, and a superuser adds the
// tenants' role later.
func TestAUserWhoMayMakeNoRolesCanMigrate(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{Fast: true})
	super := connect(t, server.DSN("postgres"))
	execute(t, super, `CREATE ROLE plain LOGIN PASSWORD 'test'`)
	execute(t, super, `CREATE DATABASE plain OWNER plain`)
	dsn, err := url.Parse(server.DSN("plain"))
	if err != nil {
		t.Fatal(err)
	}
	dsn.User = url.UserPassword("plain", "test")
	if _, err := migrations.Up(t.Context(), dsn.String()); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, dsn.String())
	if owner := read[string](t, conn, `
		SELECT tableowner
		FROM pg_tables
		WHERE tablename = 'audit_log'`); owner != "plain" {
		t.Errorf("the log is %s's", owner)
	}
	execute(t, conn, `
		INSERT INTO punctual.audit_log (id, at, tenant, action, actor_kind)
		VALUES (gen_random_uuid(), now(), 1, 'job.create', 'system')`)
	for _, sql := range []string{
		`UPDATE punctual.audit_log SET actor = 'x'`,
		`DELETE FROM punctual.audit_log`,
		`TRUNCATE punctual.audit_log`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s is not refused", sql)
		}
	}
	if forgotten := read[int](t, conn, `SELECT punctual.forget_audit_log('1 day', 10)`); forgotten != 0 {
		t.Errorf("%d forgotten", forgotten)
	}
	execute(t, super, `CREATE ROLE punctual_tenant NOLOGIN; GRANT punctual_tenant TO plain`)
	execute(t, conn, `SELECT punctual.guard_tenants()`)
	execute(t, conn, `BEGIN; SET LOCAL ROLE punctual_tenant; SET LOCAL punctual.tenant = '2'`)
	if n := read[int](t, conn, `SELECT count(*) FROM punctual.audit_entries`); n != 0 {
		t.Errorf("another tenant reads %d entries", n)
	}
}

// The roles are made beforehand by a superuser, as docs/production.md says. The migrating role needs no right to make
// roles, and everything is in force.
func TestAUserWithoutCreateroleMigratesWithRolesMadeBeforehand(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{Fast: true})
	super := connect(t, server.DSN("postgres"))
	execute(t, super, `
		CREATE ROLE plain LOGIN PASSWORD 'test';
		CREATE ROLE punctual_reader NOLOGIN;
		CREATE ROLE punctual_tenant NOLOGIN;
		CREATE ROLE punctual_audit NOLOGIN;
		GRANT punctual_tenant, punctual_audit TO plain`)
	execute(t, super, `CREATE DATABASE plain OWNER plain`)
	dsn, err := url.Parse(server.DSN("plain"))
	if err != nil {
		t.Fatal(err)
	}
	dsn.User = url.UserPassword("plain", "test")
	if _, err := migrations.Up(t.Context(), dsn.String()); err != nil {
		t.Fatal(err)
	}
	execute(t, super, `REVOKE punctual_audit FROM plain`)
	conn := connect(t, dsn.String())
	if owner := read[string](t, conn, `SELECT tableowner FROM pg_tables WHERE tablename = 'audit_log'`); owner != "punctual_audit" {
		t.Errorf("the log is %s's", owner)
	}
	if _, err := conn.Exec(t.Context(), `ALTER TABLE punctual.audit_log DISABLE TRIGGER ALL`); err == nil {
		t.Error("the owner of the schema can disable the triggers of the log")
	}
	execute(t, conn, `BEGIN; SET LOCAL ROLE punctual_tenant; SELECT FROM punctual.jobs; COMMIT`)
	execute(t, connect(t, server.DSN("plain")), `SET ROLE punctual_reader; SELECT FROM punctual.job_status, punctual.audit`)
	if _, err := migrations.Up(t.Context(), dsn.String()); err != nil {
		t.Errorf("again: %v", err)
	}
}
