package notice

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// Batch is the body of a message of the lifecycle of runs.
type Batch struct {
	Tenant string           `json:"tenant"` // name
	Events []LifecycleEvent `json:"events"`
	// LeftOut is how many events were dropped since the last batch, because too many waited or the recipient took none.
	LeftOut int64 `json:"left_out"`
}

// LifecycleEvent says that a run has started or succeeded.
type LifecycleEvent struct {
	Event        jobspec.Event `json:"event"`
	Run          uuid.UUID     `json:"run"`
	Job          string        `json:"job"` // name
	JobID        uuid.UUID     `json:"job_id"`
	ScheduledFor time.Time     `json:"scheduled_for"`
	StartedAt    *time.Time    `json:"started_at"`  // of the latest attempt; of a start, when it was claimed
	FinishedAt   *time.Time    `json:"finished_at"` // null: of a start
	Attempt      int16         `json:"attempt"`
}
