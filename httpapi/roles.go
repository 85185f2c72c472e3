package httpapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/auth"
)

// uses are the operations as a reader needs them, those of every day first in each group, with the least role of each.
// An operation that is missing here keeps the server from starting.
var uses = []struct {
	operation string
	role      auth.Role
}{
	{"create-job", auth.RoleSubmitter}, // one-shots; other schedules need an editor
	{"get-job", auth.RoleViewer},
	{"list-jobs", auth.RoleViewer},
	{"put-job", auth.RoleEditor},
	{"patch-job", auth.RoleEditor},
	{"trigger-job", auth.RoleSubmitter},
	{"trigger-batch", auth.RoleSubmitter},
	{"list-dated-runs", auth.RoleViewer},
	{"get-dated-run", auth.RoleViewer},
	{"move-dated-run", auth.RoleSubmitter},
	{"cancel-dated-run", auth.RoleSubmitter}, // as for a trigger, the job must allow it
	{"explain-job", auth.RoleViewer},
	{"pause-job", auth.RoleEditor},
	{"resume-job", auth.RoleEditor},
	{"delete-job", auth.RoleEditor},
	{"backfill-job", auth.RoleEditor},
	{"list-versions", auth.RoleViewer},
	{"get-version", auth.RoleViewer},
	{"restore-version", auth.RoleEditor},
	{"list-job-changes", auth.RoleViewer},
	{"create-jobs", auth.RoleSubmitter}, // one-shots; other schedules need an editor
	{"pause-jobs", auth.RoleEditor},
	{"resume-jobs", auth.RoleEditor},
	{"delete-jobs", auth.RoleEditor},

	{"list-job-runs", auth.RoleViewer},
	{"get-run", auth.RoleViewer},
	{"list-runs", auth.RoleViewer},
	{"list-run-changes", auth.RoleViewer},
	{"cancel-run", auth.RoleEditor},
	{"rerun-run", auth.RoleEditor},
	{"approve-run", auth.RoleEditor},
	{"reject-run", auth.RoleEditor},

	// These need the run token of the attempt instead.
	{"heartbeat-run", auth.RoleNone},
	{"complete-run", auth.RoleNone},
	{"fail-run", auth.RoleNone},
	{"get-run-progress", auth.RoleNone},
	{"get-step-result", auth.RoleNone},

	// These need the token of the link in a notice instead.
	{"get-approval", auth.RoleNone},
	{"decide-approval", auth.RoleNone},

	{"list-dead-letters", auth.RoleViewer},
	{"list-dead-letter-groups", auth.RoleViewer},
	{"replay-dead-letter", auth.RoleEditor},
	{"resolve-dead-letter", auth.RoleEditor},
	{"replay-dead-letters", auth.RoleEditor},
	{"resolve-dead-letters", auth.RoleEditor},

	{"get-operation", auth.RoleViewer},
	{"list-operations", auth.RoleViewer},
	{"cancel-operation", auth.RoleEditor},

	{"emit-event", auth.RoleSubmitter}, // a job that names the event has consented
	{"get-event", auth.RoleViewer},
	{"list-events", auth.RoleViewer},
	{"list-event-names", auth.RoleViewer},

	{"preview-schedule", auth.RoleViewer},
	{"list-upcoming", auth.RoleViewer},
	{"get-forecast", auth.RoleViewer}, // of all tenants, it needs an operator

	{"get-caller", auth.RoleViewer},
	{"create-api-key", auth.RoleAdmin},
	{"list-api-keys", auth.RoleAdmin},
	{"get-api-key", auth.RoleAdmin},
	{"revoke-api-key", auth.RoleAdmin},
	{"get-own-tenant", auth.RoleViewer},
	{"patch-own-tenant", auth.RoleAdmin},
	{"create-tenant", auth.RoleOperator},
	{"list-tenants", auth.RoleOperator},
	{"get-tenant", auth.RoleOperator},
	{"patch-tenant", auth.RoleOperator},
	{"delete-tenant", auth.RoleOperator},
	{"put-grant", auth.RoleOperator},
	{"list-grants", auth.RoleOperator},
	{"delete-grant", auth.RoleOperator},

	{"put-secret", auth.RoleAdmin},
	{"list-secrets", auth.RoleAdmin},
	{"get-secret", auth.RoleAdmin},
	{"delete-secret", auth.RoleAdmin},
	{"create-signing-secret", auth.RoleAdmin},
	{"list-signing-secrets", auth.RoleAdmin},
	{"delete-signing-secret", auth.RoleAdmin},

	{"list-notices", auth.RoleViewer},
	{"get-notice", auth.RoleViewer},
	{"test-notify", auth.RoleEditor}, // a caller who may write jobs can send anything anyway

	{"get-overview", auth.RoleViewer},
	{"get-job-stats", auth.RoleViewer},
	{"list-usage", auth.RoleViewer},
	{"list-queues", auth.RoleViewer},
	{"put-limit", auth.RoleEditor},
	{"list-limits", auth.RoleViewer},
	{"get-limit", auth.RoleViewer},
	{"delete-limit", auth.RoleEditor},
	{"list-replicas", auth.RoleOperator},
	{"list-breakers", auth.RoleViewer},
	{"reset-breakers", auth.RoleEditor},
	{"get-freeze", auth.RoleViewer}, // the runs in flight of all tenants need an operator
	{"freeze", auth.RoleAdmin},      // of its tenant; the deployment needs an operator
	{"unfreeze", auth.RoleAdmin},    // of its tenant; the deployment needs an operator
	{"list-audit-log", auth.RoleAdmin},
}

// roleOf is the least role of every operation.
var roleOf = func() map[string]auth.Role {
	roles := map[string]auth.Role{}
	for _, use := range uses {
		roles[use.operation] = use.role
	}
	return roles
}()

// inOrderOfUse returns all operations.
func inOrderOfUse(api *huma.OpenAPI) []*huma.Operation {
	place := map[string]int{}
	for i, use := range uses {
		place[use.operation] = i
	}
	return slices.SortedStableFunc(operations(api), func(a, b *huma.Operation) int {
		return cmp.Compare(place[a.OperationID], place[b.OperationID])
	})
}

// bearerScheme is the name of the security scheme in the description.
const bearerScheme = "bearer"

// securitySchemes returns how callers authenticate.
func securitySchemes() map[string]*huma.SecurityScheme {
	return map[string]*huma.SecurityScheme{bearerScheme: {
		Type: "http", Scheme: "bearer",
		Description: "An API key, or a JWT from the issuer that the deployment is configured with. A server that runs with " +
			"--auth=none needs neither.",
	}}
}

// describeRole says which role an operation needs, for people and for programs. It also describes the tenant header.
// An operation without a role needs a run token. huma does not check that: the handlers do, and answer 401.
func describeRole(op *huma.Operation, role auth.Role) {
	if role == auth.RoleNone {
		for _, p := range op.Parameters {
			p.Required = true
		}
		return
	}
	needs := fmt.Sprintf("Needs the role %s.", role)
	op.Description = strings.TrimPrefix(op.Description+" "+needs, " ")
	op.Extensions = map[string]any{"x-punctual-role": role}
	op.Security = []map[string][]string{{bearerScheme: {}}}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: auth.HeaderTenant, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "The tenant to act for. Operators may name any tenant; other callers only their own. Absent: the " +
			"tenant of the key or token.",
		Example: "billing",
	})
}
