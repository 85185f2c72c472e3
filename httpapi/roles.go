package httpapi

import "slices"

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

// includes reports whether a caller of role r may do what other may. The metrics name all tenants and, with
// --job-metrics, their jobs. So of the other roles only operators may read them, or create a key that does.
func (r Role) includes(other Role) bool {
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

// roleOf is the least role of every operation of the API. An operation that is missing here keeps the server from
// starting.
var roleOf = map[string]Role{
	"get-job":          RoleViewer,
	"list-jobs":        RoleViewer,
	"explain-job":      RoleViewer,
	"list-upcoming":    RoleViewer,
	"preview-schedule": RoleViewer,

	"create-job":   RoleSubmitter, // one-shots; other schedules need an editor
	"create-jobs":  RoleSubmitter, // likewise
	"trigger-job":  RoleSubmitter,
	"put-job":      RoleEditor,
	"patch-job":    RoleEditor,
	"delete-job":   RoleEditor,
	"pause-job":    RoleEditor,
	"resume-job":   RoleEditor,
	"backfill-job": RoleEditor,

	"get-run":       RoleViewer,
	"list-runs":     RoleViewer,
	"list-job-runs": RoleViewer,
	"cancel-run":    RoleEditor,
	"rerun-run":     RoleEditor,

	// These need the run token of the attempt instead.
	"heartbeat-run":    RoleNone,
	"complete-run":     RoleNone,
	"fail-run":         RoleNone,
	"get-run-progress": RoleNone,

	"list-dead-letters":   RoleViewer,
	"replay-dead-letter":  RoleEditor,
	"replay-dead-letters": RoleEditor,

	"resolve-dead-letter":  RoleEditor,
	"resolve-dead-letters": RoleEditor,

	"list-operations":  RoleViewer,
	"get-operation":    RoleViewer,
	"cancel-operation": RoleEditor,

	"get-freeze":     RoleViewer, // the runs in flight of all tenants need an operator
	"freeze":         RoleAdmin,  // of its tenant; the deployment needs an operator
	"unfreeze":       RoleAdmin,  // likewise
	"list-queues":    RoleViewer,
	"list-replicas":  RoleOperator,
	"list-breakers":  RoleViewer,
	"reset-breakers": RoleEditor,

	"create-api-key": RoleAdmin,
	"list-api-keys":  RoleAdmin,
	"get-api-key":    RoleAdmin,
	"revoke-api-key": RoleAdmin,

	"get-own-tenant":   RoleViewer,
	"patch-own-tenant": RoleAdmin,
	"test-notify":      RoleEditor, // a caller who may write jobs can send anything anyway
	"create-tenant":    RoleOperator,
	"list-tenants":     RoleOperator,
	"get-tenant":       RoleOperator,
	"patch-tenant":     RoleOperator,
	"delete-tenant":    RoleOperator,

	"list-audit-log": RoleAdmin,

	"list-secrets":          RoleAdmin,
	"get-secret":            RoleAdmin,
	"put-secret":            RoleAdmin,
	"delete-secret":         RoleAdmin,
	"list-signing-secrets":  RoleAdmin,
	"create-signing-secret": RoleAdmin,
	"delete-signing-secret": RoleAdmin,
}
