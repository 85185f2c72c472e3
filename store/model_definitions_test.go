package store_test

import (
	"fmt"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// The jobs of the model, and how the store defines them.

// modelStep is a step of a workflow.
type modelStep struct {
	on       []int // the steps that it depends on
	cleansUp bool  // when: ended
	approval bool
}

// modelLink is another job that the end of a run triggers.
type modelLink struct {
	job  int
	when jobspec.LinkWhen
}

// modelDefinition is a version of a job. Each run has the one that the job had when the run was made.
type modelDefinition struct {
	policy               jobspec.ConcurrencyPolicy
	maxAttempts, expires int // expires: expires_after, or 0
	most                 int // max_pending_runs of the policy queue
	tolerance            int // of a job that skips what it missed
	async, once, limited bool
	onEvent              bool // it runs at events, in place of slots
	value                int  // of the events' field that its filter lets through; 0: all
	then                 []modelLink
	steps                []modelStep
	slots                int  // the hour of the day at which they are
	missed               bool // its slots were missed, and go one at a time, although other runs may overlap
}

func (j *modelDefinition) gates() bool  { return j.policy != jobspec.PolicyAllow }
func (j *modelDefinition) queues() bool { return j.policy == jobspec.PolicyQueue }

// modelJobs have every policy of overlap. Their slots come only when the test says so.
var modelJobs = []modelDefinition{
	{policy: jobspec.PolicyAllow, maxAttempts: 4},
	{policy: jobspec.PolicyForbid, maxAttempts: 2},
	{policy: jobspec.PolicyReplace, maxAttempts: 2, expires: 4},
	{policy: jobspec.PolicyWait, maxAttempts: 2, expires: 3},
	{policy: jobspec.PolicyForbid, maxAttempts: 5, async: true},
	{policy: jobspec.PolicyReplace, maxAttempts: 2, async: true},
	{policy: jobspec.PolicyAllow, maxAttempts: 3, once: true},
	{policy: jobspec.PolicyQueue, maxAttempts: 2, most: 3},
	{policy: jobspec.PolicyAllow, maxAttempts: 2, limited: true},
	{policy: jobspec.PolicyQueue, maxAttempts: 2, most: 2, limited: true},
	{policy: jobspec.PolicyWait, maxAttempts: 2, expires: 4, limited: true},
	{policy: jobspec.PolicyAllow, maxAttempts: 2, tolerance: 2},
	{policy: jobspec.PolicyAllow, maxAttempts: 1, then: []modelLink{
		{7, jobspec.WhenSucceeded}, {3, jobspec.WhenFailed}, {9, jobspec.WhenEnded},
	}},
	{policy: jobspec.PolicyQueue, maxAttempts: 2, most: 2, onEvent: true, value: 1},
	{policy: jobspec.PolicyAllow, maxAttempts: 1, onEvent: true, then: []modelLink{{12, jobspec.WhenEnded}}},
	{policy: jobspec.PolicyAllow, maxAttempts: 3, missed: true},
	{policy: jobspec.PolicyForbid, maxAttempts: 2, steps: []modelStep{
		{}, {on: []int{0}, approval: true}, {on: []int{1}}, {on: []int{0, 2}, cleansUp: true},
	}},
	{policy: jobspec.PolicyReplace, maxAttempts: 1, limited: true, steps: []modelStep{
		{}, {approval: true}, {on: []int{0, 1}}, {on: []int{1}, cleansUp: true},
	}},
	{
		policy: jobspec.PolicyQueue, maxAttempts: 2, most: 2, async: true, then: []modelLink{{12, jobspec.WhenFailed}},
		steps: []modelStep{{}, {on: []int{0}}, {on: []int{1}, approval: true, cleansUp: true}},
	},
}

// modelEventName is the event at which some of them run.
const modelEventName = "something.happened"

// modelLimit is the limit that some of them share.
const modelLimit = "shared"

// define writes the definition.
func (j *modelDefinition) define(d *jobspec.Definition, began time.Time) {
	hours := func(n int) jobspec.Duration { return jobspec.DurationOf(time.Duration(n) * time.Hour) }
	first := began.Add(-modelFills*24*time.Hour + time.Duration(j.slots)*time.Hour)
	d.Schedule = jobspec.Schedule{Every: hours(24), StartsAt: jobspec.InstantOf(first)}
	Tolerating(1000 * time.Hour)(d)
	if j.onEvent {
		On(modelEventName, map[bool]string{true: fmt.Sprintf(`{"value": %d}`, j.value)}[j.value > 0])(d)
	}
	if d.ConcurrencyPolicy = j.policy; j.expires > 0 {
		d.ExpiresAfter = hours(j.expires)
	}
	d.Retry = jobspec.Retry{
		MaxAttempts: j.maxAttempts, Multiplier: 1, MaxBackoff: hours(modelAfter),
		InitialBackoff: jobspec.DurationOf(modelRetry * 40 * time.Minute), // and at least half of it
	}
	if j.async {
		d.Completion, d.HeartbeatTimeout, d.MaxDuration = jobspec.CompleteAsync, hours(modelSilence), hours(modelDuration)
	}
	if d.MaxPendingRuns = j.most; j.limited {
		d.Limits = []string{modelLimit}
	}
	if j.tolerance > 0 {
		d.Missed = jobspec.Missed{Policy: jobspec.MissedSkip, Tolerance: hours(j.tolerance)}
	}
	if j.missed {
		Missed(jobspec.MissedFireAll)(d)
		Tolerating(time.Second)(d)
	}
	if j.once {
		d.Delivery = jobspec.DeliverAtMostOnce
	}
	for i, s := range j.steps {
		d.Target = jobspec.Target{}
		step := jobspec.Step{Name: fmt.Sprint("step", i), DependsOn: pg.Column(s.on, func(on int) string {
			return fmt.Sprint("step", on)
		})}
		if s.cleansUp {
			step.When = jobspec.WhenEnded
		}
		if step.Target = (jobspec.Target{URL: "http://step.example"}); s.approval {
			step.Target, step.Approval = jobspec.Target{}, &jobspec.Approval{ExpiresAfter: hours(modelExpiry)}
		}
		if j.async && !s.approval {
			step.MaxDuration = hours(modelDuration)
		}
		d.Steps = append(d.Steps, step)
		d.MaxDuration = hours(modelWorkflow)
	}
}
