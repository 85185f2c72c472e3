package httpapi

import (
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
)

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
func describeRole(op *huma.Operation) {
	role := api.RoleOf(op)
	if role == auth.RoleNone {
		for _, p := range op.Parameters {
			p.Required = true
		}
		return
	}
	needs := fmt.Sprintf("Needs the role %s.", role)
	op.Description = strings.TrimPrefix(op.Description+" "+needs, " ")
	op.Security = []map[string][]string{{bearerScheme: {}}}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: auth.HeaderTenant, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "The tenant to act for. Operators may name any tenant; other callers only their own. Absent: the " +
			"tenant of the key or token.",
		Example: "billing",
	})
}
