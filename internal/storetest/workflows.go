package storetest

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/jobs"
)

// Steps makes a job a workflow of steps "name", "name<a,b" or "name<a!", where ! means when: ended.
func Steps(all ...string) Option {
	return func(d *jobspec.Definition) {
		d.Target = jobspec.Target{}
		for _, text := range all {
			text, ended := strings.CutSuffix(text, "!")
			name, on, depends := strings.Cut(text, "<")
			s := jobspec.Step{Name: name, Target: jobspec.Target{URL: "http://" + name + ".example"}}
			if s.Retry.MaxAttempts = 1; ended {
				s.When = jobspec.WhenEnded
			}
			if depends {
				s.DependsOn = strings.Split(on, ",")
			}
			d.Steps = append(d.Steps, s)
		}
	}
}

// StartWorkflow triggers a workflow and lets its run begin.
func (c Replica) StartWorkflow(job, body string) domain.Assignment {
	c.T.Helper()
	r := jobs.TriggerRequest{}
	if body != "" {
		r.Body = []byte(body)
	}
	_, err := c.For(c.Tenant).TriggerJob(c.T.Context(), job, r)
	c.Must(err)
	a := c.One(c.ClaimReady(10))
	c.AcceptWorkflow(a)
	return a
}

// AcceptWorkflow is what a replica does with the run of a workflow.
func (c Replica) AcceptWorkflow(a domain.Assignment) {
	c.T.Helper()
	o := Ended(a, domain.Await)
	o.RetryIn = a.Job.MaxDuration.Value()
	c.FinishAndRelease(o)
}

// GoOn does the chores of workflows until nothing is left.
func (c Replica) GoOn() {
	c.T.Helper()
	for first := true; first || c.Wants(claim.ChoreWorkflows); first = false {
		_, _, err := c.Workflows.Advance(c.T.Context())
		c.Must(err)
		c.Listen()
	}
}

// ClaimSteps claims the runs of steps that wait, by step.
func (c Replica) ClaimSteps() map[string]domain.Assignment {
	c.T.Helper()
	runs := map[string]domain.Assignment{}
	for _, a := range c.ClaimReady(1000).Runs {
		runs[a.Step] = a
	}
	return runs
}

// SentBody is the body of an attempt's request.
func (c Replica) SentBody(a domain.Assignment) string {
	c.T.Helper()
	if a.Given == nil {
		c.Must(c.Claims.ReadGiven(c.T.Context(), &a))
	}
	return string(a.Request(domain.Origin{}).Body)
}

// StepNames lists the steps of assignments.
func StepNames(runs map[string]domain.Assignment) string {
	var list []string
	for name := range runs {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// StepsOf tells how the steps of a workflow's run are.
func (c Replica) StepsOf(run uuid.UUID) string {
	c.T.Helper()
	return c.Text(`SELECT coalesce(string_agg(concat_ws(' ', r.step, r.status, r.reason), ', ' ORDER BY r.step), '')
		FROM punctual.runs r WHERE r.parent_run = $1`, run)
}

// Died is an outcome: the last attempt of a step failed.
func Died(a domain.Assignment) domain.Outcome {
	o := Ended(a, domain.Bury)
	o.Reason, o.Error = domain.ReasonHTTP5xx, "503"
	return o
}

// Clean fails the test if verify finds a violation.
func (c Replica) Clean() {
	c.T.Helper()
	if found, _ := c.Verified(); len(found) > 0 {
		c.T.Errorf("verify: %s", strings.Join(found, "\n"))
	}
}
