package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
	"punctual/store/runs"
)

type runSteps struct {
	api
	RunID string `arg:"" name:"run" help:"Id of the run."`
	JSON  bool   `name:"json" help:"Print the API's answer in full, for programs."`
}

func (c *runSteps) Run(ctx context.Context, api *client.Client) error {
	run, err := client.Run.Do(ctx, api, nil, c.RunID)
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
	return printFirst(newest{JSON: c.JSON}, "newest", list, nil, header, func(s runs.StepState) []any {
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
	RunID string `arg:"" name:"run" help:"Id of the step's run, or of the workflow's while one step of it waits."`
	Note  string `placeholder:"TEXT" help:"Reason, for people."`
}

func (c *oneDecision) decide(
	ctx context.Context, api *client.Client, how client.Call[httpapi.NoteInput, runs.Run], became string,
) error {
	run, err := how.Do(ctx, api, httpapi.NoteInput{Note: c.Note}, c.RunID)
	return done(err, "the step %s of %s is %s", run.Step, run.Job, became)
}

type approveRun struct{ oneDecision }

func (c *approveRun) Run(ctx context.Context, api *client.Client) error {
	return c.decide(ctx, api, client.ApproveRun, "approved")
}

type rejectRun struct{ oneDecision }

func (c *rejectRun) Run(ctx context.Context, api *client.Client) error {
	return c.decide(ctx, api, client.RejectRun, "rejected")
}

type rerunRun struct {
	api
	RunID string `arg:"" name:"run" help:"Id of the run."`

	From       []string          `placeholder:"STEP" help:"Steps that run again, with all that depend on them: separated by commas, or repeat the flag. Others are kept if they succeeded. Default: all."`
	Set        map[string]string `mapsep:"none" placeholder:"STEP=RESULT" help:"Step that is taken as succeeded, with a result in JSON or in the file after @, such as extract=@rows.json. May be repeated."`
	Note       string            `placeholder:"TEXT" help:"Reason for --set, for people."`
	Definition string            `enum:"current,original" default:"current" placeholder:"WORD" help:"Version of the steps: current, or original, which the run used. Default: ${default}."`
	DryRun     bool              `help:"Only say what becomes of each step."`
}

func (c *rerunRun) Run(ctx context.Context, api *client.Client) error {
	with := httpapi.RerunInput{From: c.From, DryRun: c.DryRun}
	if c.Definition != httpapi.DefinitionCurrent {
		with.Definition = c.Definition
	}
	if c.Set != nil {
		with.Set = map[string]httpapi.SetInput{}
	}
	for step, result := range c.Set {
		raw := []byte(result)
		if path, file := strings.CutPrefix(result, "@"); file {
			var err error
			if raw, err = read(path); err != nil {
				return fmt.Errorf("--set %s: %w", step, err)
			}
		}
		if !json.Valid(raw) {
			return fmt.Errorf(
				"--set %s: the result is not JSON; write a text in quotes, a file as @FILE, no result as null", step)
		}
		with.Set[step] = httpapi.SetInput{Result: raw, Note: c.Note}
	}
	if c.DryRun {
		plan, err := client.PlanRerun.Do(ctx, api, with, c.RunID)
		return printPlan(plan, err)
	}
	run, err := client.RerunRun.Do(ctx, api, with, c.RunID)
	return result(run.ID, err)
}

// printPlan prints what a rerun does with each step, a line a step, unless planning failed.
func printPlan(plan domain.RerunPlan, err error) error {
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, part := range []struct {
		became string
		steps  []string
	}{{"runs", plan.Runs}, {"kept", plan.Kept}, {"set", plan.Set}} {
		for _, step := range part.steps {
			fmt.Fprintf(&b, "%-8s%s\n", part.became, step)
		}
	}
	for _, s := range plan.Refused {
		fmt.Fprintf(&b, "%-8s%s: %s\n", "refused", s.Step, s.Why)
	}
	_, err = fmt.Print(b.String())
	return err
}
