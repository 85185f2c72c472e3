package domain

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
)

// StepRun is the run of a step, as far as it has come. A step that has not started has none.
type StepRun struct {
	ID         uuid.UUID
	Status     Status
	Reason     Reason
	Error      string
	CausedBy   uuid.UUID // of a step that was skipped: the run because of which
	FinishedAt time.Time // zero: it has not ended
	Result     json.RawMessage
}

// Advance is what follows from how far the steps of a workflow have come.
type Advance struct {
	Enter []Step // steps whose runs are to be made, and sent
	Skip  []SkippedStep
	Ended bool // no step runs, or will
}

// SkippedStep is a step that is not to run.
type SkippedStep struct {
	Step     Step
	CausedBy uuid.UUID // the run that keeps it from running
	Error    string
}

// Advance decides what follows from the runs of a workflow's steps, by step. It depends on nothing else, so it may be
// called any number of times: steps that have a run are left as they are. Once the workflow is halted, because it was
// cancelled, no step starts any more.
func (d Definition) Advance(workflow uuid.UUID, runs map[string]StepRun, halted bool) (a Advance) {
	state := make(map[string]StepRun, len(d.Steps))
	maps.Copy(state, runs)
	for again := !halted; again; {
		again = false
		for i := range d.Steps { // steps are large
			s := &d.Steps[i]
			if _, has := state[s.Name]; has {
				continue
			}
			ready, cause := s.ready(state)
			if !ready {
				continue
			}
			again = true
			r := StepRun{ID: StepRunID(workflow, s.Name), Status: StatusPending}
			if cause == "" {
				a.Enter = append(a.Enter, *s)
			} else {
				by := state[cause]
				r.Status, r.Reason, r.CausedBy, r.Error = StatusSkipped, ReasonUpstreamFailed, by.ID, by.told(cause)
				if by.Reason == ReasonUpstreamFailed { // the step that kept that one from running keeps this one, too
					r.CausedBy, r.Error = by.CausedBy, by.Error
				}
				a.Skip = append(a.Skip, SkippedStep{Step: *s, CausedBy: r.CausedBy, Error: r.Error})
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

// After returns the part of a workflow that decides what follows when steps end: the steps that depend on them, and
// all that these depend on. If no step depends on one of them, the workflow may have ended: then it has all such steps,
// too. What Advance says about the part holds for the whole, unless it says that all have ended, skips a step, on which
// others may depend, or the workflow is halted.
//
// last says that it has all steps on which none depends. A step starts when those before it have ended, so if these
// have ended, all have: but for a rerun, which takes steps as succeeded.
func (d *Definition) After(ended []string) (part Definition, last bool) {
	var near, on uint64 // sets of steps: there are at most MaxSteps, which is less than 64
	for i := range d.Steps {
		follows, before := false, uint64(0)
		for _, name := range d.Steps[i].DependsOn {
			before |= d.only(name)
			follows = follows || slices.Contains(ended, name)
		}
		if on |= before; follows {
			near |= before | 1<<i
		}
	}
	for _, name := range ended {
		last = last || on&d.only(name) == 0
	}
	for i := range d.Steps {
		if near&(1<<i) != 0 || last && on&(1<<i) == 0 {
			part.Steps = append(part.Steps, d.Steps[i])
		}
	}
	return part, last
}

// only returns the set of one step.
func (d *Definition) only(step string) uint64 {
	for i := range d.Steps {
		if d.Steps[i].Name == step {
			return 1 << i
		}
	}
	return 0
}

// ready reports whether the steps that s depends on have ended. If one of them keeps s from running, ready names it.
func (s *Step) ready(runs map[string]StepRun) (ready bool, cause string) {
	for _, on := range s.DependsOn {
		r := runs[on]
		if !r.Status.Final() {
			return false, ""
		}
		if cause == "" && s.When != WhenEnded && r.Status != StatusSucceeded {
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

// escaped keeps braces in data from being read as placeholders. Outside of strings JSON has no two in a row.
func escaped(data []byte) json.RawMessage {
	var text bytes.Buffer
	if json.Compact(&text, data) != nil {
		return nil
	}
	return bytes.ReplaceAll(text.Bytes(), []byte("{{"), []byte("{{{{"))
}

// MaxStepResults bounds the results that a step is sent, together, in bytes. The largest beyond it are named only.
const MaxStepResults = 256 << 10

// stepResult is what a step is told of one that it depends on.
type stepResult struct {
	Status Status          `json:"status"`
	Reason Reason          `json:"reason,omitempty"`
	Result json.RawMessage `json:"result"`
}

// leftOut stands for a result that is too large.
type leftOut struct {
	Bytes int    `json:"bytes"`
	Href  string `json:"href"`
}

// StepBody returns the body of a step's request. It has the members of its own body, input, which is the body of the
// workflow's run, and steps, the results of the steps that it depends on. nil: the step sends its own body as it is,
// because that is no object, or its method has none. Braces in results are no placeholders. run is the step's own run:
// its token reads the results that are left out.
func (s Step) StepBody(run uuid.UUID, input json.RawMessage, runs map[string]StepRun) []byte {
	own := map[string]json.RawMessage{}
	if len(s.Target.Body) > 0 && json.Unmarshal(s.Target.Body, &own) != nil || s.Target.Method == "GET" ||
		s.Target.Method == "HEAD" {
		return nil
	}
	if len(input) == 0 && len(s.DependsOn) == 0 {
		return nil
	}
	if own == nil { // its own body is null
		own = map[string]json.RawMessage{}
	}
	results, sum := map[string]stepResult{}, 0
	for _, on := range s.DependsOn {
		r := runs[on]
		results[on] = stepResult{r.Status, r.Reason, r.Result}
		sum += len(r.Result)
	}
	for _, on := range slices.SortedFunc(slices.Values(s.DependsOn), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(runs[b].Result), len(runs[a].Result)), cmp.Compare(a, b))
	}) {
		if sum <= MaxStepResults {
			break
		}
		r := results[on]
		sum -= len(r.Result)
		href := "/v1/runs/" + run.String() + "/results/" + url.PathEscape(on)
		r.Result, _ = json.Marshal(leftOut{len(r.Result), href}) // never fails
		results[on] = r
	}
	if len(input) > 0 {
		own["input"] = escaped(input)
	}
	if text, err := json.Marshal(results); err == nil && len(results) > 0 {
		own["steps"] = escaped(text)
	}
	body, _ := json.Marshal(own) // nil if the result of a step is no JSON
	return body
}
