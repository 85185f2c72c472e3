package domain

import (
	"fmt"
	"strings"
	"testing"

	"punctual/scheduler/jobspec"
)

// graphOf makes steps of "a b<a c<a,b".
func graphOf(text string) (steps []jobspec.Step) {
	for _, word := range strings.Fields(text) {
		name, on, depends := strings.Cut(word, "<")
		s := jobspec.Step{Name: name}
		if depends {
			s.DependsOn = strings.Split(on, ",")
		}
		steps = append(steps, s)
	}
	return steps
}

func TestPlanOfARerun(t *testing.T) {
	const etl = "extract transform<extract check<extract load<transform,check clean<load"
	for _, c := range []struct{ name, now, before, succeeded, from, set, want string }{
		{"of the whole", etl, etl, "extract transform check load clean", "", "", "runs extract transform check load clean"},
		{
			"from a step", etl, etl, "extract transform check clean", "load", "",
			"runs load clean kept extract transform check",
		},
		{
			"what has failed runs again, too", etl, etl, "extract transform clean", "transform", "",
			"runs transform check load clean kept extract",
		},
		{
			"what depends on a failed step is not kept", "a b<a c d<c", "a b<a c d<c", "b c d", "d", "",
			"runs a b d kept c",
		},
		{"with a step set", etl, etl, "extract transform", "", "check", "runs load clean kept extract transform set check"},
		{"below a step set", etl, etl, "extract transform check load", "", "extract", "runs transform check load clean set extract"},
		{"set below from", etl, etl, "extract", "extract", "load", "runs extract transform check clean set load"},
		{"of nothing that has run", etl, "", "", "load", "", "runs extract transform check load clean"},
		{"a new step runs", "a b<a n", "a b<a", "a", "b", "", "runs b n kept a"},
		{"in another order", "b<x,a x a", "a x b<a,x", "a b x", "x", "", "runs b x kept a"},
		{"a kept step is gone", "a c<a", "a b<a c<a", "a b", "c", "", "runs c kept a refused b"},
		{"a step that is gone is named", "a c<a", "a b<a c<a", "a b", "c b", "", "runs c kept a"},
		{"a step that is gone has failed", "a c<a", "a b<a c<a", "a", "c", "", "runs c kept a"},
		{"a step that is gone is below", "a", "a b<a", "a b", "a", "", "runs a"},
		{"a kept step depends on others", "a b c<b", "a b c<a", "a b c", "b", "", "runs b c kept a"},
		{"a kept step depends on others now", "a b c<b d", "a b c<a d", "a b c", "d", "", "runs d kept a b refused c"},
		{"no such step", etl, etl, "", "lod", "", `from[0]: there is no step "lod"; did you mean load?`},
		{"no such step to set", etl, "x", "", "x", "x", `set.x: there is no step "x" set.x: it is in from, too: a step either runs again or is set`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, succeeded := StepRerun{From: strings.Fields(c.from), Set: map[string]SetStep{}}, map[string]bool{}
			for _, name := range strings.Fields(c.set) {
				r.Set[name] = SetStep{}
			}
			for _, name := range strings.Fields(c.succeeded) {
				succeeded[name] = true
			}
			p, problems := r.Plan(graphOf(c.now), graphOf(c.before), succeeded)
			var said []string
			for _, problem := range problems {
				said = append(said, problem.Field+": "+problem.Message)
			}
			if problems == nil {
				for i, list := range [][]string{p.Runs, p.Kept, p.Set} {
					if len(list) > 0 {
						said = append(said, [...]string{"runs", "kept", "set"}[i]+" "+strings.Join(list, " "))
					}
				}
				for _, s := range p.Refused {
					said = append(said, "refused "+s.Step)
				}
			}
			if got := strings.Join(said, " "); got != c.want {
				t.Errorf("the plan is\n%s, want\n%s", got, c.want)
			}
		})
	}
	p, _ := StepRerun{From: []string{"d"}}.Plan(graphOf("a b c<b d"), graphOf("a b c<a d"), map[string]bool{"c": true})
	if got := fmt.Sprint(p.Refused); got != "[]" { // a has not succeeded, so c runs again
		t.Errorf("refused %s", got)
	}
}
