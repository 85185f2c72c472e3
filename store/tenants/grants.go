package tenants

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/store/audit"
	"punctual/store/pg"
)

// Grant lets a role of the database make runs of a tenant's jobs in its own transactions, by the functions of a schema.
type Grant struct {
	Schema string `json:"schema"`
	Role   string `json:"role"`
}

var schemaForm = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Grant makes the schema of a grant with its functions. If that very grant exists, the functions are made anew. The
// error is ErrState if the schema holds anything else or the role does not exist, and ErrNotFound if there is no such
// tenant.
func (s *Tenants) Grant(ctx context.Context, tenant string, g Grant) error {
	if !schemaForm.MatchString(g.Schema) || strings.HasPrefix(g.Schema, "pg_") {
		return fmt.Errorf("schema %.80q: 1 to 63 small letters, digits and underscores, the first no digit, and not "+
			"beginning with pg_: %w", g.Schema, pg.ErrState)
	}
	return s.db.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		t, err := oneTenant(pg.Query(ctx, tx, selectTenant+` FOR NO KEY UPDATE`, tenant), tenant)
		if err != nil {
			return err
		}
		made, err := tx.Exec(ctx, `
			INSERT INTO punctual.grants (schema, tenant, role, created_by) VALUES ($1, $2, $3, $4)
			ON CONFLICT (schema) DO NOTHING`, g.Schema, t.ID, g.Role, audit.ActorOf(ctx).Words())
		if err != nil {
			return fmt.Errorf("writing the grant: %w", err)
		}
		created := made.RowsAffected() > 0
		if err := mayGrant(ctx, tx, t, g, created); err != nil {
			return err
		}
		if err := pg.Exec(ctx, tx, `SELECT punctual.make_schema($1, $2, $3)`, t.ID, g.Schema, g.Role); err != nil {
			return s.denied(ctx, g.Schema, fmt.Errorf("making schema %s: %w", g.Schema, err))
		}
		if !created {
			return nil
		}
		return audit.Write(ctx, tx, t.ID, audit.Change{Action: audit.TenantGrant, Name: t.Name, After: g})
	})
}

// mayGrant returns why a grant cannot be made. A new one may take over a schema only if it is empty.
func mayGrant(ctx context.Context, tx *pg.Tx, t Tenant, g Grant, isNew bool) error {
	var exists, used bool
	var other *string
	if err := tx.QueryRow(ctx, `
		SELECT to_regrole(quote_ident($1::text)) IS NOT NULL,
		       EXISTS (SELECT FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass
		               AND refobjid = to_regnamespace(quote_ident($2::text))),
		       (SELECT format('role %s for tenant %s', g.role, t.name)
		        FROM punctual.grants g JOIN punctual.tenants t ON t.id = g.tenant
		        WHERE g.schema = $2::text AND (g.tenant, g.role) <> ($3::int, $1::text))`, g.Role, g.Schema, t.ID).
		Scan(&exists, &used, &other); err != nil {
		return fmt.Errorf("looking at role and schema: %w", err)
	}
	switch {
	case !exists:
		return fmt.Errorf("there is no role %q in this database cluster; create it first (CREATE ROLE): %w", g.Role,
			pg.ErrState)
	case other != nil:
		return fmt.Errorf("schema %s is granted to %s; revoke that or choose another schema: %w", g.Schema, *other,
			pg.ErrState)
	case isNew && used:
		return fmt.Errorf("schema %s exists and is not empty; choose another one: %w", g.Schema, pg.ErrState)
	}
	return nil
}

// denied adds to an error which statement lets Punctual make a schema, if that is the cause.
func (s *Tenants) denied(ctx context.Context, schema string, err error) error {
	failed, is := errors.AsType[*pgconn.PgError](err)
	if !is || failed.Code != "42501" {
		return err
	}
	var grant, create string
	if err := s.db.Conns(ctx).QueryRow(ctx, `
		SELECT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), o),
		       format('CREATE SCHEMA %I AUTHORIZATION %I', $1::text, o)
		FROM (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'punctual') n(o)`, schema).
		Scan(&grant, &create); err != nil {
		return err
	}
	return fmt.Errorf("let the owner of the database run `%s`, or a superuser `%s`, and grant again: %w", grant,
		create, err)
}

// Revoke drops the schema of a grant. The error is ErrNotFound if the tenant has no such grant, and ErrState if the
// schema holds something else or something depends on its functions.
func (s *Tenants) Revoke(ctx context.Context, tenant, schema string) error {
	return s.db.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		t, err := oneTenant(pg.Query(ctx, tx, selectTenant+` FOR NO KEY UPDATE`, tenant), tenant)
		if err != nil {
			return err
		}
		g := Grant{Schema: schema}
		err = tx.QueryRow(ctx, `
			SELECT role FROM punctual.grants WHERE schema = $1 AND tenant = $2`, schema, t.ID).Scan(&g.Role)
		if err := pg.Found(err, "grant of tenant %q with schema %q", tenant, schema); err != nil {
			return err
		}
		if err := dropSchema(ctx, tx, schema); err != nil {
			return err
		}
		return audit.Write(ctx, tx, t.ID, audit.Change{Action: audit.TenantRevoke, Name: t.Name, Before: g})
	})
}

func dropSchema(ctx context.Context, tx *pg.Tx, schema string) error {
	err := pg.Exec(ctx, tx, `SELECT punctual.drop_schema($1)`, schema)
	if failed, is := errors.AsType[*pgconn.PgError](err); is && failed.Code == "2BP01" {
		return fmt.Errorf("schema %s is still in use: %s; drop that first: %w", schema, failed.Detail, pg.ErrState)
	}
	return pg.Wrap("dropping schema "+schema, err)
}

// dropGrants revokes all grants of a tenant.
func dropGrants(ctx context.Context, tx *pg.Tx, tenant int32) error {
	schemas, err := pgx.CollectRows(pg.Query(ctx, tx, `SELECT schema FROM punctual.grants WHERE tenant = $1`, tenant),
		pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("looking for grants: %w", err)
	}
	for _, schema := range schemas {
		if err := dropSchema(ctx, tx, schema); err != nil {
			return err
		}
	}
	return nil
}
