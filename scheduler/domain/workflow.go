package domain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// StepRun is the run of a step, as far as it has come. A step that has not started has none.
type StepRun struct {
	ID         uuid.UUID
	Status     Status
	Reason     Reason
	Error      string
	CausedBy   uuid.UUID // of a step that was skipped: the run because of which
	FinishedAt time.Time // zero: it has not ended
}

// Advance is what follows from how far the steps of a workflow have come.
type Advance struct {
	Enter []jobspec.Step // steps whose runs are to be made, and sent
	Skip  []SkippedStep
	Ended bool // no step runs, or will
}

// SkippedStep is a step that is not to run.
type SkippedStep struct {
	Step     jobspec.Step
	Reason   Reason
	CausedBy uuid.UUID // the run that keeps it from running
	Error    string
}

// MayCleanUp reports whether a step that cleans up has not ended.
func MayCleanUp(d jobspec.Definition, runs map[string]StepRun) bool {
	return slices.ContainsFunc(d.Steps, func(s jobspec.Step) bool { return s.CleansUp() && !runs[s.Name].Status.Final() })
}

// LateStep says why a step ended or did not start whose workflow's time was up.
const LateStep = "its workflow has reached its max_duration"

// AdvanceSteps decides what follows from the runs of a workflow's steps, by step. It depends on nothing else, so it may
// be called any number of times: steps that have a run are left as they are. Once the workflow is halted, because it
// was cancelled, no step starts any more.
func AdvanceSteps(d jobspec.Definition, workflow uuid.UUID, runs map[string]StepRun, halted bool) (a Advance) {
	return advance(d, workflow, runs, halted, false)
}

// CleanUpSteps is AdvanceSteps for a workflow whose max_duration has passed: of the steps that have not started, only
// those that clean up start, and the others are skipped.
func CleanUpSteps(d jobspec.Definition, workflow uuid.UUID, runs map[string]StepRun) Advance {
	return advance(d, workflow, runs, false, true)
}

func advance(d jobspec.Definition, workflow uuid.UUID, runs map[string]StepRun, halted, late bool) (a Advance) {
	state := make(map[string]StepRun, len(d.Steps))
	maps.Copy(state, runs)
	for again := !halted; again; {
		again = false
		for i := range d.Steps { // steps are large
			s := &d.Steps[i]
			if _, has := state[s.Name]; has {
				continue
			}
			ready, cause := mayStart(s, state)
			if !ready {
				continue
			}
			again = true
			r := StepRun{ID: StepRunID(workflow, s.Name), Status: StatusPending}
			switch by := state[cause]; {
			case cause != "":
				r.Status, r.Reason, r.CausedBy, r.Error = StatusSkipped, ReasonUpstreamFailed, by.ID, by.told(cause)
				if by.Reason == ReasonUpstreamFailed { // the step that kept that one from running keeps this one, too
					r.CausedBy, r.Error = by.CausedBy, by.Error
				}
			case late && !s.CleansUp():
				r.Status, r.Reason, r.CausedBy, r.Error = StatusSkipped, ReasonTimeout, workflow, LateStep
			default:
				a.Enter = append(a.Enter, *s)
			}
			if r.Status == StatusSkipped {
				a.Skip = append(a.Skip, SkippedStep{Step: *s, Reason: r.Reason, CausedBy: r.CausedBy, Error: r.Error})
			}
			state[s.Name] = r
		}
	}
	a.Ended = true
	for i := range d.Steps {
		r, has := state[d.Steps[i].Name]
		a.Ended = a.Ended && (has && r.Status.Final() || !has && halted)
	}
	return a
}

// mayStart reports whether the steps that s depends on have ended. If one of them keeps s from running, mayStart names
// it.
func mayStart(s *jobspec.Step, runs map[string]StepRun) (ready bool, cause string) {
	for _, on := range s.DependsOn {
		r := runs[on]
		if !r.Status.Final() {
			return false, ""
		}
		if cause == "" && s.When != jobspec.WhenEnded && r.Status != StatusSucceeded {
			cause = on
		}
	}
	return true, cause
}

// told says how a step ended, for people.
func (r StepRun) told(step string) string {
	text := fmt.Sprintf("step %s is %s", step, r.Status)
	if r.Reason != "" {
		text += " (" + string(r.Reason) + ")"
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}

// JudgeSteps decides how a workflow ends whose steps have ended. It is dead if one of them is, with the reason of the
// one that died first. It is dead, too, if a step was cancelled by itself, and else it has succeeded. halted says why
// the workflow was cancelled; empty: it was not.
func JudgeSteps(a Assignment, runs map[string]StepRun, halted Reason, started, now time.Time) Outcome {
	o := Outcome{Assignment: a, Verdict: Succeed, StartedAt: started, FinishedAt: now}
	if halted != "" {
		o.Verdict, o.Reason = Cancel, halted
		return o
	}
	failed := slices.DeleteFunc(slices.Sorted(maps.Keys(runs)), func(step string) bool {
		return runs[step].Status == StatusSucceeded || runs[step].Reason == ReasonUpstreamFailed
	})
	if len(failed) == 0 {
		return o
	}
	alive := func(r StepRun) int {
		if r.Status == StatusDead {
			return 0
		}
		return 1
	}
	name := slices.MinFunc(failed, func(a, b string) int {
		x, y := runs[a], runs[b]
		return cmp.Or(alive(x)-alive(y), x.FinishedAt.Compare(y.FinishedAt))
	})
	worst := runs[name]
	o.Verdict, o.Reason, o.Error = Bury, worst.Reason, worst.told(name)
	if worst.Status != StatusDead {
		o.Reason = ReasonUpstreamFailed
	}
	return o
}
