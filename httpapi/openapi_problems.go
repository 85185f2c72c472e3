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
	"punctual/store"
)

// describeProblem describes the answer of an operation with a status of 400 or more.
func describeProblem(op *api.Operation, status string, response *huma.Response) {
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
func codesOf(op *api.Operation, status string) []problem.Code {
	var list []problem.Code
	for _, code := range sortedCodes() {
		switch told := slices.Contains(op.Codes, code); {
		case strconv.Itoa(problem.Codes[code].Status) != status,
			code == problem.CodeNoRoute, code == problem.CodeCrossOrigin, code == problem.CodeCallback,
			code == problem.CodeNotReady:
		case status == "409" && code != exampleOf(op.Conflict).Code && !told:
		case code == problem.CodeRunToken && op.Role != auth.RoleNone,
			code == problem.CodeLocked && op.Doc.Method == http.MethodGet,
			code == problem.CodeCronMismatch && !told,
			code == problem.CodeUnauthenticated && op.Role == auth.RoleNone:
		case code == problem.CodeKeyReused && !takes(op, "Idempotency-Key"):
		default:
			list = append(list, code)
		}
	}
	return list
}

// takes reports whether an operation has a parameter.
func takes(op *api.Operation, parameter string) bool {
	return slices.ContainsFunc(op.Doc.Parameters, func(p *huma.Param) bool { return p.Name == parameter })
}

// stateConflict is an example of an answer with 409 and the code state.
func stateConflict(why string) error { return fmt.Errorf("%s: %w", why, store.ErrState) }

func problemExample(op *api.Operation, status string) *problem.Problem {
	switch status {
	case "401":
		if op.Role != auth.RoleNone {
			return auth.ErrUnauthenticated
		}
	case "403":
		return forbiddenExample(op.Role)
	case "404":
		if !strings.Contains(op.Doc.Path, "{") && !takes(op, "job") {
			return problem.New(problem.CodeNotFound,
				`There is no tenant "biling", which the header Punctual-Tenant names.`)
		}
		return problem.New(problem.CodeNotFound, op.NotFound)
	case "409":
		return exampleOf(op.Conflict)
	case "413":
		return body.TooLarge(op.Doc)
	case "415":
		return body.WrongMedia(op.Doc)
	}
	return problemExamples[status]
}

func forbiddenExample(role auth.Role) *problem.Problem {
	if role == auth.RoleViewer {
		return auth.ForbiddenTenant(auth.RoleViewer)
	}
	return auth.Forbidden(role, auth.Roles[slices.Index(auth.Roles, role)-1])
}
