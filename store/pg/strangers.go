package pg

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// selectStrangers finds the roles that may act as a tenant in this database, except those that may do anything in it
// anyway. Roles belong to the cluster: another deployment in the same cluster has the same TenantRole, and by default
// every role may connect to every database.
const selectStrangers = `
SELECT DISTINCT quote_ident(m.rolname)
FROM pg_catalog.pg_roles g
JOIN pg_catalog.pg_auth_members a ON a.roleid = g.oid
JOIN pg_catalog.pg_roles m ON m.oid = a.member
JOIN pg_catalog.pg_database d ON d.datname = current_database()
WHERE g.rolname = '` + TenantRole + `' AND m.rolname <> current_user AND NOT m.rolsuper
  AND NOT pg_has_role(m.oid, d.datdba, 'MEMBER')
  AND has_database_privilege(m.oid, d.oid, 'CONNECT')
ORDER BY 1`

// warnOfStrangers logs which other roles can read and write the rows of all tenants, and how to stop them.
func (p *Pool) warnOfStrangers(ctx context.Context) error {
	names, err := All(ctx, p, pgx.RowTo[string], selectStrangers)
	if err != nil {
		return fmt.Errorf("looking for members of the role %s: %w", TenantRole, err)
	}
	if len(names) == 0 {
		return nil
	}
	config := p.Config().ConnConfig
	database, user := pgx.Identifier{config.Database}.Sanitize(), pgx.Identifier{config.User}.Sanitize()
	p.db.config.Log.Warn(
		"other roles, such as those of another deployment in the same cluster, may connect to this database and act as any tenant; revoke their access",
		"roles", strings.Join(names, ", "),
		"statements", "REVOKE CONNECT ON DATABASE "+database+" FROM PUBLIC; GRANT CONNECT ON DATABASE "+database+" TO "+user)
	return nil
}
