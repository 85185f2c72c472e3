package domain

import (
	"fmt"
	"net/textproto"
	"net/url"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
	"punctual/scheduler/placeholder"
)

// Job is one version of a definition made ready to use: defaults filled in, schedule compiled, request prepared. It
// is immutable, and shared by all runs of the version on a replica.
type Job struct {
	ID      uuid.UUID
	Tenant  int32
	Version int32
	jobspec.Definition
	Timetable *jobspec.Timetable
	Kept      time.Duration     // how long runs are kept; 0: not known
	StepJobs  map[string]*Job   // of a workflow: its steps, by name
	Whole     *Job              // of a step: its workflow
	Approval  *jobspec.Approval // of a step that waits for approval; nil: it sends a request

	url    *url.URL
	header textproto.MIMEHeader
	body   []byte
	fills  *jobspec.Fills // nil: no placeholders

	asksInBody bool // its body refers to secrets

	routing string // of a notice: name of the secret that holds the routing key for its body
}

// Compile makes a stored definition ready to use. defaultJitter is the deployment's --default-jitter.
func Compile(id uuid.UUID, tenant, version int32, d jobspec.Definition, defaultJitter time.Duration) (*Job, error) {
	if d.IsWorkflow() {
		return compileWorkflow(id, tenant, version, d, defaultJitter)
	}
	d = d.WithDefaults()
	timetable, err := jobspec.NewTimetable(id, d, defaultJitter)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: %w", id, version, err)
	}
	target, err := jobspec.ParseAddress(d.Target.URL)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: target.url: %w", id, version, err)
	}
	fills, err := jobspec.NewFills(d.Target, target)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: %w", id, version, err)
	}
	body, isJSON := jobspec.RequestBody(d.Target.Body)
	return &Job{
		ID: id, Tenant: tenant, Version: version, Definition: d, Timetable: timetable,
		url: target.URL, header: requestHeader(d.Target.Headers, isJSON), body: body, fills: fills,
		asksInBody: placeholder.Secrets(d.Target.Body) != nil,
	}, nil
}

// noURL is where runs go that send nothing.
var noURL = &url.URL{}

// URL returns where the job's requests go. A placeholder in it is not filled in.
func (j *Job) URL() *url.URL { return j.url }

// RoutingSecret returns, for a notice, the name of the secret to add to its body; empty: none.
func (j *Job) RoutingSecret() string { return j.routing }

// expired reports whether an attempt starting now would be later than expires_after allows.
func (j *Job) expired(due, now time.Time) bool {
	return !j.ExpiresAfter.IsZero() && now.Sub(due) > j.ExpiresAfter.Value()
}

// jsonHeader is what most jobs send beside the headers of every attempt. They all share it, and nothing writes to it.
var jsonHeader = textproto.MIMEHeader{"Content-Type": {"application/json"}}

func requestHeader(headers map[string]string, isJSON bool) textproto.MIMEHeader {
	if len(headers) == 0 {
		if isJSON {
			return jsonHeader
		}
		return nil
	}
	h := make(textproto.MIMEHeader, len(headers)+1)
	for name, value := range headers {
		h.Set(name, value)
	}
	if isJSON && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	return h
}

// JobState is where a job is in its life.
type JobState string

// The states of a job.
const (
	JobActive    JobState = "active"
	JobPaused    JobState = "paused"
	JobCompleted JobState = "completed" // no slot is left
	JobDeleted   JobState = "deleted"   // kept for its history
)

// Stored is the state as the column jobs.state holds it. Only the job's schedule says that the job is completed.
func (s JobState) Stored() string {
	if s == JobCompleted {
		return string(JobActive)
	}
	return string(s)
}

// HoldsName reports whether no other job can have the name of a job in this state. The claim of a last slot leaves the
// job its name all the same, until another job wants it.
func (s JobState) HoldsName() bool { return s == JobActive || s == JobPaused }
