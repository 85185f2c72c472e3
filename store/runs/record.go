package runs

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/store/pg"
)

// Record is a run or a recorded skip.
type Record struct {
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

	Notice bool  // the run is a notice about its job
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

// Filter selects runs; empty fields select all.
type Filter struct {
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

	job *uuid.UUID // of Job
}
