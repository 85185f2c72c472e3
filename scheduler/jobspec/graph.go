package jobspec

import (
	"slices"
	"time"
)

// cleanUpGrace is how long the steps that clean up may take after the max_duration of their workflow, which bounds it,
// too.
const cleanUpGrace = 5 * time.Minute

// CleanUpGrace is for how long steps that clean up may run once the max_duration of their workflow has passed.
func (d Definition) CleanUpGrace() time.Duration { return min(d.MaxDuration.Value(), cleanUpGrace) }

// CleansUp reports whether the step runs however those before it end, and so even after the max_duration of its
// workflow.
func (s *Step) CleansUp() bool { return s.When == WhenEnded && len(s.DependsOn) > 0 }

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

// circle returns the path of a circle, from a step back to itself, each followed by one that depends on it; nil: there
// is none.
func circle(steps []Step) []string {
	on := make(map[string][]string, len(steps))
	for _, s := range steps {
		on[s.Name] = s.DependsOn
	}
	done := map[string]bool{}
	var path []string
	var visit func(string) []string
	visit = func(name string) []string {
		if at := slices.Index(path, name); at >= 0 {
			return append(slices.Clone(path[at:]), name)
		}
		if done[name] {
			return nil
		}
		path = append(path, name)
		for _, next := range on[name] {
			if next == name {
				continue // it is reported where it stands
			}
			if found := visit(next); found != nil {
				return found
			}
		}
		path, done[name] = path[:len(path)-1], true
		return nil
	}
	for _, s := range steps {
		if found := visit(s.Name); found != nil {
			slices.Reverse(found)
			return found
		}
	}
	return nil
}
