package domain

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// StepRunID returns the id of a step's run: a UUIDv8 with the milliseconds of the workflow's run and bits of a hash of
// (run, step). So a step has one run in each run of its workflow, in the same daily partition, whoever makes it.
func StepRunID(workflow uuid.UUID, step string) uuid.UUID {
	sum := sha256.Sum256(append(workflow[:], step...))
	return timedID(IDTime(workflow), sum[:], 0x80)
}

// compileWorkflow makes a workflow and its steps ready to use. Its own run sends nothing: it is like one whose target
// has accepted it, from its claim until its last step has ended, or its max_duration has passed.
func compileWorkflow(id uuid.UUID, tenant, version int32, d jobspec.Definition, defaultJitter time.Duration,
) (*Job, error) {
	timetable, err := jobspec.NewTimetable(id, d.WithDefaults(), defaultJitter)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: %w", id, version, err)
	}
	steps := make(map[string]*Job, len(d.Steps))
	whole := &Job{ID: id, Tenant: tenant, Version: version, Timetable: timetable, StepJobs: steps, url: noURL}
	whole.Definition = d.WithDefaults()
	for _, s := range d.Steps {
		if s.Approval != nil {
			steps[s.Name] = approvalJob(s, whole)
			continue
		}
		job, err := Compile(id, tenant, version, s.Definition(d), 0)
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
	w.Completion, w.HeartbeatTimeout, w.Limits = jobspec.CompleteAsync, w.MaxDuration, nil
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
