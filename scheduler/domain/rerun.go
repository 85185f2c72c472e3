package domain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"punctual/scheduler/jobspec"
	"punctual/scheduler/placeholder"
)

// StepRerun says what a rerun does with the steps of a workflow. Its zero value lets all of them run again.
type StepRerun struct {
	From []string           // they run again, and so does all that depends on them
	Set  map[string]SetStep // they are taken as succeeded
}

// SetStep is how a step is taken as succeeded.
type SetStep struct {
	Result json.RawMessage // nil: none
	Note   string          // why, for people
}

// RerunPlan is what a rerun does with each step, in the order of the definition.
type RerunPlan struct {
	Runs    []string      `json:"runs" doc:"The steps that run again: those in from, those that have not succeeded, and all that depend on one of them or on one in set." example:"[\"load\",\"clean-up\"]"`
	Kept    []string      `json:"kept" doc:"The steps that have succeeded and are not run again: they keep their results." example:"[\"transform\",\"check\"]"`
	Set     []string      `json:"set" doc:"The steps that are taken as succeeded." example:"[\"extract\"]"`
	Refused []RefusedStep `json:"refused" doc:"The steps that would be kept, but do not fit the definition. While there is one, the rerun is refused."`
}

// RefusedStep is a step that has succeeded, but does not fit the definition of the rerun.
type RefusedStep struct {
	Step string `json:"step" doc:"Its name." example:"check"`
	Why  string `json:"why" doc:"Why it cannot be kept, for people." example:"the definition has no such step any more"`
}

// Plan decides which of the steps now run again and which are kept. Those before are the steps of the run that is
// repeated, of which some have succeeded. A step is kept if it has succeeded and all that it depends on is kept.
// The problems are of names in r.
func (r StepRerun) Plan(now, before []jobspec.Step, succeeded map[string]bool,
) (p RerunPlan, problems []jobspec.Problem) {
	p = RerunPlan{Runs: []string{}, Kept: []string{}, Set: []string{}, Refused: []RefusedStep{}}
	all := slices.Clone(now)
	for _, s := range before {
		if find(now, s.Name) == nil {
			all = append(all, s)
		}
	}
	if problems = r.check(now, all); problems != nil {
		return p, problems
	}
	again := map[string]bool{}
	for found := true; found; {
		found = false
		for _, s := range all {
			if _, set := r.Set[s.Name]; !set && !again[s.Name] && r.runs(s, again, succeeded) {
				again[s.Name], found = true, true
			}
		}
	}
	for _, s := range all {
		_, set := r.Set[s.Name]
		why := ""
		if !set && !again[s.Name] {
			why = misfit(find(now, s.Name), find(before, s.Name))
		}
		switch {
		case set:
			p.Set = append(p.Set, s.Name)
		case why != "":
			p.Refused = append(p.Refused, RefusedStep{s.Name, why})
		case !again[s.Name]:
			p.Kept = append(p.Kept, s.Name)
		case find(now, s.Name) != nil:
			p.Runs = append(p.Runs, s.Name)
		}
	}
	return p, nil
}

// runs reports whether a step runs again because of itself or of others that do.
func (r StepRerun) runs(s jobspec.Step, again, succeeded map[string]bool) bool {
	return len(r.From)+len(r.Set) == 0 || !succeeded[s.Name] || slices.Contains(r.From, s.Name) ||
		slices.ContainsFunc(s.DependsOn, func(on string) bool {
			_, set := r.Set[on]
			return set || again[on]
		})
}

// check returns what is wrong with the names.
func (r StepRerun) check(now, all []jobspec.Step) (problems []jobspec.Problem) {
	for i, name := range r.From {
		if find(all, name) == nil {
			problems = append(problems, jobspec.Blame(fmt.Sprintf("from[%d]", i), "there is no step %q%s",
				placeholder.Clip(name),
				jobspec.DidYouMean(name, jobspec.StepNames(now)...)))
		}
	}
	for name := range r.Set {
		at := "set." + placeholder.Clip(name)
		if find(now, name) == nil {
			problems = append(problems, jobspec.Blame(at, "there is no step %q%s", placeholder.Clip(name),
				jobspec.DidYouMean(name, jobspec.StepNames(now)...)))
		}
		if slices.Contains(r.From, name) {
			problems = append(problems, jobspec.Blame(at, "it is in from, too: a step either runs again or is set"))
		}
	}
	slices.SortFunc(problems, func(a, b jobspec.Problem) int { return strings.Compare(a.Field, b.Field) })
	return problems
}

// misfit says why a step that has succeeded cannot be kept; empty: it can.
func misfit(now, before *jobspec.Step) string {
	if now == nil {
		return "the definition has no such step any more"
	}
	is, was := slices.Sorted(slices.Values(now.DependsOn)), slices.Sorted(slices.Values(before.DependsOn))
	if slices.Equal(is, was) {
		return ""
	}
	return "it depends on " + listed(is) + " now, and depended on " + listed(was) + " when it ran"
}

func listed(names []string) string {
	if len(names) == 0 {
		return "no step"
	}
	return strings.Join(names, " and ")
}

func find(steps []jobspec.Step, name string) *jobspec.Step {
	if i := slices.IndexFunc(steps, func(s jobspec.Step) bool { return s.Name == name }); i >= 0 {
		return &steps[i]
	}
	return nil
}
