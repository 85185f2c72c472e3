package notice

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// Outgoing is a message that this replica is to send now. No other replica sends to the recipient until the lease ends.
type Outgoing struct {
	ID        uuid.UUID // of the message, and of its lease
	Recipient uuid.UUID // in the outbox
	Pipeline  Pipeline
	Tenant    int32
	To        jobspec.Recipient
	Run       uuid.UUID // of approvals: the run of the step
	Body      []byte
	// Headline, Events and Newest say in short what it tells, and when the newest of it happened.
	Headline string
	Events   []string
	Newest   time.Time
	Parts    []Part
	Keys     []string // of its subjects
	Begun    []string // the keys of causes of which the recipient knew nothing before
	Over     []string // the keys of causes and hosts that are over, while runs or jobs may still wait
}

// Part is what a message tells of one kind of trouble of a job.
type Part struct {
	Job   uuid.UUID
	Kind  string // of trouble
	Key   string // of the subject
	Open  bool   // the recipient holds it for troubled if the message arrives, or did so before
	First bool   // and knew nothing of that before
	Own   bool   // it fails although its host can be reached
}

// Pipeline is what messages tell of. The outbox treats all alike; each composes its messages in its own way.
type Pipeline string

// The pipelines.
const (
	States    Pipeline = "states"    // trouble of jobs, and its end: the newest state
	Lifecycle Pipeline = "lifecycle" // starts and successes of runs: each of them, in batches
	Approvals Pipeline = "approvals" // steps that wait for approval, each in a message of its own
)

// Lease is how long a replica has for a message, and Timeout is how long the recipient may take to answer. A replica
// that has stood still may send after its lease has ended. Then the store has the state told again.
const (
	Lease   = time.Minute
	Timeout = 10 * time.Second
)

// Arrival says whether a message arrived.
type Arrival string

// The arrivals.
const (
	Delivered Arrival = "delivered"
	// PutOff means that the recipient took nothing, and asked for a pause. That costs no attempt.
	PutOff Arrival = "put_off"
	// Unsent means that the recipient has not seen the message.
	Unsent Arrival = "unsent"
	// Refused means that the recipient refused the message as it is.
	Refused Arrival = "refused"
	// Unknown means that the message may have arrived.
	Unknown Arrival = "unknown"
)

// Answer is how a recipient answered a message.
type Answer struct {
	Arrival    Arrival
	RetryAfter time.Duration
	Status     int
	Error      string
}
