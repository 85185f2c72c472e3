package jobspec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// MaxSteps is how many steps a workflow may have.
const MaxSteps = 50

// DefaultWorkflowDuration is the max_duration of a workflow that sets none. A live workflow keeps the tables of its
// day.
var DefaultWorkflowDuration = mustDuration("168h")

// Step is one request of a workflow. Its run is a run like any other, but for its schedule and its overlap: these are
// the workflow's. What a step leaves out is as its job says.
type Step struct {
	Name             string     `json:"name" doc:"Unique within the job: 1 to 128 letters, digits and . _ : -." example:"load"`
	DependsOn        []string   `json:"depends_on,omitempty" maxItems:"49" doc:"The steps that must have ended before it starts. Absent: none." example:"[\"extract\"]"`
	When             LinkWhen   `json:"when,omitempty" minLength:"1" enum:"succeeded,ended" doc:"succeeded: it starts if all that it depends on have succeeded, else it is skipped; ended: it starts when they have ended, even if they failed, and even after the job's max_duration. Absent: succeeded."`
	Target           Target     `json:"target,omitzero" doc:"The HTTP request to send. Its body gets the members input and steps. Absent: the step has approval."`
	Approval         *Approval  `json:"approval,omitempty" doc:"In place of target: the step waits until a person approves or rejects it. It then has name, depends_on and when only. Absent: it sends its request."`
	Timeout          Duration   `json:"timeout,omitzero" doc:"Absent: the job's." example:"10m"`
	Retry            Retry      `json:"retry,omitzero" doc:"Absent fields are the job's."`
	Queue            string     `json:"queue,omitempty" minLength:"1" doc:"Absent: the job's." example:"default"`
	Priority         Priority   `json:"priority,omitempty" minLength:"1" doc:"Absent: the job's."`
	Delivery         Delivery   `json:"delivery,omitempty" minLength:"1" doc:"Absent: the job's."`
	Completion       Completion `json:"completion,omitempty" minLength:"1" doc:"Absent: the job's."`
	HeartbeatTimeout Duration   `json:"heartbeat_timeout,omitzero" doc:"With completion async: as in a job. Absent: 5m." example:"5m"`
	MaxDuration      Duration   `json:"max_duration,omitzero" doc:"With completion async: the longest that an attempt may take. Absent: 24h." example:"2h"`
	KeepResponse     *int       `json:"keep_response,omitempty" minimum:"0" maximum:"65536" doc:"Absent: the job's." example:"4096"`
	LogURL           string     `json:"log_url,omitempty" minLength:"1" doc:"Absent: the job's." example:"https://logs.example.com/search?q={{run}}"`
	Limits           []string   `json:"limits,omitzero" maxItems:"4" doc:"Up to four limits that the step holds while it runs. Absent: the job's; an empty list: none." example:"[\"warehouse\"]"`
}

// IsWorkflow reports whether the job has steps in place of a target.
func (d Definition) IsWorkflow() bool { return len(d.Steps) > 0 }

// AllLimits returns the limits that the job or its steps name, sorted, each once.
func (d Definition) AllLimits() []string {
	all := slices.Clone(d.Limits)
	for _, s := range d.Steps {
		all = append(all, s.Limits...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Definition is the step as a job of its own that runs when triggered.
func (s Step) Definition(whole Definition) Definition {
	d := Definition{
		Name: whole.Name, Labels: whole.Labels, Target: s.Target, ConcurrencyPolicy: PolicyAllow,
		Timeout: s.Timeout, Retry: s.Retry, Queue: s.Queue, Priority: s.Priority, Delivery: s.Delivery,
		Completion: s.Completion, HeartbeatTimeout: s.HeartbeatTimeout, MaxDuration: s.MaxDuration,
		KeepResponse: s.KeepResponse, LogURL: s.LogURL, Limits: s.Limits,
		Missed: Missed{Tolerance: whole.Missed.Tolerance}, Notify: []Notify{},
	}
	fill(&d.Timeout, whole.Timeout)
	fill(&d.Queue, whole.Queue)
	fill(&d.Priority, whole.Priority)
	fill(&d.Delivery, whole.Delivery)
	fill(&d.Completion, whole.Completion)
	fill(&d.KeepResponse, whole.KeepResponse)
	fill(&d.LogURL, whole.LogURL)
	if d.Completion == CompleteAsync {
		fill(&d.HeartbeatTimeout, whole.HeartbeatTimeout)
	}
	if d.Limits == nil {
		d.Limits = whole.Limits
	}
	r, w := &d.Retry, whole.Retry
	fill(&r.MaxAttempts, w.MaxAttempts)
	fill(&r.InitialBackoff, w.InitialBackoff)
	fill(&r.Multiplier, w.Multiplier)
	fill(&r.MaxBackoff, w.MaxBackoff)
	fill(&r.AfterTimeout, w.AfterTimeout)
	if r.GiveUpOn == nil {
		r.GiveUpOn = w.GiveUpOn
	}
	d.fillAfterTimeout(whole.WithDefaults().ConcurrencyPolicy)
	return d
}

// steps checks the steps of a workflow. Their fields are checked as those of a job are.
func (c *checker) steps(d Definition) {
	if !d.IsWorkflow() {
		return
	}
	c.atMost("steps", len(d.Steps), "steps", MaxSteps)
	if !reflect.ValueOf(d.Target).IsZero() {
		c.add("target", "a job with steps has none: each step has its own; leave it out, or, in a patch, write null")
	}
	known := map[string]bool{}
	for i, s := range d.Steps {
		at := fmt.Sprintf("steps[%d]", i)
		switch {
		case s.Name == "":
			c.add(at+".name", "is required: 1 to 128 letters, digits and . _ : -")
		case !NameForm.MatchString(s.Name):
			c.add(at+".name", "%q: %s", clip(s.Name), NameRule)
		case known[s.Name]:
			c.add(at+".name", "%q is the name of an earlier step; choose another", s.Name)
		}
		known[s.Name] = true
		if s.When != "" && s.When != WhenSucceeded && s.When != WhenEnded {
			notOneOf(c, at+".when", s.When, []LinkWhen{WhenSucceeded, WhenEnded})
		}
		if s.Approval != nil {
			c.approval(at, s, d)
			continue
		}
		own := s.Definition(Definition{Name: "step", Completion: d.Completion})
		for _, p := range own.Validate() {
			c.add(at+"."+p.Field, "%s", p.Message)
		}
		c.stepSecrets(at, s)
		c.given(at+".target.body.", s.Target.Body)
	}
	for i, s := range d.Steps {
		for k, on := range s.DependsOn {
			at := fmt.Sprintf("steps[%d].depends_on[%d]", i, k)
			switch {
			case on == s.Name:
				c.add(at, "%q is the step itself", on)
			case !known[on]:
				c.add(at, "there is no step %q%s", clip(on), DidYouMean(on, StepNames(d.Steps)...))
			case slices.Contains(s.DependsOn[:k], on):
				c.add(at, "%q stands there twice; name it once", on)
			}
		}
	}
	if path := circle(d.Steps); path != nil {
		c.add("steps", "depend on each other in a circle: %s", strings.Join(path, " → "))
	}
}

// StepNames returns the names of steps, in order.
func StepNames(steps []Step) []string {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name
	}
	return names
}
