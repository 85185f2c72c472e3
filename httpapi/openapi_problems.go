package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/runs"
	"punctual/store/tenants"
)

// describeProblem describes the answer of an operation with a status of 400 or more.
func describeProblem(op *huma.Operation, status string, response *huma.Response) {
	content := response.Content["application/problem+json"]
	if content == nil {
		return
	}
	var titles []string
	for _, code := range codesOf(op, status) {
		titles = append(titles, fmt.Sprintf("%s: %s", code, problem.Codes[code].Title))
	}
	response.Description = strings.Join(titles, "; ")
	content.Example = problemExample(op, status).Of(exampleRequestID)
}

// codesOf returns the codes that an operation can answer with a status, in the order of sortedCodes.
func codesOf(op *huma.Operation, status string) []problem.Code {
	conflicts := conflictsOf(op)
	var list []problem.Code
	for _, code := range sortedCodes() {
		switch {
		case strconv.Itoa(problem.Codes[code].Status) != status,
			code == problem.CodeNoRoute, code == problem.CodeCrossOrigin, code == problem.CodeCallback,
			code == problem.CodeNotReady:
		case status == "409" && !slices.Contains(conflicts, code):
		case code == problem.CodeRunToken && api.RoleOf(op) != auth.RoleNone,
			code == problem.CodeLocked && op.Method == http.MethodGet,
			code == problem.CodeCronMismatch && !writesDefinition(op),
			code == problem.CodeUnauthenticated && api.RoleOf(op) == auth.RoleNone:
		case code == problem.CodeKeyReused && !slices.ContainsFunc(op.Parameters,
			func(p *huma.Param) bool { return p.Name == "Idempotency-Key" }):
		default:
			list = append(list, code)
		}
	}
	return list
}

// writesDefinition reports whether an operation writes definitions of jobs.
func writesDefinition(op *huma.Operation) bool {
	switch op.OperationID {
	case "create-job", "create-jobs", "put-job", "patch-job", "restore-version":
		return true
	}
	return false
}

// conflictsOf returns the codes that an operation answers with 409.
func conflictsOf(op *huma.Operation) []problem.Code {
	switch op.OperationID {
	case "create-job", "create-jobs", "put-job", "patch-job":
		return []problem.Code{problem.CodeNameTaken, problem.CodeLimit}
	case "create-tenant":
		return []problem.Code{problem.CodeNameTaken}
	case "trigger-job":
		return []problem.Code{problem.CodeActiveRun, problem.CodeKeyPending, problem.CodeState, problem.CodeLimit}
	case "put-limit":
		return []problem.Code{problem.CodeLimit}
	case "trigger-batch":
		return []problem.Code{problem.CodeKeyPending}
	case "heartbeat-run", "complete-run", "fail-run", "get-run-progress", "get-step-result":
		return []problem.Code{problem.CodeSuperseded}
	}
	return []problem.Code{problem.CodeState}
}

// stateExamples are the details of answers with 409 and the code state.
var stateExamples = map[string]string{
	"pause-job":  `Job "daily-invoice-gen" is completed and has no slot to pause: the state does not allow it.`,
	"resume-job": `Job "daily-invoice-gen" is completed and cannot be resumed: the state does not allow it.`,
	"cancel-run": "Run 019ad964-3b80-8b21-8f6e-1d2c3b4a5968 has ended as succeeded: " +
		"the state does not allow it.",
	"approve-run": "Run 019ad964-3b80-8f20-b2c4-0a9d6e5f1b73 was approved by key deploy " +
		"(019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11) at 2026-12-01T15:20:11Z: the state does not allow it.",
	"reject-run": "No step of run 019ad964-3b80-8b21-8f6e-1d2c3b4a5968 waits for approval: the state does not allow it.",
	"decide-approval": "Run 019ad964-3b80-8f20-b2c4-0a9d6e5f1b73 was rejected by the link sent to ops@example.com at " +
		"2026-12-01T15:20:11Z: wrong day: the state does not allow it.",
	"list-run-changes": "No changes are recorded, because the tenant has no changes_kept: the state does not allow it.",
	"cancel-operation": "Operation 019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42 has ended as done: " +
		"the state does not allow it.",
	"delete-limit":  `Active or paused jobs name limit "warehouse": daily-invoice-gen.`,
	"delete-secret": `Secret "billing-token" is used by active or paused jobs: daily-invoice-gen.`,
	"delete-signing-secret": "Signing secret 019ae0f2-6c1d-7a53-9b0e-5d4c2b1a0f3e is the last one that does not expire; " +
		"create another first: the state does not allow it.",
	"create-signing-secret": "There are 10 live signing secrets; delete one first: the state does not allow it.",
	"replay-dead-letter": "Dead letter 019ad964-3b80-8b21-8f6e-1d2c3b4a5968 was resolved at 2026-12-01T15:01:12Z: " +
		"the state does not allow it.",
	"put-grant": "Schema shop_jobs exists and is not empty; choose another one: the state does not allow it.",
	"delete-tenant": `Tenant "billing" has 812 active or paused jobs; delete them first: ` +
		"the state does not allow it.",
}

func problemExample(op *huma.Operation, status string) *problem.Problem {
	switch status {
	case "401":
		if api.RoleOf(op) != auth.RoleNone {
			return auth.ErrUnauthenticated
		}
	case "403":
		return forbiddenExample(api.RoleOf(op))
	case "404":
		if !strings.Contains(op.Path, "{") &&
			!slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.Name == "job" }) {
			return problem.New(problem.CodeNotFound,
				`There is no tenant "biling", which the header Punctual-Tenant names.`)
		}
		return problem.New(problem.CodeNotFound, notFound(op.Path))
	case "409":
		return conflictExample(op)
	case "413":
		return body.TooLarge(op)
	case "415":
		return body.WrongMedia(op)
	}
	return problemExamples[status]
}

func forbiddenExample(role auth.Role) *problem.Problem {
	if role == auth.RoleViewer {
		return auth.ForbiddenTenant(auth.RoleViewer)
	}
	return auth.Forbidden(role, auth.Roles[slices.Index(auth.Roles, role)-1])
}

func conflictExample(op *huma.Operation) *problem.Problem {
	switch conflictsOf(op)[0] {
	case problem.CodeNameTaken:
		if op.OperationID == "create-tenant" {
			return exampleOf(tenants.ErrTenantExists)
		}
		return exampleOf(jobs.ErrNameTaken)
	case problem.CodeActiveRun:
		return exampleOf(&jobs.ActiveRunError{Run: exampleRunID, Policy: domain.PolicyForbid})
	case problem.CodeKeyPending:
		return problem.New(problem.CodeKeyPending, `The key "order-42" is the key of a pending run, which is due at `+
			"2026-12-01T16:00:00Z.")
	case problem.CodeSuperseded:
		return exampleOf(&runs.SupersededError{Run: exampleRunID, Status: domain.StatusRetrying})
	}
	return problem.New(problem.CodeState, stateExamples[op.OperationID])
}
