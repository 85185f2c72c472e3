package httpapi

import "punctual/httpapi/auth"

// roleOf is the least role of every operation of the API. An operation that is missing here keeps the server from
// starting.
var roleOf = map[string]auth.Role{
	"get-job":          auth.RoleViewer,
	"list-jobs":        auth.RoleViewer,
	"explain-job":      auth.RoleViewer,
	"list-upcoming":    auth.RoleViewer,
	"preview-schedule": auth.RoleViewer,
	"get-job-stats":    auth.RoleViewer,
	"get-overview":     auth.RoleViewer,
	"get-forecast":     auth.RoleViewer, // of all tenants, it needs an operator

	"create-job":   auth.RoleSubmitter, // one-shots; other schedules need an editor
	"create-jobs":  auth.RoleSubmitter, // likewise
	"trigger-job":  auth.RoleSubmitter,
	"put-job":      auth.RoleEditor,
	"patch-job":    auth.RoleEditor,
	"delete-job":   auth.RoleEditor,
	"pause-job":    auth.RoleEditor,
	"resume-job":   auth.RoleEditor,
	"backfill-job": auth.RoleEditor,
	"pause-jobs":   auth.RoleEditor,
	"resume-jobs":  auth.RoleEditor,
	"delete-jobs":  auth.RoleEditor,

	"get-run":       auth.RoleViewer,
	"list-runs":     auth.RoleViewer,
	"list-job-runs": auth.RoleViewer,
	"cancel-run":    auth.RoleEditor,
	"rerun-run":     auth.RoleEditor,

	// These need the run token of the attempt instead.
	"heartbeat-run":    auth.RoleNone,
	"complete-run":     auth.RoleNone,
	"fail-run":         auth.RoleNone,
	"get-run-progress": auth.RoleNone,

	"list-dead-letters":       auth.RoleViewer,
	"list-dead-letter-groups": auth.RoleViewer,
	"replay-dead-letter":      auth.RoleEditor,
	"replay-dead-letters":     auth.RoleEditor,

	"resolve-dead-letter":  auth.RoleEditor,
	"resolve-dead-letters": auth.RoleEditor,

	"list-operations":  auth.RoleViewer,
	"get-operation":    auth.RoleViewer,
	"cancel-operation": auth.RoleEditor,

	"get-freeze":     auth.RoleViewer, // the runs in flight of all tenants need an operator
	"freeze":         auth.RoleAdmin,  // of its tenant; the deployment needs an operator
	"unfreeze":       auth.RoleAdmin,  // likewise
	"list-queues":    auth.RoleViewer,
	"list-replicas":  auth.RoleOperator,
	"list-breakers":  auth.RoleViewer,
	"reset-breakers": auth.RoleEditor,

	"create-api-key": auth.RoleAdmin,
	"list-api-keys":  auth.RoleAdmin,
	"get-api-key":    auth.RoleAdmin,
	"revoke-api-key": auth.RoleAdmin,

	"get-caller":       auth.RoleViewer,
	"get-own-tenant":   auth.RoleViewer,
	"patch-own-tenant": auth.RoleAdmin,
	"test-notify":      auth.RoleEditor, // a caller who may write jobs can send anything anyway
	"create-tenant":    auth.RoleOperator,
	"list-tenants":     auth.RoleOperator,
	"get-tenant":       auth.RoleOperator,
	"patch-tenant":     auth.RoleOperator,
	"delete-tenant":    auth.RoleOperator,

	"list-audit-log": auth.RoleAdmin,

	"list-secrets":          auth.RoleAdmin,
	"get-secret":            auth.RoleAdmin,
	"put-secret":            auth.RoleAdmin,
	"delete-secret":         auth.RoleAdmin,
	"list-signing-secrets":  auth.RoleAdmin,
	"create-signing-secret": auth.RoleAdmin,
	"delete-signing-secret": auth.RoleAdmin,
}
