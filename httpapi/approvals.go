package httpapi

import (
	"context"
	"net/netip"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/runs"
)

// approvalRoutes adds the operations that decide about steps that wait for approval. The recipients of links have no
// key: they show the token of their link.
func (s *server) approvalRoutes() {
	const which = "{run} is the run of the step. It may be the workflow's run while one step of it waits. The first " +
		"decision counts: the answer to a later one is 409, and says who decided and when."
	api.RegisterBody[NoteInput](s.api, api.Operation{
		ID: "approve-run", Route: "POST /v1/runs/{run}/approve", Role: auth.RoleEditor, Tag: tagRuns,
		Summary: "Approve a step",
		Conflict: stateConflict("Run 019ad964-3b80-8f20-b2c4-0a9d6e5f1b73 was approved by key deploy " +
			"(019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11) at 2026-12-01T15:20:11Z"),
		Asks:        `{"note":"the numbers are right"}`,
		Answers:     []string{exampleStep, exampleApproved},
		Description: "The step succeeds. The steps that depend on it are sent who approved it, when and why. " + which,
	}, api.Optional, s.decide(true))
	api.RegisterBody[NoteInput](s.api, api.Operation{
		ID: "reject-run", Route: "POST /v1/runs/{run}/reject", Role: auth.RoleEditor, Tag: tagRuns,
		Summary:     "Reject a step",
		Conflict:    stateConflict("No step of run 019ad964-3b80-8b21-8f6e-1d2c3b4a5968 waits for approval"),
		Asks:        `{"note":"wrong day"}`,
		Answers:     []string{exampleStep, exampleRejected},
		Description: "The step is dead, with the reason rejected. " + which,
	}, api.Optional, s.decide(false))
	api.Register(s.api, api.Operation{
		ID: "get-approval", Route: "GET /v1/approvals/{run}", Open: true, Tag: tagRuns, Summary: "Get the step of a link",
		Errors:      []int{401, 404},
		Description: "Shows the recipient of a notice which step waits for approval. It decides nothing.",
	}, s.getApproval)
	api.RegisterBody[DecisionInput](s.api, api.Operation{
		ID: "decide-approval", Route: "POST /v1/approvals/{run}", Open: true, Tag: tagRuns,
		Summary: "Decide about the step of a link", Errors: []int{401, 404},
		Conflict: stateConflict("Run 019ad964-3b80-8f20-b2c4-0a9d6e5f1b73 was rejected by the link sent to " +
			"ops@example.com at 2026-12-01T15:20:11Z: wrong day"),
		Answers: []string{`{"status":"succeeded","until":null,
			"decision":"approved by the link sent to Slack hooks.slack.com at 2026-12-01T08:20:11Z: looks good"}`},
		Description: "Approves or rejects the step as the recipient of the notice, once.",
	}, api.Optional, s.decideApproval)
}

type noteRunInput struct {
	RunRef
	Request body.Body[NoteInput]
}

// decide approves or rejects a step.
func (s *server) decide(yes bool) func(context.Context, int32, *noteRunInput) (*answer[runs.Run], error) {
	return func(ctx context.Context, tenant int32, in *noteRunInput) (*answer[runs.Run], error) {
		if err := in.Request.Check(note(in.Request.Value.Note)...); err != nil {
			return nil, err
		}
		return show(s.Store.Runs.Decide(ctx, tenant, in.Run.id, yes, in.Request.Value.Note))
	}
}

// ApprovalRef is the input of the operations of a link: the run of a step, and the token.
type ApprovalRef struct {
	RunRef
	Token string `query:"token" doc:"The token of the link." example:"pat_ADSSonuje1nxWfeZa_3KQTCrVzXKuJTtmljaX2D4Og"`
	from  string
}

// Resolve keeps where the request comes from, for the audit log.
func (a *ApprovalRef) Resolve(hc huma.Context) []error {
	a.from = hc.RemoteAddr()
	return nil
}

// Exists returns ErrApprovalToken for a malformed id: no token belongs to it either.
func (a *ApprovalRef) Exists() error {
	if a.RunRef.Exists() != nil {
		return domain.ErrApprovalToken
	}
	return nil
}

func (s *server) getApproval(ctx context.Context, _ int32, in *ApprovalRef) (*answer[runs.LinkedStep], error) {
	return show(s.Store.Runs.ByLink(ctx, in.Run.id, in.Token))
}

// DecisionInput is the body of a decision by a link.
type DecisionInput struct {
	Decision string `json:"decision" enum:"approve,reject" doc:"Whether the step is approved." example:"approve"`
	Note     string `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read. Absent: none." example:"looks good"`
}

type decisionInput struct {
	ApprovalRef
	Request body.Body[DecisionInput]
}

func (s *server) decideApproval(ctx context.Context, _ int32, in *decisionInput) (*answer[runs.LinkedStep], error) {
	if _, err := s.Store.Runs.ByLink(ctx, in.Run.id, in.Token); err != nil {
		return nil, err // what is wrong with the body is for those who may decide
	}
	d := in.Request.Value
	problems := note(d.Note)
	if d.Decision != "approve" && d.Decision != "reject" {
		problems = append(problems, problem.At("body.decision", "must be approve or reject"))
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	at, _ := netip.ParseAddrPort(in.from) // invalid if it cannot be parsed
	ctx = audit.WithActor(ctx, audit.Actor{Address: at.Addr().Unmap(), RequestID: api.RequestID(ctx)})
	return show(s.Store.Runs.DecideByLink(ctx, in.Run.id, in.Token, d.Decision == "approve", d.Note))
}
