package store

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/store/pg"
)

// JobRecord is a job as it stands: its current definition as written, and its state.
type JobRecord struct {
	ID               uuid.UUID
	Tenant           string
	Version          int32
	State            scheduler.JobState
	Definition       scheduler.Definition
	NextScheduledFor *time.Time // next slot; nil if there is none or the job is paused
	NextRunAt        *time.Time // when the next slot is due
	LastRun          *RunRecord // newest run or skip by slot, without attempts; nil if there is none
	PausedAt         *time.Time
	PausedUntil      *time.Time
	PauseNote        string
	CreatedAt        time.Time
	UpdatedAt        time.Time
	CompletedAt      *time.Time
}

// RunRecord is a run or a recorded skip.
type RunRecord struct {
	ID            uuid.UUID
	JobID         uuid.UUID
	Job           string // current name of the job
	Tenant        string
	Trigger       scheduler.Trigger
	ScheduledFor  time.Time
	Status        scheduler.Status
	Reason        scheduler.Reason // empty on a plain success
	Late          bool
	Attempt       int // number of the latest attempt; 0 before the first
	MaxAttempts   int
	Queue         string
	Priority      scheduler.Priority
	Replica       *uuid.UUID
	JobVersion    int32
	DueAt         time.Time
	CreatedAt     time.Time
	ClaimedAt     *time.Time
	StartedAt     *time.Time
	AcceptedAt    *time.Time // with completion async: when the target answered with 202
	FinishedAt    *time.Time
	NextAttemptAt *time.Time
	HTTPStatus    int // 0: no response
	Error         string
	BlockedBy     *uuid.UUID
	Skipped       *SkippedRange
	ReplayOf      *uuid.UUID
	RerunOf       *uuid.UUID
	ParentRun     *uuid.UUID
	Step          string

	// Lists leave these empty.
	Attempts   []Attempt
	Result     json.RawMessage // nil: no result is kept
	ResultNote string          // why no result is kept
	// Sent is what the latest attempt sent, or what the first one will send. Nil: the run is a recorded skip, or the
	// record is not from GetRun.
	Sent *scheduler.Assignment

	notice bool  // the run is a notice about its job
	fence  int64 // fencing token of the latest attempt; 0 before the first
}

// SkippedRange is the range of slots that a recorded skip stands for.
type SkippedRange struct {
	First time.Time `json:"first" doc:"The first slot."`
	Last  time.Time `json:"last" doc:"The last slot."`
	Count *int      `json:"count" doc:"How many slots. Null: more than 1,000." example:"3"`
}

// Attempt is one request of a run. The successful one and the one in flight are derived from the run's own row.
type Attempt struct {
	Number     int                      `json:"number" doc:"Number of the attempt, from 1." example:"1"`
	StartedAt  time.Time                `json:"started_at" doc:"When it was sent."`
	FinishedAt *time.Time               `json:"finished_at" doc:"When it ended. Null: it is in flight."`
	Outcome    scheduler.AttemptOutcome `json:"outcome" doc:"How it ended: succeeded, failed, timed_out, lost, interrupted or cancelled; in_flight if it has not ended." example:"failed"`
	Reason     *scheduler.Reason        `json:"reason" nullable:"true" doc:"Why it did not succeed."`
	Replica    *uuid.UUID               `json:"replica" format:"uuid" nullable:"true" doc:"The replica that made it."`
	HTTPStatus *int                     `json:"http_status" doc:"Status of the response, if there was one." example:"503"`
	Error      *string                  `json:"error" doc:"What went wrong, for people."`
	Headers    map[string]string        `json:"headers,omitempty" doc:"These headers of the response, if it has them, by name in lower case: content-type, date, location, retry-after, server, via, www-authenticate, x-correlation-id and x-request-id. Secrets that were sent are shown as ***."`
	Response   *string                  `json:"response" doc:"Start of the response body: as many bytes as the job's keep_response says; by default the first 1 KiB, for failures only. Secrets that were sent are shown as ***."`
	Truncated  bool                     `json:"truncated" doc:"Whether the response body was longer than the part that is kept." example:"false"`

	fence int64
}

// NewJob is what CreateJob and PutJob write.
type NewJob struct {
	Definition scheduler.Definition
	Paused     *bool // nil: a new job is active, a replaced one stays as it is
}

// JobFilter selects jobs; empty fields select all. Deleted jobs are never listed.
type JobFilter struct {
	State      scheduler.JobState
	Queue      string
	Labels     map[string]string // all of them
	NamePrefix string
	Query      string // part of the name or description, case-insensitive
	pg.Page
}

// RunFilter selects runs; empty fields select all.
type RunFilter struct {
	Status  scheduler.Status
	Reason  scheduler.Reason
	Trigger scheduler.Trigger
	Late    *bool
	Job     string     // name or id of a job that is not deleted
	JobID   *uuid.UUID // deleted jobs too
	Labels  map[string]string
	From    *time.Time // on scheduled_for, inclusive; a skip range matches if it overlaps
	To      *time.Time // exclusive
	pg.Page
}

// OnConflict says what CreateJobs does with a name that is taken.
type OnConflict string

// The choices of OnConflict.
const (
	ConflictError   OnConflict = "error"
	ConflictReplace OnConflict = "replace"
	ConflictSkip    OnConflict = "skip"
)

// BatchResult is one job of a batch, in the order given.
type BatchResult struct {
	ID     uuid.UUID
	Name   string
	Result BatchOutcome
}

// BatchOutcome is what happened to one job of a batch.
type BatchOutcome string

// The outcomes of the jobs of a batch.
const (
	BatchCreated   BatchOutcome = "created"
	BatchReplaced  BatchOutcome = "replaced"
	BatchUnchanged BatchOutcome = "unchanged" // it was to be replaced, but by the same definition
	BatchSkipped   BatchOutcome = "skipped"   // its name was taken
)

// BatchError says which jobs of a batch could not be written. Nothing was written.
type BatchError struct {
	Errors map[int]error // by index
}

func (e *BatchError) Error() string { return "some jobs of the batch cannot be written" }

// TriggerRequest is what a trigger by hand may set for its run.
type TriggerRequest struct {
	Body    json.RawMessage   // replaces the job's body if not nil; same form as target.body
	Headers map[string]string // replaces the job's headers if not nil

	Submitter bool // the caller may trigger only jobs that allow it
}

// RerunRequest is what a rerun may change about the run that it repeats.
type RerunRequest struct {
	TriggerRequest      // replaces the body and headers that the run had in place of its job's; nil: the same
	SameKey        bool // reuse the run's webhook-id and Idempotency-Key, so that receivers take it for that run
}

// Idempotency makes a write happen once per key. If the key is new, the write and the rendered answer are committed
// together. If the key is known with the same hash, nothing is written and the first answer is returned. With another
// hash the error is ErrKeyReused.
type Idempotency struct {
	Key  string
	Hash [32]byte // of method, path and body
}

// Answer is a rendered response that is stored with an Idempotency-Key.
type Answer struct {
	Status int
	Body   []byte // JSON
}
