package dashboard

import (
	"net/http"
	"net/url"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/store/runs"
)

// approvalView is the page of the link in a notice that a step waits for approval. Its visitor has no session.
type approvalView struct {
	runs.LinkedStep
	Token   string
	Problem *problem.Problem // why the decision was refused; nil: it was not
}

// approval shows what the recipient of a link decides about. It changes nothing: programs that preview links fetch it.
func (v *visit) approval() error { return v.showApproval(v.param("token"), nil) }

func (v *visit) showApproval(token string, refused *problem.Problem) error {
	v.w.Header().Set("X-Robots-Tag", "noindex, nofollow")
	seen, err := client.Approval.Do(v.ctx(), v.calls(session{}), url.Values{"token": {token}}, v.part("run"))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if refused != nil {
		status = refused.Status
	}
	return v.render(status, "approval", "Approval", approvalView{seen, token, refused})
}

// decideApproval approves or rejects the step of a link.
func (v *visit) decideApproval() error {
	token := v.field("token")
	link := "/approvals/" + url.PathEscape(v.part("run")) + "?" + url.Values{"token": {token}}.Encode()
	_, err := v.calls(session{}).Do(v.ctx(), http.MethodPost, "/v1"+link,
		httpapi.DecisionInput{Decision: v.field("decision"), Note: v.field("note")}, nil)
	said, err := refused(err)
	switch {
	case err != nil:
		return err
	case said != nil && said.Code == problem.CodeRunToken:
		return said
	case said != nil:
		return v.showApproval(token, said)
	}
	return v.to(link, "")
}

// decideRun decides about a step on its own page, or on that of its workflow's run.
func decideRun(decide client.Call[httpapi.NoteInput, runs.Run], done string) func(*visit) error {
	return func(v *visit) error {
		run, err := call(v, decide, httpapi.NoteInput{Note: v.field("note")}, v.part("run"))
		to := "/runs/" + run.ID.String()
		if run.Workflow != nil && v.field("from") == run.Workflow.String() {
			to = "/runs/" + run.Workflow.String()
		}
		return v.done(err, to, done)
	}
}
