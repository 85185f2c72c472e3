package domain

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
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
	DependsOn        []string   `json:"depends_on,omitempty" maxItems:"49" doc:"The steps that must have ended before it starts. Absent: none, so it starts at once." example:"[\"extract\"]"`
	When             LinkWhen   `json:"when,omitempty" minLength:"1" enum:"succeeded,ended" doc:"succeeded: it starts if all steps that it depends on have succeeded, and is skipped otherwise; ended: it starts when they have ended, however, and even after the job's max_duration. Absent: succeeded."`
	Target           Target     `json:"target,omitzero" doc:"The HTTP request to send. Its body is sent with the members input and steps: see the documentation of workflows. Absent: the step has approval."`
	Approval         *Approval  `json:"approval,omitempty" doc:"In place of target: the step waits until a person approves or rejects it. Of the other fields it then has name, depends_on and when only. Absent: it sends its request."`
	Timeout          Duration   `json:"timeout,omitzero" doc:"Absent: the job's." example:"10m"`
	Retry            Retry      `json:"retry,omitzero" doc:"Fields that are absent are the job's."`
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

// StepRunID returns the id of a step's run: a UUIDv8 with the milliseconds of the workflow's run and bits of a hash of
// (run, step). So a step has one run in each run of its workflow, in the same daily partition, whoever makes it.
func StepRunID(workflow uuid.UUID, step string) uuid.UUID {
	sum := sha256.Sum256(append(workflow[:], step...))
	return timedID(IDTime(workflow), sum[:], 0x80)
}

// definition is the step as a job of its own that runs when triggered.
func (s Step) definition(whole Definition) Definition {
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

// compileWorkflow makes a workflow and its steps ready to use. Its own run sends nothing: it is like one whose target
// has accepted it, from its claim until its last step has ended, or its max_duration has passed.
func compileWorkflow(id uuid.UUID, tenant, version int32, d Definition, defaultJitter time.Duration) (*Job, error) {
	timetable, err := NewTimetable(id, d.WithDefaults(), defaultJitter)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: %w", id, version, err)
	}
	steps := make(map[string]*Job, len(d.Steps))
	whole := &Job{ID: id, Tenant: tenant, Version: version, Timetable: timetable, StepJobs: steps, url: noURL}
	whole.Definition = d.WithDefaults()
	for _, s := range d.Steps {
		if s.Approval != nil {
			steps[s.Name] = s.approvalJob(whole)
			continue
		}
		job, err := Compile(id, tenant, version, s.definition(d), 0)
		if err != nil {
			return nil, fmt.Errorf("step %s of %w", s.Name, err)
		}
		job.Timetable = timetable // for placeholders with the local time of the slot
		steps[s.Name] = job
	}
	for _, job := range steps {
		job.Whole = whole
	}
	w := &whole.Definition
	w.Completion, w.HeartbeatTimeout, w.Limits = CompleteAsync, w.MaxDuration, nil
	w.Retry.MaxAttempts = 1
	return whole, nil
}

// Step returns the job of a run: that of its step, or the job itself if the run is of none. It is nil if the job has no
// such step.
func (j *Job) Step(name string) *Job {
	if name == "" {
		return j
	}
	return j.StepJobs[name]
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
		own := s.definition(Definition{Name: "step", Completion: d.Completion})
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
				c.add(at, "there is no step %q%s", clip(on), DidYouMean(on, stepNames(d.Steps)...))
			case slices.Contains(s.DependsOn[:k], on):
				c.add(at, "%q stands there twice; name it once", on)
			}
		}
	}
	if path := circle(d.Steps); path != nil {
		c.add("steps", "depend on each other in a circle: %s", strings.Join(path, " → "))
	}
}

func stepNames(steps []Step) []string {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name
	}
	return names
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
