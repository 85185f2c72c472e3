package tenants

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/pg"
)

// NewGrant asks that a role of the database may make runs of a tenant's jobs in its own transactions, by the functions
// of a schema.
type NewGrant struct {
	Schema string `json:"schema" doc:"Schema of the functions that the role may call." example:"shop_jobs"`
	Role   string `json:"role" doc:"Role of the database that may call them." example:"shop"`
}

// Grant is a grant that was made.
type Grant struct {
	NewGrant
	CreatedAt time.Time `json:"created_at" doc:"When it was granted."`
	CreatedBy string    `json:"created_by" doc:"Who granted it." example:"key deploy (019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11)"`
}

const grantColumns = `schema, role, created_at, created_by`

var schemaForm = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// IsSchema reports whether a grant's schema may have a name. The schemas public and information_schema are not one
// tenant's.
func IsSchema(name string) bool {
	return schemaForm.MatchString(name) && !strings.HasPrefix(name, "pg_") && !isCommon(name)
}

func isCommon(schema string) bool { return schema == "public" || schema == "information_schema" }

const longestRole = 63 // bytes; Postgres cuts off the rest

// Check returns what is wrong with the names of a grant, whatever the database holds.
func (g NewGrant) Check() []jobspec.Problem {
	var wrong []jobspec.Problem
	switch {
	case isCommon(g.Schema):
		wrong = append(wrong, jobspec.Blame("schema", "%q is not valid: it belongs to all; name a schema that the grant "+
			"makes, such as shop_jobs", g.Schema))
	case !IsSchema(g.Schema):
		wrong = append(wrong, jobspec.Blame("schema", "%.80q is not valid: write 1 to 63 small letters, digits and "+
			"underscores, the first no digit, and not beginning with pg_", g.Schema))
	}
	if len(g.Role) < 1 || len(g.Role) > longestRole {
		wrong = append(wrong, jobspec.Blame("role", "%.80q is not valid: write the name of a role of the database, of 1 "+
			"to %d bytes", g.Role, longestRole))
	}
	return wrong
}

// Grant makes the schema of a grant with its functions. If that very grant exists, the functions are made anew, and
// created is false. The error is a jobspec.Problem if a name is not valid or the role does not exist, ErrNotFound if
// there is no such tenant, ErrState if the schema holds anything else, and a jobspec.Refusal if Punctual may make no
// schema.
func (s *Tenants) Grant(ctx context.Context, tenant string, asked NewGrant) (g Grant, created bool, err error) {
	if wrong := asked.Check(); len(wrong) > 0 {
		return g, false, wrong[0]
	}
	err = s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		t, err := oneTenant(pg.Query(ctx, tx, selectTenant+` FOR NO KEY UPDATE`, tenant), tenant)
		if err != nil {
			return err
		}
		made, err := tx.Exec(ctx, `
			INSERT INTO punctual.grants (schema, tenant, role, created_by) VALUES ($1, $2, $3, $4)
			ON CONFLICT (schema) DO NOTHING`, asked.Schema, t.ID, asked.Role, audit.ActorOf(ctx).Words())
		if err != nil {
			return fmt.Errorf("writing the grant: %w", err)
		}
		created = made.RowsAffected() > 0
		if err := mayGrant(ctx, tx, t, asked, created); err != nil {
			return err
		}
		if err := pg.Exec(ctx, tx, `SELECT punctual.make_schema($1, $2, $3)`, t.ID, asked.Schema, asked.Role); err != nil {
			return fmt.Errorf("making schema %s: %w", asked.Schema, err)
		}
		g, err = pgx.CollectExactlyOneRow(pg.Query(ctx, tx, `
			SELECT `+grantColumns+` FROM punctual.grants WHERE schema = $1`, asked.Schema), pgx.RowToStructByPos[Grant])
		if err != nil || !created {
			return pg.Wrap("reading the grant", err)
		}
		return audit.Write(ctx, tx, t.ID, audit.Change{Action: audit.TenantGrant, Name: t.Name, After: asked})
	})
	return g, created, s.denied(ctx, asked.Schema, err)
}

// ListGrants returns up to limit grants of a tenant, sorted by schema, from the first one after a given schema. The
// error is ErrNotFound if there is no such tenant.
func (s *Tenants) ListGrants(
	ctx context.Context, tenant, after string, limit int,
) (grants []Grant, more bool, err error) {
	id, err := s.TenantID(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	grants, err = pgx.CollectRows(pg.Query(ctx, s.db.Callers.Reader(pg.Everybody), `
		SELECT `+grantColumns+` FROM punctual.grants
		WHERE tenant = $1 AND schema COLLATE "C" > $2
		ORDER BY schema COLLATE "C" LIMIT $3`, id, after, limit+1), pgx.RowToStructByPos[Grant])
	return grants[:min(limit, len(grants))], len(grants) > limit, pg.Wrap("listing grants", err)
}

// mayGrant returns why a grant cannot be made. A new one may take over a schema only if it is empty.
func mayGrant(ctx context.Context, tx *pg.Tx, t Tenant, g NewGrant, isNew bool) error {
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
		return jobspec.Blame("role", "there is no role %q in this database cluster; create it first (CREATE ROLE)", g.Role)
	case other != nil:
		return fmt.Errorf("schema %s is granted to %s; revoke that or choose another schema: %w", g.Schema, *other,
			pg.ErrState)
	case isNew && used:
		return fmt.Errorf("schema %s exists and is not empty; choose another one: %w", g.Schema, pg.ErrState)
	}
	return nil
}

// denied returns an error, or a refusal that says which statement lets Punctual make a schema, if that is the cause.
func (s *Tenants) denied(ctx context.Context, schema string, err error) error {
	failed, is := errors.AsType[*pgconn.PgError](err)
	if !is || failed.Code != "42501" {
		return err
	}
	var grant, create string
	if err := s.db.Callers.QueryRow(ctx, `
		SELECT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), o),
		       format('CREATE SCHEMA %I AUTHORIZATION %I', $1::text, o)
		FROM (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'punctual') n(o)`, schema).
		Scan(&grant, &create); err != nil {
		return err
	}
	return &jobspec.Refusal{Code: "state", Reason: fmt.Sprintf(
		"let the owner of the database run `%s`, or a superuser `%s`, and grant again: %v", grant, create, err)}
}

// Revoke takes a grant back: once it has returned without an error, the role may call nothing of it. Then it drops the
// functions, and the schema if the grant made it, and returns what is left of them, and why. The error is ErrNotFound
// if the tenant has no such grant.
func (s *Tenants) Revoke(ctx context.Context, tenant, schema string) (left []string, err error) {
	var ended []endedGrant
	err = s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		t, err := oneTenant(pg.Query(ctx, tx, selectTenant+` FOR NO KEY UPDATE`, tenant), tenant)
		if err != nil {
			return err
		}
		ended, err = endGrants(ctx, tx, t, &schema)
		if err == nil && len(ended) == 0 {
			return fmt.Errorf("there is no grant of tenant %q with schema %q: %w", tenant, schema, pg.ErrNotFound)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.dropSchemas(ctx, ended), nil
}

// endedGrant is a grant that nobody can use any more. made is whether its schema is to be dropped.
type endedGrant struct {
	NewGrant
	made bool
}

// endGrants takes the grants of a tenant back, all or that of one schema. It waits for nothing that the roles do.
func endGrants(ctx context.Context, tx *pg.Tx, t Tenant, schema *string) ([]endedGrant, error) {
	grants, err := pgx.CollectRows(pg.Query(ctx, tx, `
		SELECT schema, role FROM punctual.grants WHERE tenant = $1 AND schema = coalesce($2, schema) ORDER BY schema`,
		t.ID, schema), pgx.RowToStructByPos[NewGrant])
	if err != nil {
		return nil, fmt.Errorf("looking for grants: %w", err)
	}
	ended := make([]endedGrant, len(grants))
	for i, g := range grants {
		ended[i].NewGrant = g
		if err := tx.QueryRow(ctx, `SELECT punctual.end_grant($1)`, g.Schema).Scan(&ended[i].made); err != nil {
			return nil, fmt.Errorf("taking back the grant of schema %s: %w", g.Schema, err)
		}
		if err := audit.Write(ctx, tx, t.ID, audit.Change{Action: audit.TenantRevoke, Name: t.Name, Before: g}); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// dropSchemas drops what grants have made, each in a transaction of its own, and returns what is left. That nobody may
// use it has been committed, so no error is one of the caller's.
func (s *Tenants) dropSchemas(ctx context.Context, ended []endedGrant) []string {
	all := []string{}
	for _, g := range ended {
		var left []string
		err := s.db.Callers.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
			return tx.QueryRow(ctx, `SELECT punctual.drop_schema($1, $2)`, g.Schema, g.made).Scan(&left)
		})
		if err != nil {
			left = []string{fmt.Sprintf("schema %s: %v", g.Schema, err)}
		}
		all = append(all, left...)
	}
	return all
}
