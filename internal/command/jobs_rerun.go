package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
)

type rerunRun struct {
	api
	RunID string `arg:"" name:"run" help:"Id of the run, as jobs run and jobs runs print it."`

	From       []string          `placeholder:"STEP" help:"Of a job with steps: this runs again, with all that depend on it. The others are kept if they have succeeded. Repeat it, or separate steps by commas. Default: all steps run again."`
	Set        map[string]string `mapsep:"none" placeholder:"STEP=RESULT" help:"Of a job with steps: this is not run, but taken as succeeded, with a result in JSON or in the file that follows @, such as extract=@rows.json. Repeat it for more steps."`
	Note       string            `placeholder:"TEXT" help:"Reason for --set, for people to read."`
	Definition string            `enum:"current,original" default:"current" placeholder:"WORD" help:"Of a job with steps: current, or original for the version that the run used. Default: ${default}."`
	DryRun     bool              `help:"Of a job with steps: only say what becomes of each step."`
}

func (c *rerunRun) Run(ctx context.Context, api *client.Client) error {
	with := httpapi.RerunInput{From: c.From}
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
		plan, err := api.PlanRerun(ctx, c.RunID, with)
		return printPlan(plan, err)
	}
	run, err := api.RerunRun(ctx, c.RunID, with)
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
