package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/internal/pgtest"
	"punctual/store/pg"
	"punctual/store/tenants"
)

// Login makes a role, whose name no other test has, and connects as it.
func (c Fixture) Login(name string) (role string, conn *pgx.Conn) {
	c.T.Helper()
	role = fmt.Sprint(name, "_", strings.ReplaceAll(uuid.NewString()[:13], "-", ""))
	c.Exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'test'`)
	return role, c.As(role)
}

// As connects as a role.
func (c Fixture) As(role string) *pgx.Conn {
	c.T.Helper()
	dsn, err := url.Parse(c.Options.DatabaseURL)
	Must(c.T, err)
	dsn.User = url.UserPassword(role, "test")
	conn, err := pgtest.Connect(c.T.Context(), dsn.String())
	Must(c.T, err)
	c.T.Cleanup(func() { _ = conn.Close(context.WithoutCancel(c.T.Context())) })
	return conn
}

// App makes a role that may make runs of the tenant's jobs by the schema shop_jobs, and connects as it.
func (c Fixture) App() (role string, conn *pgx.Conn) {
	c.T.Helper()
	role, conn = c.Login("app")
	Must(c.T, c.Grant(c.TenantName(), "shop_jobs", role))
	return role, conn
}

// Grant lets a role of the database make runs of a tenant.
func (c Fixture) Grant(tenant, schema, role string) error {
	_, _, err := c.Tenants.Grant(c.T.Context(), tenant, tenants.NewGrant{Schema: schema, Role: role})
	return err
}

// TenantName is the name of the fixture's tenant.
func (c Fixture) TenantName() string {
	c.T.Helper()
	t, err := c.Tenants.GetTenantByID(c.T.Context(), c.Tenant)
	Must(c.T, err)
	return t.Name
}

// Ask returns the only value of a query.
func Ask[T any](t *testing.T, q pg.Querier, sql string, args ...any) (v T) {
	t.Helper()
	if err := q.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// WantRefused wants a statement to fail with an SQLSTATE, and returns the error.
func WantRefused(t *testing.T, q pg.Querier, code, sql string, args ...any) pgconn.PgError {
	t.Helper()
	err := pg.Exec(t.Context(), q, sql, args...)
	failed, is := errors.AsType[*pgconn.PgError](err)
	if !is || failed.Code != code {
		t.Errorf("%s: %v, want %s", sql, err, code)
		return pgconn.PgError{}
	}
	return *failed
}
