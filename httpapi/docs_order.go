package httpapi

import (
	"cmp"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// orderOfUse lists the operations as a reader needs them: in each group, those of every day come first.
var orderOfUse = []string{
	"create-job", "get-job", "list-jobs", "put-job", "patch-job", "trigger-job", "explain-job", "pause-job", "resume-job",
	"delete-job", "backfill-job", "list-versions", "get-version", "restore-version", "list-job-changes", "create-jobs",
	"pause-jobs", "resume-jobs", "delete-jobs",

	"list-job-runs", "get-run", "list-runs", "cancel-run", "rerun-run",

	"heartbeat-run", "complete-run", "fail-run", "get-run-progress",

	"list-dead-letters", "list-dead-letter-groups", "replay-dead-letter", "resolve-dead-letter", "replay-dead-letters",
	"resolve-dead-letters",

	"get-operation", "list-operations", "cancel-operation",

	"preview-schedule", "list-upcoming", "get-forecast",

	"get-caller", "create-api-key", "list-api-keys", "get-api-key", "revoke-api-key", "get-own-tenant",
	"patch-own-tenant", "create-tenant", "list-tenants", "get-tenant", "patch-tenant", "delete-tenant",

	"put-secret", "list-secrets", "get-secret", "delete-secret", "create-signing-secret", "list-signing-secrets",
	"delete-signing-secret",

	"list-notices", "get-notice", "test-notify",

	"get-overview", "get-job-stats", "list-queues", "list-replicas", "list-breakers", "reset-breakers", "get-freeze",
	"freeze", "unfreeze", "list-audit-log",
}

// inOrderOfUse returns all operations. A test holds that orderOfUse has each.
func inOrderOfUse(api *huma.OpenAPI) []*huma.Operation {
	return slices.SortedStableFunc(operations(api), func(a, b *huma.Operation) int {
		return cmp.Compare(slices.Index(orderOfUse, a.OperationID), slices.Index(orderOfUse, b.OperationID))
	})
}
