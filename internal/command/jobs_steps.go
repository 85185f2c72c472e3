package command

import (
	"context"
	"fmt"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/store/runs"
)

type runSteps struct {
	api
	RunID string `arg:"" name:"run" help:"Id of the run, as jobs run and jobs runs print it."`
	JSON  bool   `name:"json" help:"Print what the API answers, in full, for programs."`
}

func (c *runSteps) Run(ctx context.Context, api *client.Client) error {
	run, err := api.Run(ctx, c.RunID)
	switch {
	case err != nil:
		return err
	case run.Step != "":
		return fmt.Errorf("run %s is of the step %s: ask for the run of its workflow, %s", run.ID, run.Step, run.Workflow)
	case run.Steps == nil:
		return fmt.Errorf("run %s has no steps", run.ID)
	}
	list := httpapi.List[runs.StepState]{Data: run.Steps}
	const header = "STEP\tSTATUS\tSTARTED\tENDED\tRUN\tWHY"
	return printNewest(newest{JSON: c.JSON}, list, nil, header, func(s runs.StepState) []any {
		why := orEmpty(s.Error)
		switch {
		case s.ApproveBy != nil:
			why = "waits for approval until " + instant(s.ApproveBy)
		case len(s.WaitsFor) > 0:
			why = "waits for " + strings.Join(s.WaitsFor, " and ")
		case s.KeptFrom != nil:
			why = "kept from run " + s.KeptFrom.String()
		case s.SetBy != nil:
			why = "set by " + *s.SetBy
			if s.Note != nil {
				why += ": " + *s.Note
			}
		}
		return []any{s.Name, s.Status, instant(s.StartedAt), instant(s.FinishedAt), orDash(s.Run), why}
	})
}

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
