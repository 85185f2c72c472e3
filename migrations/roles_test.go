package migrations_test

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/migrations"
)

// A user who may not create roles can still migrate. Triggers then protect the audit log, and a superuser adds the
// tenants' role later.
func TestAUserWhoMayMakeNoRolesCanMigrate(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{Fast: true})
	super, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close(t.Context())
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
	conn, err := pgx.Connect(t.Context(), dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var owner string
	if err := conn.QueryRow(t.Context(), `
		SELECT tableowner
		FROM pg_tables
		WHERE tablename = 'audit_log'`).Scan(&owner); err != nil || owner != "plain" {
		t.Errorf("the log is %s's, %v", owner, err)
	}
	execute(t, conn, `
		INSERT INTO punctual.audit_log (id, at, tenant, action, actor_kind)
		VALUES (gen_random_uuid(), now(), 1, 'job.create', 'system')`)
	for _, sql := range []string{`
		UPDATE punctual.audit_log
		SET actor = 'x'`, `
		DELETE
		FROM punctual.audit_log`, `TRUNCATE punctual.audit_log`} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s is not refused", sql)
		}
	}
	var forgotten int
	if err := conn.QueryRow(t.Context(), `
		SELECT punctual.forget_audit_log('1 day', 10)`).Scan(&forgotten); err != nil || forgotten != 0 {
		t.Errorf("%d forgotten, %v", forgotten, err)
	}
	execute(t, super, `CREATE ROLE punctual_tenant NOLOGIN; GRANT punctual_tenant TO plain`)
	execute(t, conn, `SELECT punctual.guard_tenants()`)
	execute(t, conn, `BEGIN; SET LOCAL ROLE punctual_tenant; SET LOCAL punctual.tenant = '2'`)
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM punctual.audit_entries`).Scan(&n); err != nil || n != 0 {
		t.Errorf("another tenant reads %d entries, %v", n, err)
	}
}
