package auth

import (
	"slices"
	"strings"

	"punctual/store/pg"
)

// Role says what a caller may do. Each role includes the roles before it, except metrics, which stands apart.
type Role string

// The roles, from the least to the greatest.
const (
	RoleNone      Role = ""          // no key is needed: the operation is open, or asks for a run token instead
	RoleMetrics   Role = "metrics"   // reads /metrics of the whole deployment, and nothing else
	RoleViewer    Role = "viewer"    // reads
	RoleSubmitter Role = "submitter" // creates one-shots and triggers
	RoleEditor    Role = "editor"    // changes jobs and runs
	RoleAdmin     Role = "admin"     // also keys and secrets of its tenant
	RoleOperator  Role = "operator"  // administers all tenants
)

// Roles are all roles, from the least to the greatest.
var Roles = []Role{RoleMetrics, RoleViewer, RoleSubmitter, RoleEditor, RoleAdmin, RoleOperator}

// Includes reports whether a caller of role r may do what other may. The metrics name all tenants and, with
// --job-metrics, their jobs. So of the other roles only operators may read them, or create a key that does.
func (r Role) Includes(other Role) bool {
	switch {
	case other == RoleNone || r == other:
		return true
	case r == RoleMetrics:
		return false
	case other == RoleMetrics:
		return r == RoleOperator
	}
	return slices.Index(Roles, r) >= slices.Index(Roles, other)
}

// Greatest returns the greatest of the known roles among the names.
func Greatest(names []string) (role Role, known bool) {
	for _, r := range Roles {
		if slices.Contains(names, string(r)) {
			role, known = r, true
		}
	}
	return role, known
}

func roleNames() string { return strings.Join(pg.Texts(Roles), ", ") }
