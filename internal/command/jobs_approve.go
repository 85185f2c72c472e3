package command

import (
	"context"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/store/runs"
)

// oneDecision holds the arguments of a decision about a step that waits for approval.
type oneDecision struct {
	api
	RunID string `arg:"" name:"run" help:"Id of the step's run, as jobs steps prints it, or of the workflow's run while one step of it waits."`
	Note  string `placeholder:"TEXT" help:"Reason, for people to read."`
}

func (c *oneDecision) decide(
	ctx context.Context, api *client.Client,
	how func(*client.Client, context.Context, string, httpapi.NoteInput) (runs.Run, error), became string,
) error {
	run, err := how(api, ctx, c.RunID, httpapi.NoteInput{Note: c.Note})
	return done(err, "the step %s of %s is %s", run.Step, run.Job, became)
}

type approveRun struct{ oneDecision }

func (c *approveRun) Run(ctx context.Context, api *client.Client) error {
	return c.decide(ctx, api, (*client.Client).ApproveRun, "approved")
}

type rejectRun struct{ oneDecision }

func (c *rejectRun) Run(ctx context.Context, api *client.Client) error {
	return c.decide(ctx, api, (*client.Client).RejectRun, "rejected")
}
