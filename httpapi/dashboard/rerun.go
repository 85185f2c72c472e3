package dashboard

import (
	"cmp"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/runs"
)

// planView is the page that asks before a workflow is rerun from a step.
type planView struct {
	Run        runs.Run
	From       string
	Definition string // current or original
	Other      string // the one that may be chosen in its place; empty: they are the same
	Chains     bool   // its end may trigger other jobs
	Plan       domain.RerunPlan
	Problem    *problem.Problem
}

// planRerun shows which steps a rerun would run again, and which it would keep.
func (v *visit) planRerun() error {
	if err := v.needs(auth.RoleEditor, "Rerunning a workflow from a step"); err != nil {
		return err
	}
	run, err := call(v, client.Run, nil, v.part("run"))
	if err != nil {
		return err
	}
	view := planView{Run: run, From: v.param("from"), Definition: cmp.Or(v.param("definition"), httpapi.DefinitionCurrent)}
	if job, err := call(v, client.Job, nil, run.JobID.String()); err == nil {
		v.zoneOfJob, view.Chains = zoneOf(job.Schedule), len(job.Then) > 0
		if job.Version != run.JobVersion {
			view.Other = httpapi.DefinitionOriginal
		}
	}
	if view.Definition != httpapi.DefinitionCurrent {
		view.Other = httpapi.DefinitionCurrent
	}
	in := httpapi.RerunInput{Definition: view.Definition, DryRun: true}
	if view.From != "" {
		in.From = []string{view.From}
	}
	view.Plan, err = call(v, client.PlanRerun, in, run.ID.String())
	view.Problem, err = refused(err)
	return v.shows(err, "rerun", "Rerun "+run.Job, view)
}
