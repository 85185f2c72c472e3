package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/links"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Record is a job as it stands: its current definition as written, and its state.
type Record struct {
	ID               uuid.UUID
	Tenant           string
	Version          int32
	State            domain.JobState
	Definition       jobspec.Definition
	NextScheduledFor *time.Time       // next slot; nil if there is none or the job is paused
	NextRunAt        *time.Time       // when the next slot is due
	LastRun          *runs.Run        // newest run or skip by slot, without attempts; nil if there is none
	Recent           *runs.RecentRuns // its newest runs; nil unless a list was asked for them
	PausedAt         *time.Time
	PausedUntil      *time.Time
	PausedBy         string // for people
	PauseNote        string
	CreatedAt        time.Time
	UpdatedAt        time.Time
	CompletedAt      *time.Time

	// Since when it is so; nil: it is not. These are kept of jobs with recipients for such notices.
	FailingSince     *time.Time // its attempts fail
	StaleSince       *time.Time // it has had no success, and should have had one
	OverlappingSince *time.Time // most slots are skipped, because the run before has not ended

	// SkippedWhilePaused are the slots that a pause swallowed, if the change that returns the record has ended the pause.
	SkippedWhilePaused *runs.SkippedRange

	Upstreams []links.Upstream // the jobs whose runs trigger it; nil in lists
	Broken    []uuid.UUID      // the deleted jobs among those that its runs trigger
}

// NewJob is what CreateJob and PutJob write.
type NewJob struct {
	Definition jobspec.Definition
	Paused     *bool // nil: a new job is active, a replaced one stays as it is

	id uuid.UUID // of a new job in a batch; zero: it gets one
}

// Filter selects jobs; empty fields select all. Deleted jobs are never listed. As JSON it is part of an operation.
type Filter struct {
	State      domain.JobState   `json:"state,omitempty"`
	Queue      string            `json:"queue,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"` // all of them
	NamePrefix string            `json:"name,omitempty"`
	Query      string            `json:"q,omitempty"`                   // part of the name or description, case-insensitive
	PausedBy   *uuid.UUID        `json:"paused_by_operation,omitempty"` // only jobs that it paused, and that have stayed so
	Among      []uuid.UUID       `json:"-"`                             // only these, such as those that are failing; nil: all
	Recent     int               `json:"-"`                             // how many of its newest runs each job is to show
	pg.Page    `json:"-"`
}

// OnConflict says what CreateJobs does with a name that is taken.
type OnConflict string

// The choices of OnConflict.
const (
	ConflictError   OnConflict = "error"
	ConflictReplace OnConflict = "replace"
	ConflictSkip    OnConflict = "skip"
)

// BatchItem is one job of a batch, in the order given.
type BatchItem struct {
	ID   uuid.UUID `json:"id" format:"uuid" doc:"The job's id." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Name string    `json:"name" doc:"The job's name." example:"daily-invoice-gen"`

	Result BatchOutcome `json:"result" enum:"created,replaced,unchanged,skipped" doc:"The result for the job. unchanged: the existing job has the same definition already. skipped: the name is taken, and the existing job stays as it is." example:"created"`
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

// Unwrap returns how a caller is refused: with the fields of all these jobs. A fault of Punctual goes before what the
// caller can mend.
func (e *BatchError) Unwrap() error {
	r := &jobspec.Refusal{Code: "name_taken", Reason: "1 name is taken by other jobs; nothing was written"}
	for _, i := range slices.Sorted(maps.Keys(e.Errors)) {
		err, at := e.Errors[i], fmt.Sprintf("jobs[%d]", i)
		if refusal, is := errors.AsType[*jobspec.Refusal](err); is && refusal.Code == jobspec.CodeCronMismatch {
			return fmt.Errorf("%s: %w", at, err)
		}
		if !errors.Is(err, ErrNameTaken) {
			r.Code = "invalid"
		}
		if blames := jobspec.BlamesOf(err); len(blames) > 0 {
			r.Blames = append(r.Blames, jobspec.Blame(at+"."+blames[0].Field, "%s", blames[0].Message))
		} else {
			r.Blames = append(r.Blames, jobspec.Blame(at, "%s", err))
		}
	}
	if n := len(r.Blames); n > 1 {
		r.Reason = fmt.Sprintf("%d names are taken by other jobs; nothing was written", n)
	}
	return r
}

// TriggerRequest is what a trigger by hand may set for its run.
type TriggerRequest struct {
	Body    json.RawMessage   // replaces the job's body if not nil; same form as target.body
	Headers map[string]string // replaces the job's headers if not nil

	Submitter bool // the caller may trigger only jobs that allow it

	TraceParent string // the caller's trace context, as domain.ParseTraceParent returns it; empty: none
}

// RerunRequest is what a rerun may change about the run that it repeats.
type RerunRequest struct {
	TriggerRequest      // replaces the body and headers that the run had in place of its job's; nil: the same
	Chain          bool // its end triggers other jobs
	SameKey        bool // reuse the run's webhook-id and Idempotency-Key, so that receivers take it for that run

	Steps    domain.StepRerun // of a workflow
	Original bool             // of a workflow: under the definition that the run had, in place of the current one

	dry bool
}

// Errors that callers act on.
var (
	ErrNameTaken error = &jobspec.Refusal{
		Code: "name_taken", Reason: "the name is taken by another job",
		Blames: []jobspec.Problem{{Field: "name", Message: "is taken by another job"}},
	}
	// ErrVersion is a lost update: the job is no longer at the version that the caller expected.
	ErrVersion error = &jobspec.Refusal{
		Code: "version_mismatch", Reason: "the job has been changed since", Around: true,
	}
	// ErrNotForSubmitters says that a submitter triggered a job that does not allow it.
	ErrNotForSubmitters error = &jobspec.Refusal{
		Code: "forbidden", Around: true, Reason: "the role submitter may not trigger it; an editor may trigger it, " +
			"or set submitters_may_trigger to true",
	}
)
