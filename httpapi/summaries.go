package httpapi

import (
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"punctual/httpapi/body"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/runs"
)

// View is the input of lists that can show their items in short.
type View struct {
	View string `query:"view" enum:"full,summary" default:"full" doc:"With summary, each item has only the fields that the list's schema requires, which identify it and give its state; and those that another parameter asks for."`
}

func (v View) short() bool { return v.View == "summary" }

// ListedJob is a job in a list, in full or in short.
type ListedJob struct {
	Job
	Recent *runs.RecentRuns `json:"recent,omitempty" doc:"How its newest runs went. Absent unless the list was asked for it with recent."`
	short  bool
}

// JobSummary is a job in short: without its target and its policies.
type JobSummary struct {
	ID               uuid.UUID         `json:"id"`
	Tenant           string            `json:"tenant"`
	Name             string            `json:"name"`
	Version          int32             `json:"version"`
	State            domain.JobState   `json:"state"`
	Labels           map[string]string `json:"labels,omitempty"`
	Schedule         jobspec.Schedule  `json:"schedule,omitzero"`
	Queue            string            `json:"queue"`
	NextRunAt        *time.Time        `json:"next_run_at"`
	NextScheduledFor *time.Time        `json:"next_scheduled_for"`
	LastRun          *RunSummary       `json:"last_run"`
	Recent           *runs.RecentRuns  `json:"recent,omitempty"`
}

// MarshalJSON writes the job in full or in short, as the list's view says.
func (j ListedJob) MarshalJSON() ([]byte, error) {
	if !j.short {
		type full ListedJob // which has no MarshalJSON
		return body.Render(full(j))
	}
	s := JobSummary{
		ID: j.ID, Tenant: j.Tenant, Name: j.Name, Version: j.Version, State: j.State, Labels: j.Labels, Schedule: j.Schedule,
		Queue: j.Queue, NextRunAt: j.NextRunAt, NextScheduledFor: j.NextScheduledFor, Recent: j.Recent,
	}
	if j.LastRun != nil {
		s.LastRun = new(summaryOf(*j.LastRun))
	}
	return body.Render(s)
}

// ListedRun is a run in a list, in full or in short.
type ListedRun struct {
	runs.Run
	short bool
}

// RunSummary is a run in short.
type RunSummary struct {
	ID           uuid.UUID      `json:"id"`
	JobID        uuid.UUID      `json:"job_id"`
	Job          string         `json:"job"`
	Queue        string         `json:"queue"`
	Trigger      domain.Trigger `json:"trigger"`
	ScheduledFor time.Time      `json:"scheduled_for"`
	DueAt        time.Time      `json:"due_at"`
	Status       domain.Status  `json:"status"`
	Reason       *domain.Reason `json:"reason"`
	Step         string         `json:"step,omitempty"`
	Workflow     *uuid.UUID     `json:"workflow_run,omitempty"`
	Late         bool           `json:"late"`
	Attempt      int            `json:"attempt"`
	StartedAt    *time.Time     `json:"started_at"`
	FinishedAt   *time.Time     `json:"finished_at"`
	HTTPStatus   *int           `json:"http_status"`
	Error        *string        `json:"error"`
}

func summaryOf(r runs.Run) RunSummary {
	return RunSummary{
		ID: r.ID, JobID: r.JobID, Job: r.Job, Queue: r.Queue, Trigger: r.Trigger, ScheduledFor: r.ScheduledFor,
		DueAt: r.DueAt, Status: r.Status, Reason: r.Reason, Step: r.Step, Workflow: r.Workflow, Late: r.Late,
		Attempt:   r.Attempt,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, HTTPStatus: r.HTTPStatus, Error: r.Error,
	}
}

// MarshalJSON writes the run in full or in short, as the list's view says.
func (r ListedRun) MarshalJSON() ([]byte, error) {
	if !r.short {
		return body.Render(r.Run)
	}
	return body.Render(summaryOf(r.Run))
}

// summarized makes the fields that a summary always has the required ones in the schemas of list items.
func summarized(schemas map[string]*huma.Schema) {
	for listed, short := range map[string]any{"ListedJob": JobSummary{}, "ListedRun": RunSummary{}} {
		schemas[listed].Required = body.Schema(reflect.TypeOf(short)).Required
	}
}
