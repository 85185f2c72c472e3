package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/cron"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Job is a job as the API shows it: its definition with every default filled in, and its state.
type Job struct {
	ID      uuid.UUID          `json:"id" format:"uuid" doc:"Never reused." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Tenant  string             `json:"tenant" doc:"Its owner." example:"default"`
	Version int32              `json:"version" doc:"Number of the current version: one more with each change. Part of the ETag." example:"7"`
	State   scheduler.JobState `json:"state" enum:"active,paused,completed" doc:"completed: no slot is left." example:"active"`
	scheduler.Definition
	NotifyFrom       string     `json:"notify_from" enum:"job,tenant" doc:"Where the recipients of the job's notices are set. job: in its own notify, which may be an empty list; tenant: in the tenant's default, shown by GET /v1/tenant." example:"job"`
	Paused           bool       `json:"paused" doc:"Whether it is paused." example:"false"`
	PausedAt         *time.Time `json:"paused_at,omitempty" doc:"When it was paused."`
	PausedUntil      *time.Time `json:"paused_until,omitempty" doc:"When it resumes by itself."`
	PauseNote        string     `json:"pause_note,omitempty" doc:"Why it was paused."`
	Frozen           *Frozen    `json:"frozen,omitempty" doc:"The freeze that stops the claims of its slots and runs now. Only when a single job is read."`
	NextRunAt        *time.Time `json:"next_run_at" doc:"When the next slot is due: the slot plus the job's jitter. Null: there is none."`
	NextScheduledFor *time.Time `json:"next_scheduled_for" doc:"The next slot."`
	NextLocal        *string    `json:"next_local" doc:"The next slot of a cron schedule, in the job's time zone." example:"2026-12-01T03:00:00-08:00"`
	LastRun          *Run       `json:"last_run" doc:"The newest run or recorded skip, without its attempts."`
	CreatedAt        time.Time  `json:"created_at" doc:"When it was first written."`
	UpdatedAt        time.Time  `json:"updated_at" doc:"When a user last changed it."`
	CompletedAt      *time.Time `json:"completed_at,omitempty" doc:"When its last slot was claimed."`
}

// Run is a run, or a recorded skip.
type Run struct {
	ID            uuid.UUID          `json:"id" format:"uuid" doc:"Also the webhook-id of its requests, except for a replay, or a rerun with same_key: they carry the webhook-id of the run that they repeat." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	JobID         uuid.UUID          `json:"job_id" format:"uuid" doc:"Its job." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Job           string             `json:"job" doc:"The job's name now." example:"daily-invoice-gen"`
	Tenant        string             `json:"tenant" doc:"Its owner." example:"default"`
	Trigger       scheduler.Trigger  `json:"trigger" doc:"What created it." example:"schedule"`
	ScheduledFor  time.Time          `json:"scheduled_for" doc:"Its slot; for a manual run, when it was requested; for a replay or rerun, the slot of the run that it repeats."`
	Status        scheduler.Status   `json:"status" doc:"Final: succeeded, dead, skipped, cancelled." example:"succeeded"`
	Reason        *scheduler.Reason  `json:"reason" nullable:"true" doc:"Why it is not a plain success."`
	Late          bool               `json:"late" doc:"Whether it was created after the job's tolerance for missed slots." example:"false"`
	Attempt       int                `json:"attempt" doc:"Number of the latest attempt; 0 before the first." example:"1"`
	MaxAttempts   int                `json:"max_attempts" doc:"How many attempts it may have." example:"5"`
	Replica       *uuid.UUID         `json:"replica" format:"uuid" nullable:"true" doc:"The replica that made the latest attempt."`
	JobVersion    int32              `json:"job_version" doc:"Version of the definition it uses on every attempt." example:"7"`
	DueAt         time.Time          `json:"due_at" doc:"When it was due: the slot plus the job's jitter."`
	CreatedAt     time.Time          `json:"created_at" doc:"When it was recorded."`
	ClaimedAt     *time.Time         `json:"claimed_at" doc:"When the latest attempt was claimed."`
	StartedAt     *time.Time         `json:"started_at" doc:"When the latest attempt was sent."`
	AcceptedAt    *time.Time         `json:"accepted_at" doc:"With completion async: when the target answered the latest attempt with 202. It goes on working."`
	FinishedAt    *time.Time         `json:"finished_at" doc:"When it reached its final status."`
	NextAttemptAt *time.Time         `json:"next_attempt_at" doc:"While retrying: when the next attempt may start."`
	WaitingFor    *WaitingFor        `json:"waiting_for,omitempty" doc:"What it waits for, although it is due. Only when a single run is read."`
	HTTPStatus    *int               `json:"http_status" doc:"Status of the latest response." example:"200"`
	Error         *string            `json:"error" doc:"The latest error, for people."`
	BlockedBy     *uuid.UUID         `json:"blocked_by" format:"uuid" nullable:"true" doc:"On a skip for overlap: the run that was active."`
	Skipped       *runs.SkippedRange `json:"skipped" doc:"On a skip: the slots that it covers."`
	ReplayOf      *uuid.UUID         `json:"replay_of" format:"uuid" nullable:"true" doc:"On a replay: the dead run that it repeats."`
	RerunOf       *uuid.UUID         `json:"rerun_of" format:"uuid" nullable:"true" doc:"On a rerun: the run that it repeats."`
	ParentRun     *uuid.UUID         `json:"parent_run,omitempty" format:"uuid" doc:"On a step: the run of its workflow. Otherwise absent."`
	Step          *string            `json:"step,omitempty" doc:"On a step: its name. Otherwise absent."`
	Result        json.RawMessage    `json:"result,omitempty" doc:"The result of a success: the member result of a 2xx JSON response, or the result reported with complete. Absent: there is none, or the run is part of a list."`
	ResultNote    *string            `json:"result_note,omitempty" doc:"Why the result is not kept, if the target sent one."`
	Request       *SentRequest       `json:"request,omitempty" doc:"The request that its latest attempt sent, or that its first attempt will send. Only when a single run is read by its id; absent on a recorded skip."`
	Attempts      []runs.Attempt     `json:"attempts,omitzero" doc:"Its attempts in order, including the one in flight. Only when a single run is read."`
}

// SentRequest is the request of a run.
type SentRequest struct {
	Method  string            `json:"method" doc:"HTTP method." example:"POST"`
	URL     string            `json:"url" doc:"Where it goes." example:"https://billing.internal/invoices"`
	Headers map[string]string `json:"headers" doc:"Its headers, without those that every HTTP client adds. Secrets and signatures are shown as ***."`
	Body    json.RawMessage   `json:"body,omitempty" doc:"Its body, in the form of target.body: a string is sent as it is, any other value as JSON. Absent: no body."`
}

// WaitingFor says what a due run waits for.
type WaitingFor struct {
	What  string     `json:"what" doc:"breaker HOST: the host cannot be reached. hanging HOST or PATH: its requests time out. gate: another run of the job is active. limit NAME: its tenant is at this limit. slots: all worker slots are taken. Or a sentence saying that no live replica serves its queue." example:"breaker billing.internal:443"`
	Since time.Time  `json:"since" doc:"Since when it has waited for this."`
	Until *time.Time `json:"until" doc:"The latest instant until which it waits for its host. Then it is dead, with the reason unreachable or timeout. Null: it waits without a bound."`
}

// showJob shows a job. The default jitter, which belongs to the deployment, is filled in like the other defaults.
func showJob(r jobs.Record, defaultJitter time.Duration) Job {
	job := Job{
		ID: r.ID, Tenant: r.Tenant, Version: r.Version, State: r.State, Definition: r.Definition.Masked().WithDefaults(),
		Paused: r.State == scheduler.JobPaused, NextRunAt: utc(r.NextRunAt), NextScheduledFor: utc(r.NextScheduledFor),
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), CompletedAt: utc(r.CompletedAt),
	}
	job.NotifyFrom = "tenant"
	if r.Definition.Notify != nil {
		job.NotifyFrom = "job"
	}
	job.Jitter = job.EffectiveJitter(defaultJitter)
	if job.Paused {
		job.PausedAt, job.PausedUntil, job.PauseNote = utc(r.PausedAt), utc(r.PausedUntil), r.PauseNote
	}
	if r.NextScheduledFor != nil && r.Definition.Schedule.Kind() == scheduler.KindCron {
		local := inZone(*r.NextScheduledFor, r.Definition.Schedule)
		job.NextLocal = &local
	}
	if r.LastRun != nil {
		run := showRun(*r.LastRun)
		job.LastRun = &run
	}
	return job
}

func showRun(r runs.Record) Run {
	run := Run{
		ID: r.ID, JobID: r.JobID, Job: r.Job, Tenant: r.Tenant, Trigger: r.Trigger, ScheduledFor: r.ScheduledFor.UTC(),
		Status: r.Status, Reason: pg.OrNull(r.Reason), Late: r.Late, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts,
		Replica: r.Replica, JobVersion: r.JobVersion, DueAt: r.DueAt.UTC(), CreatedAt: r.CreatedAt.UTC(),
		ClaimedAt: utc(r.ClaimedAt), StartedAt: utc(r.StartedAt), AcceptedAt: utc(r.AcceptedAt),
		FinishedAt: utc(r.FinishedAt), NextAttemptAt: utc(r.NextAttemptAt), HTTPStatus: pg.OrNull(r.HTTPStatus),
		Error: pg.OrNull(r.Error), BlockedBy: r.BlockedBy, ReplayOf: r.ReplayOf, RerunOf: r.RerunOf, ParentRun: r.ParentRun,
		Step: pg.OrNull(r.Step), Skipped: r.Skipped,
	}
	return run
}

// showRunWithAttempts shows a run with its result and its attempts, even when it has none.
func showRunWithAttempts(r runs.Record) Run {
	run := showRun(r)
	run.Result, run.ResultNote = r.Result, pg.OrNull(r.ResultNote)
	run.Attempts = append([]runs.Attempt{}, r.Attempts...)
	return run
}

// showRequest shows the request that the attempts of a run send; nil where it is not known.
func showRequest(r runs.Record, publicURL string) *SentRequest {
	if r.Sent == nil {
		return nil
	}
	var at time.Time
	if r.Status.Final() && r.StartedAt != nil { // until then StartedAt is when the attempt was claimed
		at = *r.StartedAt
	}
	sent := r.Sent.Sent(publicURL, at)
	return &SentRequest{Method: sent.Method, URL: sent.URL, Headers: sent.Headers, Body: sent.Body}
}

// inZone formats an instant as local time in a schedule's zone.
func inZone(t time.Time, s scheduler.Schedule) string {
	zone, err := cron.LoadZone(s.Timezone)
	if s.Timezone == "" || err != nil { // this binary may lack a zone that was known when the job was written
		zone = time.UTC
	}
	return t.In(zone).Format(time.RFC3339)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// render returns v as JSON without the escapes that only HTML needs.
func render(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("rendering %T: %w", v, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
