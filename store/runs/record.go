package runs

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Run is a run, or a recorded skip. Lists leave WaitingFor, Result, ResultNote, Progress, Request and
// Attempts empty.
type Run struct {
	ID            uuid.UUID           `json:"id" format:"uuid" doc:"Also the webhook-id of its requests, except for a replay, or a rerun with same_key: they carry the webhook-id of the run that they repeat." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	JobID         uuid.UUID           `json:"job_id" format:"uuid" doc:"Its job." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Job           string              `json:"job" doc:"The job's name now." example:"daily-invoice-gen"`
	Tenant        string              `json:"tenant" doc:"Its owner." example:"default"`
	Queue         string              `json:"queue" doc:"The queue in which it waits, and whose concurrency it uses." example:"default"`
	Trigger       domain.Trigger      `json:"trigger" doc:"Its origin." example:"schedule"`
	ScheduledFor  time.Time           `json:"scheduled_for" doc:"Its slot; for a manual run, when it was requested; for a replay or rerun, the slot of the run that it repeats."`
	Status        domain.Status       `json:"status" doc:"Final: succeeded, dead, skipped, cancelled." example:"succeeded"`
	Reason        *domain.Reason      `json:"reason" nullable:"true" doc:"Why it is not a plain success."`
	Late          bool                `json:"late" doc:"Whether it was first claimed after the job's tolerance for missed slots." example:"false"`
	Attempt       int                 `json:"attempt" doc:"Number of the latest attempt; 0 before the first." example:"1"`
	MaxAttempts   int                 `json:"max_attempts" doc:"How many attempts it may have." example:"5"`
	Replica       *uuid.UUID          `json:"replica" format:"uuid" nullable:"true" doc:"The replica that made the latest attempt."`
	JobVersion    int32               `json:"job_version" doc:"Version of the definition it uses on every attempt." example:"7"`
	DueAt         time.Time           `json:"due_at" doc:"When it was due: the slot plus the job's jitter."`
	CreatedAt     time.Time           `json:"created_at" doc:"When it was recorded."`
	ClaimedAt     *time.Time          `json:"claimed_at" doc:"When the latest attempt was claimed."`
	StartedAt     *time.Time          `json:"started_at" doc:"When the latest attempt was sent."`
	AcceptedAt    *time.Time          `json:"accepted_at" doc:"With completion async: when the target answered the latest attempt with 202. It is still working."`
	FinishedAt    *time.Time          `json:"finished_at" doc:"When it reached its final status."`
	NextAttemptAt *time.Time          `json:"next_attempt_at" doc:"While retrying: when the next attempt may start."`
	WaitingFor    *WaitingFor         `json:"waiting_for,omitempty" doc:"The reason why it waits, although it is due. Only when a single run is read."`
	Cause         *Cause              `json:"cause,omitempty" doc:"Why the slot was missed or the run was late. Not in summaries; absent if nothing on record explains it."`
	HTTPStatus    *int                `json:"http_status" doc:"Status of the latest response." example:"200"`
	Error         *string             `json:"error" doc:"The latest error, for people."`
	BlockedBy     *uuid.UUID          `json:"blocked_by" format:"uuid" nullable:"true" doc:"On a skip for overlap: the run that was active."`
	Skipped       *SkippedRange       `json:"skipped" doc:"On a skip: the slots that it covers."`
	ReplayOf      *uuid.UUID          `json:"replay_of" format:"uuid" nullable:"true" doc:"On a replay: the dead run that it repeats."`
	RerunOf       *uuid.UUID          `json:"rerun_of" format:"uuid" nullable:"true" doc:"On a rerun: the run that it repeats. Of a step that a rerun has kept: the run whose result it has."`
	CausedBy      *uuid.UUID          `json:"caused_by" format:"uuid" nullable:"true" doc:"Its cause: with the trigger chain, the run that ended; with the trigger event, the event. Of a step that was skipped: the run that kept it from running."`
	Step          string              `json:"step,omitempty" doc:"Of the run of a step: the step's name." example:"load"`
	Workflow      *uuid.UUID          `json:"workflow_run,omitempty" format:"uuid" doc:"Of the run of a step: the workflow's run." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	TriggeredBy   *string             `json:"triggered_by" doc:"Who asked for it: for a manual run, a rerun, a replay and a backfill; of a step that a rerun has set, who did. Null: no caller did." example:"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"`
	Key           *string             `json:"key,omitempty" doc:"Of a dated run: its key. From its claim on only if the request gave one. Only when a single run is read." example:"order-42"`
	Result        json.RawMessage     `json:"result,omitempty" doc:"The result of a success: the member result of a 2xx JSON response, or the result reported with complete. Absent: there is none, or the run is part of a list."`
	ResultNote    *string             `json:"result_note,omitempty" doc:"Why the result is not kept, if the target sent one."`
	Progress      json.RawMessage     `json:"progress,omitempty" doc:"With completion async: the progress that the target reported last. Only when a single run is read; absent if it reported none."`
	ProgressAt    *time.Time          `json:"progress_at,omitempty" doc:"When the target reported that progress."`
	TraceID       string              `json:"trace_id,omitempty" doc:"Trace id of its requests, as in their header traceparent. Only when a single run is read by its id; absent on a recorded skip." example:"4bf92f3577b34da6a3ce929d0e0e4736"`
	LogURL        string              `json:"log_url,omitempty" doc:"URL, http or https, at which people read the log of its latest attempt: what the target answered in the header Punctual-Log-Url, or else the job's log_url, filled in. Only when a single run is read by its id; absent: there is none, or nothing was sent yet." example:"https://logs.example.com/search?q=019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	LogNote       string              `json:"log_note,omitempty" doc:"Why the Punctual-Log-Url that the target answered is ignored. Absent: it is not, or there was none."`
	Request       *domain.SentRequest `json:"request,omitempty" doc:"The request that its latest attempt sent, or that its first attempt will send. Only when a single run is read by its id; absent on a recorded skip."`
	Steps         []StepState         `json:"steps,omitempty" doc:"Of a job with steps: how far they have come, in the order of the definition. Only when a single run is read by its id; absent on a recorded skip."`
	Attempts      []Attempt           `json:"attempts,omitzero" doc:"Its attempts in order, including the one in flight. Only when a single run is read."`

	// Sent is what Request is made of, where the public URL of the deployment is known. Nil: the run is a recorded skip,
	// or is not from GetRun.
	Sent *domain.Assignment `json:"-"`

	fence int64 // fencing token of the latest attempt; 0 before the first
	dated bool  // it is pending in dated
}

// SkippedRange is the range of slots that a recorded skip stands for.
type SkippedRange struct {
	First time.Time `json:"first" doc:"The first slot."`
	Last  time.Time `json:"last" doc:"The last slot."`
	Count *int      `json:"count" doc:"How many slots. Null: more than 1,000." example:"3"`
}

// Attempt is one request of a run. The successful one and the one in flight are derived from the run's own row.
type Attempt struct {
	Number     int                   `json:"number" doc:"Number of the attempt, from 1." example:"1"`
	StartedAt  time.Time             `json:"started_at" doc:"When it was sent."`
	FinishedAt *time.Time            `json:"finished_at" doc:"When it ended. Null: it is in flight."`
	Outcome    domain.AttemptOutcome `json:"outcome" doc:"How it ended: succeeded, failed, timed_out, lost, interrupted or cancelled; in_flight if it has not ended." example:"failed"`
	Reason     *domain.Reason        `json:"reason" nullable:"true" doc:"Why it did not succeed."`
	Replica    *uuid.UUID            `json:"replica" format:"uuid" nullable:"true" doc:"The replica that made it."`
	HTTPStatus *int                  `json:"http_status" doc:"Status of the response, if there was one." example:"503"`
	Error      *string               `json:"error" doc:"The error, for people."`
	Headers    map[string]string     `json:"headers,omitempty" doc:"These headers of the response, if it has them, by name in lower case: content-type, date, location, retry-after, server, via, www-authenticate, x-correlation-id and x-request-id; and punctual-log-url, of every answer. Secrets that were sent are shown as ***."`
	Response   *string               `json:"response" doc:"Start of the response body: as many bytes as the job's keep_response says; by default the first 1 KiB, for failures only. Secrets that were sent are shown as ***."`
	Truncated  bool                  `json:"truncated" doc:"Whether the response body was longer than the part that is kept." example:"false"`

	fence int64
}

// Filter selects runs; empty fields select all.
type Filter struct {
	Status  domain.Status
	Reason  domain.Reason
	Trigger domain.Trigger
	Late    *bool
	Cause   *uuid.UUID // the run or event that caused them
	// Workflow selects the runs of the steps of one workflow's run. Without it, runs of steps are found only by their
	// trigger.
	Workflow *uuid.UUID
	Job      string     // name or id of a job that is not deleted
	JobID    *uuid.UUID // deleted jobs too
	Labels   map[string]string
	From     *time.Time // on scheduled_for, inclusive; a skip range matches if it overlaps
	To       *time.Time // exclusive
	pg.Page

	job *uuid.UUID // of Job
}

// Taken reports whether the run is of a step that a rerun has kept or set: nothing was sent for it.
func (r *Run) Taken() bool {
	return r.Step != "" && r.Status == domain.StatusSucceeded && (r.RerunOf != nil || r.TriggeredBy != nil)
}

// TooLate reports whether the slot was taken later than the job tolerates.
func (r *Run) TooLate() bool {
	return r.Late || r.Reason != nil && *r.Reason == domain.ReasonMissed
}
