package prove

import (
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// workflow returns the definition by which a run is that of a workflow; nil: it is of none.
func (k *check) workflow(r *Run) *jobspec.Definition {
	j := k.jobs[r.Job]
	if j == nil || r.Step != "" || r.isRange() {
		return nil
	}
	for i := range j.Versions {
		if d := &j.Versions[i].Definition; d.IsWorkflow() {
			return d
		}
	}
	return nil
}

// waitsForApproval reports whether a run is of a step that a person approves or rejects.
func (k *check) waitsForApproval(r *Run) bool {
	j := k.jobs[r.Job]
	return j != nil && r.Step != "" && slices.ContainsFunc(j.Versions, func(v Version) bool {
		return slices.ContainsFunc(v.Definition.Steps, func(s jobspec.Step) bool {
			return s.Name == r.Step && s.Approval != nil
		})
	})
}

// workflows checks that each step has one run or none, under the id that it must have, that it starts after those that
// it depends on, and that nothing is left to do once the workflow has ended.
func (k *check) workflows() {
	byWorkflow := map[uuid.UUID]map[string]domain.StepRun{}
	for i := range k.Runs {
		r := &k.Runs[i]
		if r.Step == "" {
			continue
		}
		if r.Workflow == nil || k.runs[*r.Workflow] == nil || r.ID != domain.StepRunID(*r.Workflow, r.Step) {
			k.failRun(StepsInOrder, r, "is of step %s, and not under its id", r.Step)
			continue
		}
		if byWorkflow[*r.Workflow] == nil {
			byWorkflow[*r.Workflow] = map[string]domain.StepRun{}
		}
		byWorkflow[*r.Workflow][r.Step] = domain.StepRun{
			ID: r.ID, Status: domain.Status(r.Status), Reason: domain.Reason(r.Reason),
		}
	}
	for i := range k.Runs {
		whole := &k.Runs[i]
		d := k.workflow(whole)
		if d == nil || whole.Status == "skipped" {
			continue
		}
		steps := byWorkflow[whole.ID]
		if whole.Status == "succeeded" || whole.Status == "dead" && whole.Reason != "timeout" {
			if next := domain.AdvanceSteps(*d, whole.ID, steps, false); len(next.Enter)+len(next.Skip) > 0 || !next.Ended {
				k.failRun(StepsInOrder, whole, "is %s, and its steps are %v", whole.Status, steps)
			}
		}
		for _, s := range d.Steps {
			for _, on := range s.DependsOn {
				k.inStepOrder(whole, s.Name, on)
			}
		}
	}
}

// inStepOrder checks that a step was sent after the one that it depends on had ended. When its run was made says less:
// that is when the transaction began, which may have waited for the end of the other.
func (k *check) inStepOrder(whole *Run, step, on string) {
	later, before := k.runs[domain.StepRunID(whole.ID, step)], k.runs[domain.StepRunID(whole.ID, on)]
	if later == nil || later.taken() || k.ClockSteps {
		return
	}
	if before == nil || before.FinishedAt == nil {
		k.failRun(StepsInOrder, later, "of step %s was made, and step %s has not ended", step, on)
		return
	}
	if sent := k.inOrder(later.ID); len(sent) > 0 && sent[0].At.Before(before.FinishedAt.Add(-clockError)) {
		k.failRun(StepsInOrder, later, "of step %s was sent at %s, before step %s had ended at %s", step,
			clock(sent[0].At), on, clock(*before.FinishedAt))
	}
}
